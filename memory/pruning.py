"""Pruning: entries go whose effective value and weight are negligible from now on (App. D.1).

How much the layer's output can change is bounded for queries of ‖q‖ ≤ √D, which RMS-normalised ones are. With
cᵢ an entry's coefficient, S the entries that go:

- summed kernels: |φ(k, q)| ≤ √(φ(k, k)·φ(q, q)), hence Σ_S |cᵢ|·‖vᵢ‖·√(φ(kᵢ, kᵢ)·φ(q, q)), at any later step
  too if the coefficients are upper bounds of their future;
- normalised kernels: y − y′ = Σ_S eᵢ·(ṽᵢ − wᵢ·y′)/Z with Z ≥ wⱼ·eⱼ of any entry j that stays, and
  eᵢ/eⱼ ≤ exp(‖kᵢ − kⱼ‖/T). It holds for the present coefficients and is loose; where weights may be negative
  there is no such bound.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

from .append import Occupancy
from .coefficients import CoefficientTable, block_coefficients
from .database import COUNTERS, INITIAL, Block, Database, emptied
from .eviction import effective_size
from .kernels import Kernel, Pairs, WeightedSoftmax, least_share
from .neighbours import self_similarity
from .scores import Coefficients

_ANCHORS = 64  # entries of largest weight that the bound of normalised kernels leans on


@dataclass(frozen=True)
class Pruned:
    """What a pruning did."""

    database: Database
    occupancy: Occupancy
    entries: int  # how many went
    bound: float | None  # on the norm of the change of the layer's output; None: not known


def prune(
    kernel: Kernel,
    database: Database,
    occupancy: Occupancy,
    table: CoefficientTable | None,
    bounds: CoefficientTable | None,
    epsilon: float,
    step: int,
) -> Pruned:
    """Removes the entries whose effective value norm and weight are below ε for good.

    Args:
      kernel: the layer's kernel.
      database: consumed.
      occupancy: what the host knows of it.
      table: present coefficients by creation step (None: all 1).
      bounds: upper bounds on the coefficients from now on (None: all 1).
      epsilon: ε.
      step: the present step.
    """
    gone = tuple(_negligible(database.blocks, bounds, jnp.asarray(epsilon, database.blocks[0].keys.dtype)))
    change = _normalised_change if kernel.normalised else _summed_change
    bound = None
    if not least_share(kernel):
        bound = float(change(kernel, database.blocks, table if kernel.normalised else bounds, gone))
    blocks, pruned = _remove(database.blocks, gone, jnp.int32(step))
    counters = database.counters.at[COUNTERS.index("pruned")].add(pruned)
    database = replace(database, blocks=blocks, entries=database.entries - pruned, counters=counters)
    holes = occupancy.holes or int(pruned) > 0
    return Pruned(database, Occupancy.of(database, holes=holes), int(pruned), bound)


def forget(
    database: Database, occupancy: Occupancy, origins: jax.Array, step: int
) -> tuple[Database, Occupancy, int]:
    """Removes the entries that came from given examples of the stream.

    An entry that took up others' values (`quantize`, `merge_nearest`, folding) goes by its own origin only.

    Args:
      database: consumed.
      occupancy: what the host knows of it.
      origins: [M] int32 stream offsets.
      step: the present step.

    Returns:
      The database, its occupancy, and how many entries went. They count as pruned.
    """
    gone = tuple(jnp.isin(block.origin, origins) & (block.created > INITIAL) for block in database.blocks)
    blocks, count = _remove(database.blocks, gone, jnp.int32(step))
    counters = database.counters.at[COUNTERS.index("pruned")].add(count)
    database = replace(database, blocks=blocks, entries=database.entries - count, counters=counters)
    return database, Occupancy.of(database, holes=occupancy.holes or int(count) > 0), int(count)


@jax.jit
def _negligible(
    blocks: tuple[Block, ...], bounds: CoefficientTable | None, epsilon: jax.Array
) -> list[jax.Array]:
    """Per block [n] bool; an entry goes only if value and weight are both negligible."""
    return [
        (block.created > INITIAL) & (effective_size(block, block_coefficients(block, bounds)) < epsilon)
        for block in blocks
    ]


@partial(jax.jit, static_argnums=0)
def _summed_change(
    kernel: Kernel, blocks: tuple[Block, ...], bounds: CoefficientTable | None, gone: tuple[jax.Array, ...]
) -> jax.Array:
    features = blocks[0].keys.shape[1]
    of_query = self_similarity(kernel, jnp.full(1, features, blocks[0].keys.dtype), features)[0]
    change = jnp.zeros((), blocks[0].keys.dtype)
    for block, chosen in zip(blocks, gone, strict=True):
        sizes = jnp.abs(block_coefficients(block, bounds).values) * block.value_norms
        reach = jnp.sqrt(self_similarity(kernel, block.key_norms, features) * of_query)
        change = change + jnp.sum(jnp.where(chosen, sizes * reach, 0))
    return change


@partial(jax.jit, static_argnums=0)
def _normalised_change(
    kernel: Kernel, blocks: tuple[Block, ...], table: CoefficientTable | None, gone: tuple[jax.Array, ...]
) -> jax.Array:
    assert isinstance(kernel, WeightedSoftmax)
    coefficients = [block_coefficients(block, table) for block in blocks]
    weights = jnp.concatenate(
        [_effective_weights(block, c) for block, c in zip(blocks, coefficients, strict=True)]
    )
    sizes = jnp.concatenate(
        [jnp.abs(c.values) * block.value_norms for block, c in zip(blocks, coefficients, strict=True)]
    )
    chosen = jnp.concatenate(gone)
    heaviest, keys = _anchors(blocks, jnp.where(chosen, 0, weights))
    ratios = []  # bounds on eᵢ/Z
    for block in blocks:
        pairs = Pairs(block.keys @ keys.T, jnp.sum(keys * keys, axis=1), block.key_norms)
        exponents = jnp.sqrt(pairs.square_distances()) / kernel.temperature
        ratios.append(jnp.min(jnp.where(heaviest > 0, jnp.exp(exponents) / heaviest, jnp.inf), axis=1))
    ratio = jnp.concatenate(ratios)
    largest_output = _largest_output(sizes, weights, ratio, ~chosen)
    return jnp.sum(jnp.where(chosen, ratio * (sizes + jnp.abs(weights) * largest_output), 0))


def _largest_output(sizes: jax.Array, weights: jax.Array, ratio: jax.Array, kept: jax.Array) -> jax.Array:
    """A bound on ‖y′‖: each entry adds at most ‖ṽ‖·e/Z; those with weights together at most max ‖ṽ‖/w."""
    each = jnp.where(kept & (sizes > 0), sizes * ratio, 0)
    weighted = kept & (weights > 0)
    together = jnp.max(jnp.where(weighted, sizes / jnp.where(weighted, weights, 1), 0))
    return jnp.minimum(jnp.sum(each), together + jnp.sum(jnp.where(weighted, 0, each)))


def _anchors(blocks: tuple[Block, ...], weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weights [A] and keys [A, D] of entries of largest weight."""
    found, begin = [], 0
    for block in blocks:
        heaviest, rows = jax.lax.top_k(weights[begin : begin + block.slots], min(_ANCHORS, block.slots))
        found.append((heaviest, block.keys[rows]))
        begin += block.slots
    heaviest, keys = (jnp.concatenate(parts) for parts in zip(*found, strict=True))
    order = jax.lax.top_k(heaviest, min(_ANCHORS, heaviest.shape[0]))[1]
    return heaviest[order], keys[order]


def _effective_weights(block: Block, coefficients: Coefficients) -> jax.Array:
    assert block.weights is not None
    assert coefficients.weights is not None
    return block.weights * coefficients.weights


@partial(jax.jit, donate_argnums=0)
def _remove(
    blocks: tuple[Block, ...], gone: tuple[jax.Array, ...], step: jax.Array
) -> tuple[tuple[Block, ...], jax.Array]:
    kept = tuple(emptied(block, chosen, step) for block, chosen in zip(blocks, gone, strict=True))
    return kept, sum((jnp.sum(chosen) for chosen in gone), jnp.int32(0)).astype(jnp.int32)
