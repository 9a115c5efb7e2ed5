"""What admission, caps and pruning do to a memory with a cold part.

Entries on disk never change, so a policy can only let them go. At a cap the oldest can give way, which are
the ones on disk; weighing all of them at every step (`smallest`, …), or adding to one of them (`quantize`),
would mean to rewrite chunks, and is refused when the learner is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError
from .append import Occupancy
from .coefficients import CoefficientTable, block_coefficients
from .cold import ColdChunk, ColdPart
from .cold_stream import WEIGHING, as_block, stream
from .database import COUNTERS, EMPTY, INITIAL, Block, Database
from .eviction import effective_size
from .layout import Layout
from .policy import MemoryConfig
from .sharding import ONE_DEVICE, Shards
from .spill import Budget, spill

ADMISSIONS = ("all", "novelty")  # those that need no more than the distance to the nearest key
EVICTIONS = ("none", "oldest")

Write = Callable[[Layout, dict[str, np.ndarray]], ColdChunk]


def budget_of(
    policy: MemoryConfig,
    key_features: int,
    value_features: int,
    *,
    weighted: bool,
    dtype: Any,
    initial_entries: int = 0,
    shards: Shards = ONE_DEVICE,
) -> Budget | None:
    """How a layer's byte budget is divided; None without one, or where the cap never lets it be exceeded.

    Args:
      policy: how the layer's memory is bounded.
      key_features: D.
      value_features: F.
      weighted: whether entries carry weights.
      dtype: of keys, values, weights and norms.
      initial_entries: entries of the initial function.
      shards: the devices that the rows are spread over.

    Raises:
      ConfigError: the budget is too small, or another policy does not work on entries that are on disk.
    """
    if policy.budget_bytes is None:
        return None
    budget = Budget.of(
        policy.budget_bytes, key_features, value_features, weighted=weighted, dtype=dtype, shards=shards
    )
    if policy.capacity is not None and policy.capacity <= budget.hot_slots:
        return None
    for name, found, known in (
        ("admission", policy.admission, ADMISSIONS),
        ("eviction", policy.eviction, EVICTIONS),
    ):
        if found not in known:
            raise ConfigError(
                f"memory.{name}: expected {' or '.join(known)} beside budget_bytes, as entries on disk are "
                f"never rewritten; found {found!r}: choose one of those, or leave budget_bytes out"
            )
    if policy.fold_every is not None:
        raise ConfigError(
            "memory.fold_every: expected none beside budget_bytes, as entries on disk are never rewritten; "
            f"found {policy.fold_every}: leave one of them out"
        )
    if initial_entries > budget.hot_slots:
        raise ConfigError(
            f"memory.budget_bytes: expected room for the {initial_entries} initial entries; found "
            f"{budget.hot_slots}: raise it, or lower initial_entries"
        )
    return budget


def hot_policy(policy: MemoryConfig, budget: Budget | None) -> MemoryConfig:
    """The policy of the hot part alone: it never outgrows its slots, and what the cap asks is done before."""
    return policy if budget is None else replace(policy, capacity=budget.hot_slots, eviction="none")


@dataclass(frozen=True)
class Room:
    """A memory with room for a batch. Its `database` counts those that gave way."""

    database: Database
    occupancy: Occupancy
    cold: ColdPart
    admitted: jax.Array  # [B] bool: the rows that the cap lets in
    evicted: int  # entries that gave way


def make_room(
    policy: MemoryConfig,
    budget: Budget,
    database: Database,
    occupancy: Occupancy,
    cold: ColdPart,
    admitted: jax.Array,
    write: Write,
    step: int,
) -> Room:
    """Spills and evicts until a batch can be appended to the hot part within cap and budget.

    Args:
      policy: the cap and eviction.
      budget: the slots of the hot part.
      database: the hot part; its bookkeeping columns are consumed.
      occupancy: what the host knows of it.
      cold: the cold part.
      admitted: [B] bool: the rows that admission let through.
      write: writes a chunk.
      step: the present step.

    Raises:
      ConfigError: the batch is larger than the hot part.
      StorageError: the file system refused.
    """
    batch = len(admitted)
    if batch > budget.hot_slots:
        raise ConfigError(
            f"memory.budget_bytes: expected room for the {batch} entries of a batch; found "
            f"{budget.hot_slots}: raise it, or lower batch_size"
        )
    room = Room(database, occupancy, cold, admitted, 0)
    if policy.capacity is not None:
        room = _within_cap(policy, policy.capacity, room, write, step)
    while room.occupancy.most + batch > budget.hot_slots:
        if room.occupancy.least != room.occupancy.most:
            room = replace(room, occupancy=_exact(room))
            continue
        room = _spilled(room, write, step)
    return room


def prune_cold(
    cold: ColdPart, bounds: CoefficientTable | None, epsilon: float, write: Write
) -> tuple[ColdPart, int, float]:
    """Removes entries on disk whose effective value norm and weight are below ε for good (App. D.1).

    Args:
      cold: the cold part.
      bounds: upper bounds on the coefficients from now on, by creation step (None: all 1).
      epsilon: ε.
      write: writes a chunk.

    Returns:
      The cold part, how many entries went, and Σ of their effective value norms (see `pruning.prune`).
    """
    live, pruned, removed = list(cold.live), 0, 0.0
    limit = jnp.asarray(epsilon, cold.layout.columns["keys"].dtype)
    for number, columns in stream(cold, WEIGHING):
        gone, norms = _negligible(as_block(cold.layout, columns, ONE_DEVICE), bounds, limit)
        live[number] = live[number] & ~np.asarray(gone)
        pruned += int(np.count_nonzero(gone))
        removed += float(norms)
    return condensed(cold.with_live(live), write), pruned, removed


def condensed(cold: ColdPart, write: Write) -> ColdPart:
    """The same entries, with neighbouring chunks joined whose live rows fit one."""
    rows = cold.layout.rows_per_chunk
    counts = [int(np.count_nonzero(live)) for live in cold.live]
    groups: list[list[int]] = []
    room = 0
    for number, entries in enumerate(counts):
        if entries > room:
            groups.append([])
            room = rows
        groups[-1].append(number)
        room -= entries
    result = ColdPart(cold.layout, (), ())
    for group in groups:
        if len(group) == 1:
            result = result.added(cold.chunks[group[0]], cold.live[group[0]])
        else:
            result = result.added(*_joined(cold, group, write))
    return result


def _within_cap(policy: MemoryConfig, cap: int, room: Room, write: Write, step: int) -> Room:
    batch = len(room.admitted)
    if room.occupancy.most + room.cold.entries + batch <= cap:
        return room
    room = replace(room, occupancy=_exact(room))
    wanted = int(jnp.sum(room.admitted))
    excess = room.occupancy.most + room.cold.entries + wanted - cap
    if excess > 0 and policy.eviction == "oldest":
        room, excess = _evicted(room, excess, write, step)
    if excess > 0:
        admitted = room.admitted & (jnp.cumsum(room.admitted) <= wanted - excess)
        room = replace(room, admitted=admitted)
    return room


def _evicted(room: Room, excess: int, write: Write, step: int) -> tuple[Room, int]:
    """Lets the oldest entries go, hot ones by way of the disk; and how many were wanted in vain."""
    while True:
        cold, gone = _without_oldest(room.cold, excess)
        counters = room.database.counters.at[COUNTERS.index("evicted")].add(gone)
        room = replace(
            room,
            database=replace(room.database, counters=counters),
            cold=condensed(cold, write),
            evicted=room.evicted + gone,
        )
        excess -= gone
        if excess == 0 or room.occupancy.most == 0:
            return room, excess
        room = _spilled(room, write, step)


def _without_oldest(cold: ColdPart, most: int) -> tuple[ColdPart, int]:
    live, gone = list(cold.live), 0
    for number, chunk in enumerate(cold.chunks):
        if gone == most:
            break
        created = chunk.read(cold.layout, ["created"])["created"]
        chosen = np.flatnonzero(live[number] & (created > INITIAL))[: most - gone]
        live[number] = live[number].copy()
        live[number][chosen] = False
        gone += len(chosen)
    return cold.with_live(live), gone


def _spilled(room: Room, write: Write, step: int) -> Room:
    database, occupancy, cold = spill(room.database, room.occupancy, room.cold, write, step)
    return replace(room, database=database, occupancy=occupancy, cold=cold)


def _exact(room: Room) -> Occupancy:
    return Occupancy.of(room.database, holes=room.occupancy.holes)


def _joined(cold: ColdPart, group: list[int], write: Write) -> tuple[ColdChunk, np.ndarray]:
    """The live rows of some chunks as one chunk."""
    columns = {}
    rows = cold.layout.rows_per_chunk
    for name in cold.chunks[0].files:
        parts = [cold.chunks[n].read(cold.layout, [name])[name][cold.live[n]] for n in group]
        joined = np.concatenate(parts)
        columns[name] = np.full((rows, *joined.shape[1:]), EMPTY if name == "created" else 0, joined.dtype)
        columns[name][: len(joined)] = joined
    return write(cold.layout, columns), columns["created"] != EMPTY


@jax.jit
def _negligible(
    block: Block, bounds: CoefficientTable | None, epsilon: jax.Array
) -> tuple[jax.Array, jax.Array]:
    bound = block_coefficients(block, bounds)
    gone = (block.created > INITIAL) & (effective_size(block, bound) < epsilon)
    return gone, jnp.sum(jnp.where(gone, bound.values * block.value_norms, 0))
