"""Folding: two entries become one that takes up both values.

At a cap (`merge_nearest`) the pairs are folded that change the function least. In the kernel's feature space
moving an entry's value v from its own key k to the key k' changes the function by ‖v‖·‖φ(k) − φ(k')‖, that is
‖v‖·√(2 − 2ρ) in normalised features; with the weight w of normalised kernels, √(‖v‖² + w²) takes the
place of ‖v‖. Entries of equal keys fold without any change (Remark B.1).
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .admission import LEAST_COEFFICIENT
from .coefficients import CoefficientTable, block_coefficients
from .database import COUNTERS, EMPTY, INITIAL, Database, Rows, emptied, take
from .eviction import effective_size
from .kernels import Kernel
from .merging import Effective, merge
from .neighbours import nearest_features

_ALTERNATIVES = 4  # targets tried per source: its nearest may itself be folded away
_CHUNK = 1024  # entries of equal keys folded in one call


class _Pairs(NamedTuple):
    """What may be folded into what: M entries, then the B rows offered, each with K targets."""

    sources: jax.Array  # [M] int32 slots; the entries tried
    targets: jax.Array  # [M + B, K] int32 slots; −1: none
    costs: jax.Array  # [M + B, K] the change of the function; +inf where it is not possible
    additions: Effective  # [M + B, …] what the target would take up


def fold_for_room(
    candidates: int,
    kernel: Kernel,
    limit: int,
    database: Database,
    table: CoefficientTable | None,
    rows: Rows,
    admitted: jax.Array,
    step: jax.Array,
) -> tuple[Database, jax.Array, jax.Array]:
    """Folds, one by one, the pair that changes the function least, until a batch has room.

    A pair is two entries, or an offered row and an entry. The database is consumed.

    Args:
      candidates: how many entries, those of least worth, are tried as the first of a pair.
      kernel: the layer's kernel.
      limit: most entries.
      database: the memory.
      table: present coefficients by creation step; None: all 1.
      rows: B offered rows.
      admitted: [B] bool: the rows that are to become entries.
      step: [] int32 the present step.

    Returns:
      The database, [B] bool the rows that entries took up, and [] int32 how many entries were folded away.
    """
    batch = admitted.shape[0]
    tried = min(max(candidates, 2 * batch), database.capacity)
    into, freed, additions = _choose(tried, kernel, limit, database, table, rows, admitted)
    database = _clear(merge(database, table, into, additions, step), freed, step)
    return database, into[-batch:] >= 0, jnp.sum(freed >= 0).astype(jnp.int32)


def fold_equal(
    database: Database, table: CoefficientTable | None, step: int
) -> tuple[Database, list[tuple[int, int]]]:
    """Folds entries whose keys are equal, number by number, into the one that was created first.

    Args:
      database: consumed.
      table: present coefficients by creation step; None: all 1.
      step: the present step.

    Returns:
      The database, and for each entry that went its creation step and that of the entry that took it up.
    """
    pairs = _equal_keys(database)
    created = database.column("created")
    for begin in range(0, len(pairs), _CHUNK):
        chunk = np.full((_CHUNK, 2), -1, np.int32)
        chunk[: len(pairs[begin : begin + _CHUNK])] = pairs[begin : begin + _CHUNK]
        gone, kept = jnp.asarray(chunk[:, 0]), jnp.asarray(chunk[:, 1])
        now = jnp.int32(step)
        database = _clear(merge(database, table, kept, _effective(database, table, gone), now), gone, now)
    counters = database.counters.at[COUNTERS.index("pruned")].add(len(pairs))
    database = replace(database, entries=database.entries - len(pairs), counters=counters)
    return database, [(int(created[gone]), int(created[kept])) for gone, kept in pairs]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _choose(
    tried: int,
    kernel: Kernel,
    limit: int,
    database: Database,
    table: CoefficientTable | None,
    rows: Rows,
    admitted: jax.Array,
) -> tuple[jax.Array, jax.Array, Effective]:
    """Per possible source the slot that takes it up (−1: none), the slots freed, and what is taken up."""
    pairs = _pairs(tried, kernel, database, table, rows, admitted)
    need = jnp.sum(admitted) - jnp.maximum(limit - database.entries, 0)

    def fold(
        number: jax.Array, state: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        into, gone, host = state  # [M + B] slots; [capacity + 1] bool: folded away; has taken up another
        open_sources = jnp.concatenate([~(gone | host)[pairs.sources], into[tried:] < 0])
        costs = jnp.where(open_sources[:, None] & ~gone[pairs.targets], pairs.costs, jnp.inf)
        source, alternative = jnp.unravel_index(jnp.argmin(costs), costs.shape)
        possible = (number < need) & jnp.isfinite(costs[source, alternative])
        target = pairs.targets[source, alternative]
        freed = jnp.where(source < tried, pairs.sources[jnp.minimum(source, tried - 1)], database.capacity)
        nothing = database.capacity
        return (
            into.at[jnp.where(possible, source, into.shape[0])].set(target, mode="drop"),
            gone.at[jnp.where(possible, freed, nothing)].set(True).at[nothing].set(False),
            host.at[jnp.where(possible, target, nothing)].set(True).at[nothing].set(False),
        )

    none = jnp.zeros(database.capacity + 1, bool)
    start = jnp.full(pairs.targets.shape[0], -1, jnp.int32), none, none
    into, _, _ = jax.lax.fori_loop(0, admitted.shape[0], fold, start)
    freed = jnp.where(into[:tried] >= 0, pairs.sources, -1)
    return into, freed, pairs.additions


def _pairs(
    tried: int,
    kernel: Kernel,
    database: Database,
    table: CoefficientTable | None,
    rows: Rows,
    admitted: jax.Array,
) -> _Pairs:
    blocks, shards = database.blocks, database.shards
    coefficients = [block_coefficients(block, table) for block in blocks]
    sizes = jnp.concatenate(
        [
            shards.in_slot_order(jnp.where(block.created > INITIAL, effective_size(block, c), jnp.inf))
            for block, c in zip(blocks, coefficients, strict=True)
        ]
    )
    smallest, sources = jax.lax.top_k(-sizes, tried)
    sources = sources.astype(jnp.int32)
    found = take(database, sources)
    of_entries = _effective(database, table, sources)
    keys = jnp.concatenate([found.keys, rows.keys])
    eligible = tuple(
        block.live & (jnp.abs(c.values) >= LEAST_COEFFICIENT)
        for block, c in zip(blocks, coefficients, strict=True)
    )
    closest = nearest_features(kernel, blocks, keys, count=_ALTERNATIVES, eligible=eligible, shards=shards)
    offered = Effective(rows.values, rows.weights)
    additions: Effective = jax.tree.map(lambda *parts: jnp.concatenate(parts), of_entries, offered)
    square = jnp.sum(additions.values**2, axis=1)
    if additions.weights is not None:
        square = square + additions.weights**2
    own = jnp.concatenate([sources, jnp.full(admitted.shape, -1, jnp.int32)])
    possible = jnp.concatenate([jnp.isfinite(smallest), admitted])
    possible = possible[:, None] & (closest.slots >= 0) & (closest.slots != own[:, None])
    costs = jnp.where(possible, jnp.sqrt(square[:, None] * jnp.maximum(-closest.scores, 0)), jnp.inf)
    return _Pairs(sources, closest.slots, costs, additions)


def _effective(database: Database, table: CoefficientTable | None, slots: jax.Array) -> Effective:
    """Values and weights of the entries in given slots as they act now; zeros for slot −1."""
    found = take(database, slots)
    if table is None:
        return Effective(found.values, found.weights)
    weights = None if found.weights is None else found.weights * table.weights[found.created]
    return Effective(found.values * table.values[found.created][:, None], weights)


@partial(jax.jit, donate_argnums=0)
def _clear(database: Database, slots: jax.Array, step: jax.Array) -> Database:
    """Empties slots; −1 is none."""
    blocks, begin, gone = [], 0, jnp.zeros(database.capacity + 1, bool)
    gone = gone.at[jnp.where(slots >= 0, slots, database.capacity)].set(True)
    for block in database.blocks:
        here = database.shards.from_slot_order(gone[begin : begin + block.slots])
        begin += block.slots
        blocks.append(emptied(block, here, step))
    return replace(database, blocks=tuple(blocks))


def _equal_keys(database: Database) -> np.ndarray:
    """[P, 2] the slots of entries with equal keys: the later one, and the first of its like."""
    created = database.column("created")
    live = np.flatnonzero(created != EMPTY)
    hashes = np.asarray(_key_hashes(database))[:, live]
    order = np.lexsort((live, created[live], *hashes))
    alike = (np.diff(hashes[:, order]) == 0).all(axis=0)
    first = np.arange(len(order))
    for place in np.flatnonzero(alike):
        first[place + 1] = first[place]
    pairs = np.stack([live[order], live[order[first]]], axis=1)[first != np.arange(len(order))]
    equal = np.zeros(len(pairs), bool)
    for begin in range(0, len(pairs), _CHUNK):
        ours, theirs = (
            take(database, jnp.asarray(s, jnp.int32)).keys for s in pairs[begin : begin + _CHUNK].T
        )
        equal[begin : begin + _CHUNK] = np.asarray(jnp.all(ours == theirs, axis=1))
    found: np.ndarray = pairs[equal]
    return found


@jax.jit
def _key_hashes(database: Database) -> jax.Array:
    """[2, capacity] uint32: equal for equal keys, and for few others."""

    def of(keys: jax.Array) -> jax.Array:
        bits = jax.lax.bitcast_convert_type(keys.astype(jnp.float32) + 0, jnp.uint32)  # −0 + 0 is +0
        odd = jax.random.bits(jax.random.key(0), (2, keys.shape[1]), jnp.uint32) | 1
        return jnp.stack([jnp.sum(bits * factors, axis=1, dtype=jnp.uint32) for factors in odd])

    parts = [of(block.keys) for block in database.blocks]
    return jnp.concatenate(
        [jnp.stack([database.shards.in_slot_order(row) for row in part]) for part in parts], axis=1
    )
