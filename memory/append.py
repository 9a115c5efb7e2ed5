"""Appending a batch: the rows that were admitted find slots, growing or evicting as the policy says.

All decisions for a batch are taken on the device. The host knows only bounds on the number of entries and
asks for the exact one when a decision about capacity depends on it (`Occupancy`).
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

from .admission import Decision
from .coefficients import CoefficientTable
from .database import Database, Rows, grow, write
from .eviction import Placement, place
from .folding import fold_for_room
from .kernels import Kernel
from .merging import Effective, combined_rows, merge
from .policy import MemoryConfig


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


def append(
    policy: MemoryConfig,
    kernel: Kernel,
    database: Database,
    occupancy: Occupancy,
    table: CoefficientTable | None,
    rows: Rows,
    decision: Decision,
    step: int,
    *,
    seed: int = 0,
) -> tuple[Database, Occupancy, jax.Array]:
    """Writes a batch's admitted rows and merges those that are to be merged. The database is consumed.

    Args:
      policy: the cap and eviction.
      kernel: the layer's kernel; `merge_nearest` asks it which pair of entries is closest.
      database: the database.
      occupancy: what the host knows of it.
      table: present coefficients by creation step (None: all 1), to merge and to weigh entries by.
      rows: B offered rows.
      decision: what admission made of them.
      step: the creation step, ≥ 1.
      seed: fixes what `random` and `reservoir` draw.

    Returns:
      The database, its occupancy, and what changed: [5] int32 in the order of COUNTERS. Rows that another
      took up count as merged; an entry folded into another to make room counts as evicted.
    """
    admitted, target = decision.admitted, decision.target
    batch, now = int(admitted.shape[0]), jnp.int32(step)
    database, occupancy = _make_room(policy, database, occupancy, batch)
    limit = _limit(policy, database)
    fits = occupancy.most + batch <= limit
    offered = rows if target is None else combined_rows(rows, target)
    folded, freed = jnp.zeros_like(admitted), jnp.int32(0)
    if policy.eviction == "merge_nearest" and not fits:
        database, folded, freed = fold_for_room(
            policy.merge_candidates, kernel, limit, database, table, offered, admitted, now
        )
        admitted, database = admitted & ~folded, replace(database, entries=database.entries - freed)
    if not occupancy.holes and (fits or policy.eviction == "none"):
        placement = _append_slots(admitted, database.entries, limit, database.capacity)
        first = _block_of(database, occupancy.least)
    else:
        placement = place(policy.eviction, limit, database, table, offered, admitted, now, seed)
        first = 0
    database = write(database, placement.slots, offered, now, first)
    if target is not None:
        database = merge(database, table, target, Effective(rows.values, rows.weights), now)
    entries, counters, change = _count(
        database.entries,
        database.counters,
        database.capacity,
        placement,
        target,
        folded,
        freed,
        decision.offered,
    )
    database = replace(database, entries=entries, counters=counters)
    most = max(min(occupancy.most + batch, limit), occupancy.most)
    least = occupancy.least
    if policy.admission == "all" and decision.offered is None:
        least = max(min(least + batch, limit), least)
    return database, Occupancy(least, most, occupancy.holes), change


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
def _append_slots(admitted: jax.Array, entries: jax.Array, limit: int, capacity: int) -> Placement:
    slots = entries + jnp.cumsum(admitted.astype(jnp.int32)) - 1
    fits = admitted & (slots < limit)
    return Placement(jnp.where(fits, slots, capacity), jnp.int32(0))


@partial(jax.jit, static_argnums=2, donate_argnums=(0, 1))
def _count(
    entries: jax.Array,
    counters: jax.Array,
    capacity: int,
    placement: Placement,
    target: jax.Array | None,
    folded: jax.Array,
    freed: jax.Array,
    offered: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    written = placement.slots < capacity
    taken_up = folded
    if target is not None:
        host = jnp.maximum(-2 - target, 0)
        taken_up = folded | (target >= 0) | (target <= -2) & (written | folded)[host]
    new, merged = (jnp.sum(each).astype(jnp.int32) for each in (written, taken_up))
    judged = written.shape[0] if offered is None else jnp.sum(offered).astype(jnp.int32)
    rejected = judged - new - merged
    change = jnp.stack([new, merged, rejected, 0 * new, placement.evicted + freed]).astype(jnp.int32)
    return entries + new - placement.evicted, counters + change, change
