"""Between a database on the device and its table in the store.

The store keeps rows in append order; the device keeps them in slots that are reused. Each stored row carries
its slot, so that a reloaded database has the same slot order, hence the same order of summation, bit for bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .cold import ColdPart
from .database import EMPTY, Block, Database
from .sharding import ONE_DEVICE, Shards
from .store import ChunksChange, Table, TableChange

_READ_ROWS = 8192  # rows read from a table at a time


@dataclass(frozen=True)
class TableMap:
    """Which table row holds which slot, as of the last commit."""

    row_of_slot: np.ndarray  # [capacity] int64; −1 where the slot is not stored
    rows: int  # rows in the table, live or dead
    step: int  # the step of the last commit; −1 before the first
    cold: ColdPart | None = None  # the cold part as committed; None without one

    @classmethod
    def empty(cls) -> "TableMap":
        return cls(np.empty(0, np.int64), 0, -1)

    @property
    def moved(self) -> bool:
        """Whether the slots are others than at the last commit, as blocks did not divide over the devices."""
        return self.rows > 0 and self.step < 0


def table_change(database: Database, known: TableMap, step: int) -> tuple[TableChange, TableMap]:
    """What a commit at `step` must write, and the map that holds once it has.

    Rows written since the last commit are appended and the rows that their slots held before are marked dead;
    once half of the table is dead it is written anew.
    """
    row_of_slot = np.full(database.capacity, -1, np.int64)
    row_of_slot[: len(known.row_of_slot)] = known.row_of_slot
    live = database.column("created") != EMPTY
    fresh = live & (database.column("changed") > known.step)
    died = row_of_slot[(row_of_slot >= 0) & (fresh | ~live)]
    row_of_slot[~live] = -1
    stored = int(np.count_nonzero(live & ~fresh))
    replace = known.rows - stored > known.rows // 2
    slots = np.flatnonzero(live if replace else fresh)
    first = 0 if replace else known.rows
    row_of_slot[slots] = first + np.arange(len(slots))
    change = TableChange(_gather(database, slots), np.empty(0, np.int64) if replace else died, replace)
    return change, TableMap(row_of_slot, first + len(slots), step)


def chunks_change(cold: ColdPart, known: ColdPart | None) -> ChunksChange:
    """What a commit must do about a cold part.

    Args:
      cold: the cold part.
      known: as the last commit left it; None: that had none.
    """
    before = () if known is None or known.layout != cold.layout else known.chunks
    kept = 0
    while kept < min(len(before), len(cold.chunks)) and before[kept] is cold.chunks[kept]:
        kept += 1
    alive = np.concatenate([np.empty(0, np.uint8), *(live.view(np.uint8) for live in cold.live)])
    return ChunksChange(cold.layout, [chunk.files for chunk in cold.chunks], alive, kept)


def cold_meta(cold: ColdPart | None, table: str) -> dict[str, Any]:
    """What a commit says of a memory's cold part (JSON): `cold`, its table and sizes, or nothing."""
    if cold is None or not cold.chunks:
        return {}
    return {"cold": {"table": table, "entries": cold.entries, "slots": cold.rows, "bytes": cold.nbytes}}


def database_meta(database: Database) -> dict[str, Any]:
    """What a commit must know of a database besides its rows (JSON)."""
    return {
        "blocks": [block.slots for block in database.blocks],
        "key_features": database.key_features,
        "value_features": database.value_features,
        "weighted": database.weighted,
        "dtype": str(database.blocks[0].keys.dtype),
        "entries": int(database.entries),
        "counters": np.asarray(database.counters).tolist(),
        "capacity": database.capacity,
        "bytes": database.nbytes,
    }


def load_database(
    table: Table, meta: Mapping[str, Any], step: int, shards: Shards = ONE_DEVICE
) -> tuple[Database, TableMap]:
    """Reads a committed database back, block by block.

    Args:
      table: its table.
      meta: its `database_meta`.
      step: the step of that commit.
      shards: the devices to spread the rows over; it may have been committed from other ones.
    """
    alive = np.flatnonzero(table.alive())
    slots = np.full(table.rows, -1, np.int64)
    slots[alive] = table.read("slot")[alive]
    sizes, slots = _divisible(meta["blocks"], slots, shards)
    blocks, begin = [], 0
    for size in sizes:
        blocks.append(_load_block(table, meta, slots - begin, size, shards))
        begin += size
    counters = jnp.asarray(meta["counters"], jnp.int32)
    database = Database(tuple(blocks), jnp.int32(meta["entries"]), counters, shards)
    if sizes != list(meta["blocks"]):
        return database, TableMap(np.empty(0, np.int64), table.rows, -1)  # slots moved: write all anew
    row_of_slot = np.full(sum(sizes), -1, np.int64)
    row_of_slot[slots[alive]] = alive
    return database, TableMap(row_of_slot, table.rows, step)


def _divisible(sizes: list[int], slots: np.ndarray, shards: Shards) -> tuple[list[int], np.ndarray]:
    """Sizes of blocks that divide over the devices, and where that moves the slots (−1 stays −1)."""
    rounded = [shards.rounded(size) for size in sizes]
    moved = slots.copy()
    for end, wider in zip(np.cumsum(sizes), np.subtract(rounded, sizes), strict=True):
        moved[slots >= end] += wider
    return rounded, moved


def _gather(database: Database, slots: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of some slots (ascending) on the host, and the slots themselves."""
    names = ["keys", "values", "created", "origin", "changed", "key_norms", "value_norms"]
    if database.weighted:
        names.append("weights")
    pieces: dict[str, list[np.ndarray]] = {name: [] for name in names}
    begin = 0
    for block in database.blocks:
        inside = slots[(slots >= begin) & (slots < begin + block.slots)] - begin
        for name in names:
            pieces[name].append(database.shards.fetch(getattr(block, name))[inside])
        begin += block.slots
    columns = {name: np.concatenate(arrays) for name, arrays in pieces.items()}
    return columns | {"slot": slots.astype(np.int32)}


def _load_block(table: Table, meta: Mapping[str, Any], slots: np.ndarray, size: int, shards: Shards) -> Block:
    dtype, keys, values = meta["dtype"], meta["key_features"], meta["value_features"]
    shapes: dict[str, tuple[tuple[int, ...], str, int]] = {
        "keys": ((keys,), dtype, 0),
        "values": ((values,), dtype, 0),
        "weights": ((), dtype, 0),
        "created": ((), "int32", EMPTY),
        "origin": ((), "int32", -1),
        "changed": ((), "int32", -1),
        "key_norms": ((), dtype, 0),
        "value_norms": ((), dtype, 0),
    }
    if not meta["weighted"]:
        del shapes["weights"]
    columns: dict[str, Any] = {"weights": None}
    inside = (slots >= 0) & (slots < size)
    for name, (shape, kind, fill) in shapes.items():
        array = np.full((size, *shape), fill, kind)
        _scatter(table, name, array, slots, inside)
        columns[name] = shards.place(array)
    return Block(**columns)


def _scatter(table: Table, column: str, array: np.ndarray, slots: np.ndarray, inside: np.ndarray) -> None:
    """Reads the rows that lie in a block, a stretch at a time, into their places."""
    for start in range(0, table.rows, _READ_ROWS):
        stop = min(start + _READ_ROWS, table.rows)
        chosen = inside[start:stop]
        if chosen.any():
            array[slots[start:stop][chosen]] = table.read(column, start, stop)[chosen]
