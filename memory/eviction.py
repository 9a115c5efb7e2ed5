"""Eviction: the slots that admitted rows get where some are empty or entries must give way.

Every policy gives each entry a worth; at the cap those of least worth give way. Entries of the initial
function never do.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .coefficients import CoefficientTable, block_coefficients
from .database import EMPTY, INITIAL, Block, Database, Rows
from .policy import Eviction
from .scores import Coefficients

_MOST = np.iinfo(np.int32).max


class Placement(NamedTuple):
    """Where B rows are written."""

    slots: jax.Array  # [B] int32; the capacity for a row that is not written
    evicted: jax.Array  # [] int32 how many of the slots held an entry


@partial(jax.jit, static_argnums=(0, 1))
def place(
    eviction: Eviction,
    limit: int,
    database: Database,
    table: CoefficientTable | None,
    rows: Rows,
    admitted: jax.Array,
    step: jax.Array,
    seed: int,
) -> Placement:
    """Slots for the admitted rows: empty ones first, then those of the entries that give way.

    Args:
      eviction: the policy.
      limit: most entries.
      database: the memory, which is only read.
      table: present coefficients by creation step (None: all 1), for `smallest`.
      rows: the rows to place; `reservoir` looks at them.
      admitted: [B] bool.
      step: [] int32 the rows' creation step.
      seed: of the draws of `random` and `reservoir`.
    """
    created = _in_order(database, lambda block: block.created)
    capacity = created.shape[0]
    empty = created == EMPTY
    if limit < capacity:
        empty = empty & (jnp.cumsum(empty) <= limit - database.entries)
    replaceable = (created > INITIAL) & (eviction not in ("none", "merge_nearest"))
    worth = _worth_of_slots(eviction, database, table, created, step, seed)
    last = jnp.inf if jnp.issubdtype(worth.dtype, jnp.floating) else _MOST
    order = jnp.where(empty, -1, jnp.where(replaceable, worth, last))
    # top_k prefers the lower slot among equals, so within one step the earlier slot gives way first.
    candidates = jax.lax.top_k(-order, min(admitted.shape[0], capacity))[1].astype(jnp.int32)
    free = empty[candidates]
    usable = free | replaceable[candidates]
    if eviction == "reservoir":
        own = _priorities(jnp.full_like(rows.origin, step), rows.origin, _fingerprint(rows.keys), seed)
        # The highest priorities of old and new together stay: the highest new one meets the lowest old one.
        rank = _ranks(jnp.where(admitted, own, -1))
        take = jnp.minimum(rank, len(candidates) - 1)
        fits = admitted & usable[take] & (free[take] | (own > order[candidates][take]))
    else:
        rank = jnp.cumsum(admitted.astype(jnp.int32)) - 1  # first come, first served
        take = jnp.minimum(rank, len(candidates) - 1)
        fits = admitted & usable[take]
    fits = fits & (rank < len(candidates))
    place = jnp.where(fits, jnp.cumsum(fits) - 1, len(candidates))
    slots = candidates.at[place].get(mode="fill", fill_value=capacity)
    evicted = fits & ~free.at[place].get(mode="fill", fill_value=True)
    return Placement(slots, jnp.sum(evicted).astype(jnp.int32))


def effective_size(block: Block, coefficients: Coefficients) -> jax.Array:
    """[n] the larger of effective value norm and effective weight."""
    size = jnp.abs(coefficients.values) * block.value_norms
    if block.weights is None or coefficients.weights is None:
        return size
    return jnp.maximum(size, jnp.abs(coefficients.weights * block.weights))


def _worth_of_slots(
    eviction: Eviction,
    database: Database,
    table: CoefficientTable | None,
    created: jax.Array,
    step: jax.Array,
    seed: int,
) -> jax.Array:
    """[capacity], ≥ 0."""
    if eviction == "smallest":
        return _in_order(database, lambda block: effective_size(block, block_coefficients(block, table)))
    if eviction == "random":
        return _hash(jnp.arange(created.shape[0]), jnp.broadcast_to(step, created.shape), seed)
    if eviction == "reservoir":
        origin = _in_order(database, lambda block: block.origin)
        return _priorities(created, origin, _in_order(database, lambda b: _fingerprint(b.keys)), seed)
    return created


def _in_order(database: Database, column: Callable[[Block], jax.Array]) -> jax.Array:
    return jnp.concatenate([database.shards.in_slot_order(column(block)) for block in database.blocks])


def _priorities(created: jax.Array, origin: jax.Array, fingerprint: jax.Array, seed: int) -> jax.Array:
    """A random number per entry that never changes: the entries of highest priority are a uniform sample."""
    return _hash(created, _hash(origin, fingerprint, seed), seed)


def _fingerprint(keys: jax.Array) -> jax.Array:
    """[n] int32 of the keys' first numbers, which tells the entries of one example (its tokens) apart."""
    bits = jax.lax.bitcast_convert_type(keys[:, :4].astype(jnp.float32), jnp.int32)
    return jnp.sum(bits * jnp.arange(1, 2 * bits.shape[1], 2), axis=1)


def _ranks(priorities: jax.Array) -> jax.Array:
    """[B] the place of each in descending order."""
    order = jnp.argsort(-priorities)
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))


def _hash(first: jax.Array, second: jax.Array, seed: int) -> jax.Array:
    """Pseudo-random int32 ≥ 0 from two integers and the seed (the finaliser of MurmurHash3, three times)."""
    mixed = jnp.full(first.shape, seed, jnp.uint32)
    for word in (first, second):
        mixed = _mix(mixed * jnp.uint32(0x9E3779B9) ^ word.astype(jnp.uint32))
    return (_mix(mixed) >> 1).astype(jnp.int32)


def _mix(word: jax.Array) -> jax.Array:
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
