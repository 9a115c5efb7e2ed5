"""Retrieval: what a database answers to a batch of queries, with a hand-written backward pass.

Scores are kept entries-major, [N, B], which runs near memory bandwidth for few queries and wide keys, and
the kernel values of the forward pass are reused backward: two passes over keys and values each way and no
recomputation. Blocks are folded: sums for summed kernels; for normalised ones the numerator and denominator
under a maximum taken over all blocks.
"""

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .database import Block
from .kernels import Kernel, Pairs
from .sharding import ONE_DEVICE, Shards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coefficients:
    """What a block's stored rows are multiplied by at the present step; zero for empty slots."""

    values: jax.Array  # [n] factor of the stored value
    weights: jax.Array | None  # [n] factor of the stored weight; None for summed kernels


class Entries(NamedTuple):
    """The part of a block that retrieval reads."""

    keys: jax.Array  # [n, D]
    values: jax.Array  # [n, F]
    weights: jax.Array | None  # [n]
    key_norms: jax.Array  # [n] ‖k‖²
    live: jax.Array  # [n] bool


class _Saved(NamedTuple):
    """What one block's forward pass leaves for the backward pass."""

    similarity: jax.Array  # [n, B] φ, or exp(logit − maximum)
    dots: jax.Array  # [n, B]; dropped by the compiler for kernels whose slopes do not need it


def retrieve(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
    *,
    shards: Shards = ONE_DEVICE,
    trained: bool = False,
) -> jax.Array:
    """Σ c·φ(k, q)·v over all live entries (Eq. 14), or the weighted-softmax ratio (Eq. 8).

    Differentiable in the queries, and in keys, values and weights of the entries where `trained`.

    Args:
      kernel: the similarity.
      blocks: the database's blocks.
      coefficients: one per block.
      queries: [B, D].
      shards: the devices that hold the rows.
      trained: whether gradients are wanted for the entries too.

    Returns:
      [B, F]; zeros where there is no entry (or no weight) to answer: the prior.
    """
    return _retrieve(kernel, trained, shards, _entries(blocks), coefficients, queries)


def contributions(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    query: jax.Array,
    shards: Shards = ONE_DEVICE,
) -> list[tuple[jax.Array, jax.Array]]:
    """What each stored value is multiplied by in the answer to one query.

    Args:
      kernel: the similarity.
      blocks: the database's blocks.
      coefficients: one per block.
      query: [1, D].
      shards: the devices that hold the rows.

    Returns:
      Per block, [n] factors of the stored values (Σ factor·v is the answer) and [n] similarities: φ, or for
      a normalised kernel exp(logit) over the denominator.
    """
    _, residuals = _forward(kernel, False, shards, _entries(blocks), coefficients, query)
    saved, denominator = residuals[3], residuals[5]
    scale = jnp.where(denominator[0] == 0, 0, 1 / _nonzero(denominator[0]))
    similarities = [s.similarity[:, 0] * scale for s in saved]
    return [(s * c.values, s) for s, c in zip(similarities, coefficients, strict=True)]


def nearest_square_distances(
    blocks: tuple[Block, ...], queries: jax.Array, shards: Shards = ONE_DEVICE
) -> jax.Array:
    """Squared Euclidean distance from each query to its nearest live key.

    Args:
      blocks: the database's blocks.
      queries: [B, D].
      shards: the devices that hold the rows.

    Returns:
      [B]; +inf where the database is empty. In one jitted call with `retrieve` the products are shared.
    """

    def nearest(blocks: tuple[Block, ...], queries: jax.Array) -> jax.Array:
        return shards.least(reduce(jnp.minimum, [_nearest(block, queries) for block in blocks]))

    # A decision, not a quantity to learn through.
    found: jax.Array = shards.spread(nearest, blocks, jax.lax.stop_gradient(queries), False)
    return found


def _entries(blocks: tuple[Block, ...]) -> tuple[Entries, ...]:
    return tuple(Entries(b.keys, b.values, b.weights, b.key_norms, b.live) for b in blocks)


def _nearest(block: Block, queries: jax.Array) -> jax.Array:
    distances = _pairs(block.keys, block.key_norms, queries).square_distances()
    distances = jnp.where(block.live[:, None], distances, jnp.inf)
    # The slot of the nearest; argmin takes 1.5 times as long on a CPU.
    closest = distances == jnp.min(distances, axis=0)
    row = jnp.max(jnp.where(closest, jnp.arange(block.slots)[:, None], 0), axis=0)
    # Expanding the square loses digits: in float32 a third of all exact duplicates came out apart.
    exact = jnp.sum((queries - block.keys[row]) ** 2, axis=1)
    return jnp.where(block.live[row], exact, jnp.inf)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _retrieve(
    kernel: Kernel,
    trained: bool,
    shards: Shards,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
) -> jax.Array:
    return _forward(kernel, trained, shards, entries, coefficients, queries)[0]


def _forward(
    kernel: Kernel,
    trained: bool,
    shards: Shards,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
) -> tuple[jax.Array, Any]:
    part = _normalised_part if kernel.normalised else _summed_part
    output, denominator, saved = shards.spread(
        partial(part, kernel, shards), (entries, coefficients), queries, (False, False, True)
    )
    return output, (entries, coefficients, queries, saved, output, denominator)


def _summed_part(kernel: Kernel, shards: Shards, rows: Any, queries: jax.Array) -> Any:
    """On a device: the output, no denominator, and what the backward pass needs."""
    entries, coefficients = rows
    pairs = [_pairs(e.keys, e.key_norms, queries) for e in entries]
    similarities = [kernel.similarity(p, queries.shape[1]) for p in pairs]
    parts = zip(entries, coefficients, similarities, strict=True)
    output = shards.total(_sum([_combine(s * c.values[:, None], e.values) for e, c, s in parts]))
    saved = tuple(_Saved(s, p.dots) for s, p in zip(similarities, pairs, strict=True))
    return output, jnp.ones(queries.shape[0], queries.dtype), saved


def _normalised_part(kernel: Kernel, shards: Shards, rows: Any, queries: jax.Array) -> Any:
    """The same for a ratio: numerators and denominators of the devices meet under their maximum."""
    entries, coefficients = rows
    pairs = [_pairs(e.keys, e.key_norms, queries) for e in entries]
    logits = [kernel.similarity(p, queries.shape[1]) for p in pairs]
    exponentials, maximum = _exponentials(logits, entries)
    parts = list(zip(entries, coefficients, exponentials, strict=True))
    numerator = _sum([_combine(s * c.values[:, None], e.values) for e, c, s in parts])
    denominator = _sum([_weigh(_effective_weights(e, c), s) for e, c, s in parts])
    if shards.count > 1:
        packed = jnp.concatenate([maximum[:, None], denominator[:, None], numerator], axis=1)
        everywhere = shards.gathered(packed)  # [n, B, 2 + F]
        highest = jnp.max(everywhere[:, :, 0], axis=0)
        total = jnp.sum(_scale(everywhere[:, :, 0], highest)[:, :, None] * everywhere[:, :, 1:], axis=0)
        denominator, numerator = total[:, 0], total[:, 1:]
        exponentials = [s * _scale(maximum, highest) for s in exponentials]
    output = jnp.where(denominator[:, None] == 0, 0, numerator / _nonzero(denominator)[:, None])
    saved = tuple(_Saved(s, p.dots) for s, p in zip(exponentials, pairs, strict=True))
    return output, denominator, saved


def _backward(kernel: Kernel, trained: bool, shards: Shards, residuals: Any, gradient: jax.Array) -> Any:
    entries, coefficients, queries, saved, output, denominator = residuals
    alignment = jnp.zeros(queries.shape[0], queries.dtype)
    if kernel.normalised:
        gradient = jnp.where(denominator[:, None] == 0, 0, gradient / _nonzero(denominator)[:, None])
        alignment = jnp.sum(output * gradient, axis=1)  # [B] ⟨y, g⟩ / denominator
    query_gradient, entry_gradients = shards.spread(
        partial(_backward_part, kernel, trained, shards),
        (entries, coefficients, saved),
        (queries, gradient, alignment),
        (False, True),
    )
    return entry_gradients if trained else None, None, query_gradient


_retrieve.defvjp(_forward, _backward)


def _backward_part(kernel: Kernel, trained: bool, shards: Shards, rows: Any, whole: Any) -> Any:
    """On a device: the gradient in the queries, summed over devices, and those in its own entries."""
    queries, gradient, alignment = whole
    query_norms = jnp.sum(queries * queries, axis=1)
    query_gradient = jnp.zeros_like(queries)
    own_slope = jnp.zeros(queries.shape[0], queries.dtype)  # [B] Σ of slopes in ‖q‖²
    entry_gradients = []
    for e, c, s in zip(*rows, strict=True):
        projection = e.values @ gradient.T  # [n, B] ⟨v, g⟩
        pull = projection * c.values[:, None]  # ∂loss/∂φ
        if kernel.normalised:
            pull = pull - _effective_weights(e, c)[:, None] * alignment
            pull = pull * s.similarity  # ∂loss/∂logit
        pairs = Pairs(s.dots, query_norms, e.key_norms)
        slopes = kernel.slopes(s.similarity, pairs, queries.shape[1])
        query_gradient = query_gradient + _combine(pull * slopes.by_dot, e.keys)
        own_slope = own_slope + jnp.sum(pull * slopes.by_query_norm, axis=0)
        if trained:
            pulls = pull * slopes.by_dot, pull * slopes.by_key_norm
            entry_gradients.append(_entry_gradient(e, c, s.similarity, pulls, queries, gradient, alignment))
    total = shards.total(query_gradient + 2 * queries * own_slope[:, None])
    return total, tuple(entry_gradients)


def _entry_gradient(
    entries: Entries,
    coefficients: Coefficients,
    similarity: jax.Array,
    pulls: tuple[jax.Array, jax.Array],  # ∂loss/∂⟨k, q⟩ and ∂loss/∂‖k‖², [n, B]
    queries: jax.Array,
    gradient: jax.Array,
    alignment: jax.Array,
) -> Any:
    by_dot, by_norm = pulls
    keys = by_dot @ queries + 2 * entries.keys * jnp.sum(by_norm, axis=1)[:, None]
    values = (similarity * coefficients.values[:, None]) @ gradient
    weights = None
    if entries.weights is not None:
        assert coefficients.weights is not None
        weights = -coefficients.weights * (similarity @ alignment)
    # The norms are functions of the keys, accounted for in the keys' gradient.
    return Entries(keys, values, weights, jnp.zeros_like(entries.key_norms), None)  # type: ignore[arg-type]


def _pairs(keys: jax.Array, key_norms: jax.Array, queries: jax.Array) -> Pairs:
    return Pairs(keys @ queries.T, jnp.sum(queries * queries, axis=1), key_norms)


def _sum(terms: list[jax.Array]) -> jax.Array:
    return reduce(jnp.add, terms)


def _combine(scores: jax.Array, rows: jax.Array) -> jax.Array:
    """scores [n, B] and rows [n, F] → [B, F]."""
    return scores.T @ rows


def _weigh(weights: jax.Array, similarity: jax.Array) -> jax.Array:
    """weights [n] and similarity [n, B] → [B]."""
    return jnp.sum(weights[:, None] * similarity, axis=0)


def _effective_weights(entries: Entries, coefficients: Coefficients) -> jax.Array:
    assert entries.weights is not None
    assert coefficients.weights is not None
    return entries.weights * coefficients.weights


def _exponentials(logits: list[jax.Array], entries: tuple[Entries, ...]) -> tuple[list[jax.Array], jax.Array]:
    """exp(logit − maximum over the live entries of all blocks), zero for empty slots; and the maximum [B]."""
    masked = [jnp.where(e.live[:, None], x, -jnp.inf) for e, x in zip(entries, logits, strict=True)]
    # Logits once computed are not computed again: fused twice, a large one rounds differently from its own
    # maximum, and exp() of the difference is 0 or infinite instead of 1.
    masked = jax.lax.optimization_barrier(masked)
    maximum = jnp.max(jnp.stack([jnp.max(x, axis=0) for x in masked]), axis=0)
    return [jnp.exp(x - _finite(maximum)) for x in masked], maximum


def _scale(maximum: jax.Array, highest: jax.Array) -> jax.Array:
    """What exponentials under `maximum` are multiplied by to be under `highest`; 0 without live entries."""
    return jnp.exp(maximum - _finite(highest))


def _finite(maximum: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(maximum), maximum, 0)  # −inf: there is no live entry


def _nonzero(denominator: jax.Array) -> jax.Array:
    return jnp.where(denominator == 0, 1, denominator)
