"""Policies: which queries become entries, where they go, and which entries leave.

All decisions for a batch are taken on the device. The host knows only bounds on the number of entries and
asks for the exact one when a decision about capacity depends on it (`Occupancy`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from .coefficients import CoefficientTable, block_coefficients
from .database import COUNTERS, EMPTY, INITIAL, Block, Database, Rows, grow, write
from .scores import Coefficients

Admission = Literal["all", "novelty"]
Eviction = Literal["none", "oldest", "smallest"]

ADMISSIONS: dict[str, str] = {
    "all": "every query becomes an entry",
    "novelty": "a query becomes an entry if its nearest key is farther than novelty_threshold (τ)",
}
EVICTIONS: dict[str, str] = {
    "none": "at the cap nothing more is admitted",
    "oldest": "at the cap the entries of the earliest steps give way (sliding window)",
    "smallest": "at the cap the entries of least effective value (and weight) give way",
}


@config(frozen=True, config=ConfigDict(extra="forbid"))
class MemoryConfig:
    """How a growing layer's database is bounded."""

    # Most entries at any moment, initial ones included; None: no cap.
    capacity: Annotated[int, Field(gt=0)] | None = None
    # Most bytes of a layer's entries in memory; older ones are kept on disk and read from there. None: all in
    # memory.
    budget_bytes: Annotated[int, Field(gt=0)] | None = None
    # Slots allocated at the start; further blocks follow as entries arrive.
    initial_capacity: Annotated[int, Field(gt=0)] = 1024
    # Which queries become entries.
    admission: Admission = "all"
    # τ: Euclidean distance to the nearest key above which a query is novel (admission: novelty).
    novelty_threshold: Annotated[float, Field(ge=0)] | None = None
    # Which entries give way at the cap.
    eviction: Eviction = "none"
    # ε: entries whose effective value norm and weight stay below it from now on are removed; 0: never.
    prune_epsilon: Annotated[float, Field(ge=0)] = 0.0
    # Steps between two prunings.
    prune_every: Annotated[int, Field(gt=0)] = 100

    @model_validator(mode="after")
    def _check(self) -> "MemoryConfig":
        if (self.admission == "novelty") != (self.novelty_threshold is not None):
            raise ValueError("admission 'novelty' and novelty_threshold belong together: set both or neither")
        if self.eviction != "none" and self.capacity is None:
            raise ValueError(f"eviction '{self.eviction}' acts at a cap: set capacity too")
        return self


@dataclass(frozen=True)
class Occupancy:
    """What the host knows of a database's entries without asking the device."""

    least: int  # at least so many entries
    most: int  # at most so many entries
    holes: bool = False  # whether empty slots may lie below live ones

    @classmethod
    def of(cls, database: Database, *, holes: bool) -> "Occupancy":
        """Asks the device (waits for it)."""
        entries = int(database.entries)
        return cls(entries, entries, holes)


def admit(policy: MemoryConfig, nearest_square: jax.Array | None, batch: int) -> jax.Array:
    """[B] bool: the queries that should become entries, before any cap.

    Args:
      policy: the admission to apply.
      nearest_square: [B] squared distance to the nearest key before the batch (novelty), else None.
      batch: B.
    """
    if policy.admission == "all":
        return jnp.ones(batch, bool)
    assert nearest_square is not None
    assert policy.novelty_threshold is not None
    return jnp.sqrt(nearest_square) > policy.novelty_threshold


def append(
    policy: MemoryConfig,
    database: Database,
    occupancy: Occupancy,
    table: CoefficientTable | None,
    rows: Rows,
    admitted: jax.Array,
    step: int,
) -> tuple[Database, Occupancy, jax.Array]:
    """Writes a batch's admitted rows, growing or evicting as the policy says. The database is consumed.

    Args:
      policy: the cap and eviction.
      database: the database.
      occupancy: what the host knows of it.
      table: present coefficients by creation step (None: all 1), for `smallest` to weigh entries by.
      rows: B candidate rows.
      admitted: [B] bool: the rows that admission let through.
      step: the creation step, ≥ 1.

    Returns:
      The database, its occupancy, and what changed: [5] int32 in the order of COUNTERS.
    """
    batch = int(admitted.shape[0])
    database, occupancy = _make_room(policy, database, occupancy, batch)
    limit = _limit(policy, database)
    fits = occupancy.most + batch <= limit
    if not occupancy.holes and (fits or policy.eviction == "none"):
        placement = _append_slots(admitted, database.entries, limit, database.capacity)
        first = _block_of(database, occupancy.least)
    else:
        placement = _replace_slots(policy.eviction, limit, database, table, admitted)
        first = 0
    slots, new, evicted = placement
    database = write(database, slots, rows, jnp.int32(step), first)
    entries, counters, change = _count(database.entries, database.counters, admitted, new, evicted)
    most = max(min(occupancy.most + batch, limit), occupancy.most)
    least = occupancy.least
    if policy.admission == "all":
        least = max(min(least + batch, limit), least)
    database = replace(database, entries=entries, counters=counters)
    return database, Occupancy(least, most, occupancy.holes), change


def prune(
    database: Database,
    occupancy: Occupancy,
    bounds: CoefficientTable | None,
    epsilon: float,
    step: int,
) -> tuple[Database, Occupancy, int, float]:
    """Removes entries whose effective value norm and weight are below ε for good (App. D.1).

    Args:
      database: consumed.
      occupancy: what the host knows of it.
      bounds: upper bounds on the coefficients from now on, by creation step (None: all 1).
      epsilon: ε.
      step: the present step.

    Returns:
      The database, its occupancy, how many entries went, and Σ of their effective value norms: for kernels
      with φ ≤ 1 a bound on the change of the layer's output, in its units.
    """
    blocks, pruned, removed = _prune_blocks(
        database.blocks,
        bounds,
        jnp.asarray(epsilon, database.blocks[0].keys.dtype),
        jnp.int32(step),
    )
    counters = database.counters.at[COUNTERS.index("pruned")].add(pruned)
    database = replace(database, blocks=blocks, entries=database.entries - pruned, counters=counters)
    holes = occupancy.holes or int(pruned) > 0
    return database, Occupancy.of(database, holes=holes), int(pruned), float(removed)


def _make_room(
    policy: MemoryConfig, database: Database, occupancy: Occupancy, batch: int
) -> tuple[Database, Occupancy]:
    while occupancy.most + batch > _limit(policy, database):
        if occupancy.least != occupancy.most:
            occupancy = Occupancy.of(database, holes=occupancy.holes)
            continue
        if policy.capacity is not None and database.capacity >= policy.capacity:
            break
        database = grow(database, policy.capacity)
    return database, occupancy


def _limit(policy: MemoryConfig, database: Database) -> int:
    """Most entries without growing; a loaded database may have more slots than its new cap allows."""
    return database.capacity if policy.capacity is None else min(database.capacity, policy.capacity)


def _block_of(database: Database, slot: int) -> int:
    """The block that holds a slot; the last one for a slot past the end."""
    for number, block in enumerate(database.blocks):
        if slot < block.slots:
            return number
        slot -= block.slots
    return len(database.blocks) - 1


@partial(jax.jit, static_argnums=(2, 3))
def _append_slots(
    admitted: jax.Array, entries: jax.Array, limit: int, capacity: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    slots = entries + jnp.cumsum(admitted.astype(jnp.int32)) - 1
    fits = admitted & (slots < limit)
    return jnp.where(fits, slots, capacity), jnp.sum(fits).astype(jnp.int32), jnp.int32(0)


@partial(jax.jit, static_argnums=(0, 1))
def _replace_slots(
    eviction: Eviction,
    limit: int,
    database: Database,
    table: CoefficientTable | None,
    admitted: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Slots for the admitted rows, first come first served: empty ones, then those the policy evicts."""
    blocks, ordered = database.blocks, database.shards.in_slot_order
    created = jnp.concatenate([ordered(block.created) for block in blocks])
    capacity = created.shape[0]
    empty = created == EMPTY
    if limit < capacity:
        empty = empty & (jnp.cumsum(empty) <= limit - database.entries)
    replaceable = (created > INITIAL) & (eviction != "none")
    worth = created
    last: float = np.iinfo(np.int32).max
    if eviction == "smallest":
        worth = jnp.concatenate([ordered(effective_size(b, block_coefficients(b, table))) for b in blocks])
        last = jnp.inf
    order = jnp.where(empty, -1, jnp.where(replaceable, worth, last))
    # top_k prefers the lower slot among equals, so within one step the earlier slot gives way first.
    candidates = jax.lax.top_k(-order, min(admitted.shape[0], capacity))[1].astype(jnp.int32)
    free = empty[candidates]
    usable = free | replaceable[candidates]
    rank = jnp.cumsum(admitted.astype(jnp.int32)) - 1
    take = jnp.minimum(rank, len(candidates) - 1)
    fits = admitted & (rank < len(candidates)) & usable[take]
    slots = jnp.where(fits, candidates[take], capacity)
    evicted = jnp.sum(fits & ~free[take]).astype(jnp.int32)
    return slots, jnp.sum(fits).astype(jnp.int32), evicted


def effective_size(block: Block, coefficients: Coefficients) -> jax.Array:
    """[n] the larger of effective value norm and effective weight."""
    worth = jnp.abs(coefficients.values) * block.value_norms
    if block.weights is None or coefficients.weights is None:
        return worth
    return jnp.maximum(worth, jnp.abs(coefficients.weights * block.weights))


@partial(jax.jit, donate_argnums=(0, 1))
def _count(
    entries: jax.Array,
    counters: jax.Array,
    admitted: jax.Array,
    new: jax.Array,
    evicted: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    rejected = admitted.shape[0] - new
    change = jnp.stack([new, 0 * new, rejected, 0 * new, evicted]).astype(jnp.int32)
    return entries + new - evicted, counters + change, change


@partial(jax.jit, donate_argnums=0)
def _prune_blocks(
    blocks: tuple[Block, ...],
    bounds: CoefficientTable | None,
    epsilon: jax.Array,
    step: jax.Array,
) -> tuple[tuple[Block, ...], jax.Array, jax.Array]:
    kept, pruned, removed = [], jnp.int32(0), jnp.zeros((), epsilon.dtype)
    for block in blocks:
        bound = block_coefficients(block, bounds)
        # An entry goes only if value and weight are both negligible.
        gone = (block.created > INITIAL) & (effective_size(block, bound) < epsilon)
        pruned = pruned + jnp.sum(gone).astype(jnp.int32)
        removed = removed + jnp.sum(jnp.where(gone, bound.values * block.value_norms, 0))
        kept.append(
            replace(
                block,
                created=jnp.where(gone, EMPTY, block.created),
                changed=jnp.where(gone, step, block.changed),
            )
        )
    return tuple(kept), pruned, removed
