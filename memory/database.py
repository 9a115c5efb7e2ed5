"""The database of a growing layer: rows in blocks of geometric size that are never copied.

A row is an entry (key, value, weight) with the step that created it and the stream offset it came from.
Rows lie in slots; slots are numbered through all blocks. A slot is live or empty; nothing moves when its
neighbours come or go.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .sharding import ONE_DEVICE, Shards

EMPTY = -1  # `created` of a slot that holds no entry
INITIAL = 0  # `created` of the entries of the initial function, which are never evicted
COUNTERS = ("admitted", "merged", "rejected", "pruned", "evicted")

GROWTH = 2**0.5  # each new block raises the capacity by this factor: two shapes per doubling
_ROUNDING = 64  # rows per block are a multiple of this, so that they divide over devices


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Block:
    """A run of slots. Floating columns have the learner's dtype, the others are int32."""

    keys: jax.Array  # [n, D]
    values: jax.Array  # [n, F] stored values; softmax kernels store the weighted value ṽ
    weights: jax.Array | None  # [n] weights w of normalised kernels, else None
    created: jax.Array  # [n] the step that added the entry; INITIAL or EMPTY
    origin: jax.Array  # [n] stream offset of the example it came from; −1 for initial entries
    changed: jax.Array  # [n] the step at which the slot was last written
    key_norms: jax.Array  # [n] ‖k‖²
    value_norms: jax.Array  # [n] ‖v‖

    @property
    def slots(self) -> int:
        return int(self.created.shape[0])

    @property
    def live(self) -> jax.Array:
        """[n] bool: the slots that hold an entry."""
        return self.created != EMPTY


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Database:
    """A growing layer's memory.

    `counters` count what happened to entries so far; they wrap around at 2³², so read differences.
    """

    blocks: tuple[Block, ...]
    entries: jax.Array  # [] int32 live slots
    counters: jax.Array  # [5] int32, in the order of COUNTERS
    shards: Shards = field(default=ONE_DEVICE, metadata={"static": True})  # where the rows lie

    @property
    def capacity(self) -> int:
        """Slots allocated."""
        return sum(block.slots for block in self.blocks)

    @property
    def key_features(self) -> int:
        return int(self.blocks[0].keys.shape[1])

    @property
    def value_features(self) -> int:
        return int(self.blocks[0].values.shape[1])

    @property
    def weighted(self) -> bool:
        return self.blocks[0].weights is not None

    @property
    def nbytes(self) -> int:
        """Bytes of all allocated slots, live or empty."""
        columns = [column for column in vars(self.blocks[0]).values() if column is not None]
        row = sum(column.dtype.itemsize * math.prod(column.shape[1:]) for column in columns)
        return int(self.capacity * row)

    def column(self, name: str) -> np.ndarray:
        """One column of all slots on the host, [capacity, ...], in the order of slots."""
        return np.concatenate([self.shards.fetch(getattr(block, name)) for block in self.blocks])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Entries to write: B rows of every column but those the database derives."""

    keys: jax.Array  # [B, D]
    values: jax.Array  # [B, F]
    weights: jax.Array | None  # [B]
    origin: jax.Array  # [B] int32


class Found(NamedTuple):
    """Entries read from their slots; zeros where there was none."""

    keys: jax.Array  # [M, D]
    values: jax.Array  # [M, F]
    weights: jax.Array | None  # [M]
    created: jax.Array  # [M] int32


def empty_block(
    slots: int,
    key_features: int,
    value_features: int,
    *,
    weighted: bool,
    dtype: Any = jnp.float32,
    shards: Shards = ONE_DEVICE,
) -> Block:
    """A block of empty slots, a multiple of the number of devices."""

    def filled(shape: tuple[int, ...], kind: Any, value: int) -> jax.Array:
        return jnp.full(shape, value, kind, device=shards.sharding)

    # One array per column: a shared array could not be donated for one column and kept for another.
    return Block(
        keys=filled((slots, key_features), dtype, 0),
        values=filled((slots, value_features), dtype, 0),
        weights=filled((slots,), dtype, 0) if weighted else None,
        created=filled((slots,), jnp.int32, EMPTY),
        origin=filled((slots,), jnp.int32, -1),
        changed=filled((slots,), jnp.int32, -1),
        key_norms=filled((slots,), dtype, 0),
        value_norms=filled((slots,), dtype, 0),
    )


def empty_database(
    slots: int,
    key_features: int,
    value_features: int,
    *,
    weighted: bool,
    dtype: Any = jnp.float32,
    shards: Shards = ONE_DEVICE,
) -> Database:
    """A database without entries.

    Args:
      slots: slots to allocate in the first block, ≥ 1; rounded up to divide over the devices.
      key_features: D, numbers per key.
      value_features: F, numbers per value.
      weighted: whether entries carry weights (normalised kernels).
      dtype: of keys, values, weights and norms.
      shards: the devices to spread the rows over.
    """
    block = empty_block(
        shards.rounded(slots), key_features, value_features, weighted=weighted, dtype=dtype, shards=shards
    )
    return Database((block,), jnp.zeros((), jnp.int32), jnp.zeros(len(COUNTERS), jnp.int32), shards)


def grow(database: Database, limit: int | None = None) -> Database:
    """Adds one block of empty slots; the others are kept as they are, not copied.

    Args:
      database: the database to grow.
      limit: the capacity never to exceed (but to divide over the devices), or None.

    Raises:
      ValueError: the capacity is at its limit.
    """
    target = -(-int(database.capacity * GROWTH) // _ROUNDING) * _ROUNDING
    if limit is not None:
        target = min(target, database.shards.rounded(limit))
    if target <= database.capacity:
        raise ValueError(f"a database of {database.capacity} slots is at its limit of {limit}")
    first = database.blocks[0]
    block = empty_block(
        target - database.capacity,
        database.key_features,
        database.value_features,
        weighted=database.weighted,
        dtype=first.keys.dtype,
        shards=database.shards,
    )
    return replace(database, blocks=(*database.blocks, block))


def write(database: Database, slots: jax.Array, rows: Rows, step: jax.Array, first: int = 0) -> Database:
    """Writes B rows into given slots, in place: every block from number `first` on is consumed (donated).

    Kept in a jitted call of its own, because beside reads of the same arrays XLA would copy them.

    Args:
      database: the database; blocks before `first` are untouched.
      slots: [B] int32 slot per row; a row whose slot is the capacity or more is not written.
      rows: the rows to write.
      step: [] int32 creation step of the rows.
      first: the first block that may be written.
    """
    begin = sum(block.slots for block in database.blocks[:first])
    written = _write_blocks(database.shards, database.blocks[first:], slots - begin, rows, step)
    return replace(database, blocks=database.blocks[:first] + written)


def emptied(block: Block, gone: jax.Array, step: jax.Array | int) -> Block:
    """A block without the entries of some slots.

    Args:
      block: the block; only its columns `created` and `changed` are replaced.
      gone: [n] bool, in the order of the block's rows.
      step: the present step.
    """
    return replace(
        block,
        created=jnp.where(gone, EMPTY, block.created),
        changed=jnp.where(gone, step, block.changed),
    )


def take(database: Database, slots: jax.Array) -> Found:
    """Reads the entries in given slots.

    Args:
      database: the database.
      slots: [M] int32; −1: none.
    """
    shards = database.shards

    def read(blocks: tuple[Block, ...], slots: jax.Array) -> Found:
        parts = []
        for block in blocks:
            size = block.slots * shards.count
            places = shards.local_places(slots, size)
            columns = block.keys, block.values, block.weights, jnp.maximum(block.created, 0)
            parts.append(jax.tree.map(lambda c, p=places: c.at[p].get(mode="fill", fill_value=0), columns))
            slots = slots - size
        return Found(*shards.total(jax.tree.map(lambda *each: sum(each), *parts)))

    found: Found = shards.spread(read, database.blocks, slots, False)
    return found


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _write_blocks(
    shards: Shards, blocks: tuple[Block, ...], slots: jax.Array, rows: Rows, step: jax.Array
) -> tuple[Block, ...]:
    steps = jnp.full(slots.shape, step, jnp.int32)
    columns: dict[str, jax.Array | None] = {
        "keys": rows.keys,
        "values": rows.values,
        "weights": rows.weights,
        "created": steps,
        "origin": rows.origin,
        "changed": steps,
        "key_norms": jnp.sum(rows.keys * rows.keys, axis=1),
        "value_norms": jnp.sqrt(jnp.sum(rows.values * rows.values, axis=1)),
    }

    def put(parts: tuple[Block, ...], whole: Any) -> tuple[Block, ...]:
        columns, slots = whole
        written = []
        for part in parts:
            size = part.slots * shards.count
            written.append(_with_columns(part, columns, shards.local_places(slots, size)))
            slots = slots - size
        return tuple(written)

    spread: tuple[Block, ...] = shards.spread(put, blocks, (columns, slots), True)
    return spread


def _with_columns(block: Block, columns: Mapping[str, jax.Array | None], places: jax.Array) -> Block:
    def put(name: str) -> Any:
        array, rows = getattr(block, name), columns[name]
        if array is None or rows is None:
            return None
        return array.at[places].set(rows.astype(array.dtype), mode="drop")

    return Block(**{each.name: put(each.name) for each in fields(Block)})
