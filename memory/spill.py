"""Spilling: when the hot part of a memory is full, its oldest entries go to disk as one chunk.

What is spilled, and when, depends on the memory alone and not on commits, so that an interrupted and resumed
run spills the same entries at the same steps.
"""

import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..durable import storage_errors
from ..errors import ConfigError
from .append import Occupancy
from .chunks import write_chunk
from .cold import COLUMNS, ColdChunk, ColdPart, cold_layout
from .cold_stream import READ_AHEAD
from .database import EMPTY, Block, Database
from .layout import Layout
from .sharding import ONE_DEVICE, Shards

_RESERVED = READ_AHEAD + 3  # chunks in memory beside the hot part: mapped ahead, in use, being spilled
_CHUNKS = 16  # a budget holds at least so many


@dataclass(frozen=True)
class Budget:
    """How a layer's byte budget is divided: the hot part, and room for chunks on their way."""

    nbytes: int  # the budget
    hot_slots: int  # slots of the hot part at most
    layout: Layout  # of the cold part's chunks

    @classmethod
    def of(
        cls,
        nbytes: int,
        key_features: int,
        value_features: int,
        *,
        weighted: bool,
        dtype: Any,
        shards: Shards = ONE_DEVICE,
    ) -> "Budget":
        """Divides a budget.

        Args:
          nbytes: the budget.
          key_features: D.
          value_features: F.
          weighted: whether entries carry weights.
          dtype: of keys, values, weights and norms.
          shards: the devices that the rows are spread over.

        Raises:
          ConfigError: it is too small.
        """
        layout = cold_layout(1, key_features, value_features, weighted=weighted, dtype=dtype)
        row_bytes = _row_bytes(layout)
        rows, least = nbytes // row_bytes, _CHUNKS * shards.count
        if rows < least:
            raise ConfigError(
                f"memory.budget_bytes: expected room for {least} entries of {row_bytes} bytes, "
                f"{least * row_bytes}; found {nbytes}: raise it"
            )
        per_chunk = min(rows // _CHUNKS, layout.usual_rows_per_chunk)
        per_chunk -= per_chunk % shards.count
        hot = rows - _RESERVED * per_chunk
        return cls(nbytes, hot - hot % shards.count, replace(layout, rows_per_chunk=per_chunk))

    def check(self, where: str, database: Database, cold: ColdPart) -> None:
        """Refuses a memory, kept without a budget or with another one, that does not fit this one.

        Args:
          where: begins the message.
          database: the hot part.
          cold: the cold part.

        Raises:
          ConfigError: hot part and chunks on their way need more.
        """
        layout = cold.layout
        needed = database.nbytes + _RESERVED * layout.rows_per_chunk * _row_bytes(layout)
        if needed > self.nbytes:
            raise ConfigError(
                f"{where}: memory.budget_bytes: expected at least {needed} for the {database.capacity} slots "
                f"in memory and chunks of {layout.rows_per_chunk} entries; found {self.nbytes}: raise it"
            )


def clear_spilled(path: Path) -> None:
    """Deletes what a killed process left where its spill folders were."""
    rmtree(path, ignore_errors=True)


class SpillFolder:
    """Where chunks lie that no commit has taken over yet. One process uses it at a time.

    It goes when neither a chunk in it nor anything else refers to it.

    Args:
      path: where to make it when it is first needed; None: among the system's temporary files.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._parent = path
        self._path: Path | None = None
        self._numbers = count()

    def write(self, name: str, layout: Layout, columns: dict[str, np.ndarray]) -> ColdChunk:
        """Writes a chunk; a commit that links it makes it durable.

        Args:
          name: begins the files' names.
          layout: of the chunk.
          columns: its R rows.

        Raises:
          StorageError: the file system refused; no part of the chunk is left.
        """
        folder = self._folder()
        number = next(self._numbers)
        files = {column: folder / f"{name}.{number:06d}.{column}" for column in columns}
        chunk = ColdChunk(files, owned=True, keeper=self)  # made first, so that it clears away half of it
        with storage_errors(folder):
            for column, rows in columns.items():
                write_chunk(
                    files[column], [np.ascontiguousarray(rows)], layout.chunk_bytes(column), durable=False
                )
        return chunk

    def _folder(self) -> Path:
        if self._path is None:
            parent = Path(tempfile.gettempdir()) if self._parent is None else self._parent
            with storage_errors(parent):
                parent.mkdir(parents=True, exist_ok=True)
                # A name of its own: chunks of an earlier object may clear their files away at any time.
                self._path = Path(tempfile.mkdtemp(prefix="lamina-cold-", dir=parent))
            weakref.finalize(self, rmtree, self._path, ignore_errors=True)
        return self._path


def spill(
    database: Database,
    occupancy: Occupancy,
    cold: ColdPart,
    write: Callable[[Layout, dict[str, np.ndarray]], ColdChunk],
    step: int,
) -> tuple[Database, Occupancy, ColdPart]:
    """Moves the oldest entries of a full hot part, one chunk of them, to the cold part.

    Args:
      database: the hot part; its bookkeeping columns are consumed.
      occupancy: its exact number of entries.
      cold: the cold part.
      write: writes a chunk.
      step: the present step.

    Returns:
      All three afterwards.

    Raises:
      StorageError: the file system refused; nothing has changed.
    """
    created = database.column("created")
    live = np.flatnonzero(created != EMPTY)
    rows = cold.layout.rows_per_chunk
    oldest = live[np.argsort(created[live], kind="stable")][:rows]
    places = np.full(rows, -1, np.int64)  # fewer entries than a chunk's rows leave dead ones
    places[: len(oldest)] = _places(database, oldest)
    columns = _take(database.blocks, jnp.asarray(places), _stored(cold.layout))
    columns = {name: np.asarray(column) for name, column in columns.items()}
    cold = cold.added(write(cold.layout, columns), columns["created"] != EMPTY)
    blocks = _release(database.blocks, jnp.asarray(places), jnp.int32(step))
    entries = occupancy.most - len(oldest)
    database = replace(database, blocks=blocks, entries=database.entries - len(oldest))
    return database, Occupancy(entries, entries, holes=True), cold


def _row_bytes(layout: Layout) -> int:
    """Bytes of a row in memory: it has `changed` and no `alive`."""
    return layout.row_bytes - 1 + np.dtype(np.int32).itemsize


def _stored(layout: Layout) -> tuple[str, ...]:
    return tuple(column for column in COLUMNS if column in layout.columns)


def _places(database: Database, slots: np.ndarray) -> np.ndarray:
    """Where slots lie in the blocks' arrays one after the other; devices hold every n-th slot of a block."""
    count = database.shards.count
    places, begin = np.empty_like(slots), 0
    for block in database.blocks:
        inside = (slots >= begin) & (slots < begin + block.slots)
        within = slots[inside] - begin
        places[inside] = begin + within % count * (block.slots // count) + within // count
        begin += block.slots
    return places


@partial(jax.jit, static_argnums=2)
def _take(blocks: tuple[Block, ...], places: jax.Array, columns: tuple[str, ...]) -> dict[str, jax.Array]:
    """The rows at some places, of which −1 is none: an empty slot."""

    def gathered(name: str) -> jax.Array:
        found, begin = None, 0
        for block in blocks:
            column, here = getattr(block, name), places - begin
            inside = (here >= 0) & (here < block.slots)
            rows = column[jnp.clip(here, 0, block.slots - 1)]
            fill = jnp.full_like(rows, EMPTY if name == "created" else 0) if found is None else found
            found = jnp.where(inside.reshape(-1, *[1] * (rows.ndim - 1)), rows, fill)
            begin += block.slots
        assert found is not None
        return found

    return {name: gathered(name) for name in columns}


def _release(blocks: tuple[Block, ...], places: jax.Array, step: jax.Array) -> tuple[Block, ...]:
    """The blocks with the slots at some places empty; only `created` and `changed` are touched."""
    released, begin = [], 0
    for block in blocks:
        created, changed = _empty(block.created, block.changed, places - begin, step)
        released.append(replace(block, created=created, changed=changed))
        begin += block.slots
    return tuple(released)


@partial(jax.jit, donate_argnums=(0, 1))
def _empty(
    created: jax.Array, changed: jax.Array, places: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
    places = jnp.where(places < 0, len(created), places)  # negative ones would count from the end
    return created.at[places].set(EMPTY, mode="drop"), changed.at[places].set(step, mode="drop")
