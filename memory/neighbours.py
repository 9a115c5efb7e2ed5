"""Which entries are closest to a query: by Euclidean distance, or by the kernel's normalised value."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .database import Block
from .kernels import Kernel, Pairs
from .orientation import Orientation
from .plan import SCORES_BUDGET_BYTES, Plan, over_chunks, plan_reading
from .sharding import ONE_DEVICE, Shards
from .window import as_window

Score = Callable[[Pairs], jax.Array]  # of all pairs, the higher the closer; symmetric in keys and queries


class Neighbours(NamedTuple):
    """For B queries the m closest live entries, closest first."""

    scores: jax.Array  # [B, m]; −inf where there are fewer entries
    slots: jax.Array  # [B, m] int32; −1 where there are fewer
    keys: jax.Array  # [B, m, D]


def nearest(
    blocks: tuple[Block, ...],
    queries: jax.Array,
    *,
    count: int = 1,
    eligible: tuple[jax.Array, ...] | None = None,
    shards: Shards = ONE_DEVICE,
    budget_bytes: int = SCORES_BUDGET_BYTES,
) -> Neighbours:
    """The entries whose keys have the least Euclidean distance.

    Args:
      blocks: the database's blocks.
      queries: [B, D].
      count: m.
      eligible: per block [n] bool, the live slots to look at; None: all.
      shards: the devices that hold the rows.
      budget_bytes: most bytes of scores [N, B] on a device at any time.

    Returns:
      Scores are −‖q − k‖², from the difference itself: expanding the square loses digits, and in float32 a
      third of all exact duplicates came out apart. In one jitted call with `retrieve` products are shared
      where blocks are read whole.
    """

    def score(pairs: Pairs) -> jax.Array:
        return -pairs.square_distances()

    def exactly(keys: jax.Array, queries: jax.Array) -> jax.Array:
        return -jnp.sum((queries[:, None] - keys) ** 2, axis=2)

    return _closest(score, exactly, blocks, queries, count, eligible, shards, budget_bytes)


def most_alike(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    queries: jax.Array,
    *,
    count: int = 1,
    shards: Shards = ONE_DEVICE,
    budget_bytes: int = SCORES_BUDGET_BYTES,
) -> Neighbours:
    """The entries whose normalised kernel value is largest in size; scores are |ρ| (see `correlations`)."""

    def score(pairs: Pairs) -> jax.Array:
        return jnp.abs(_correlation(kernel, pairs, queries.shape[1]))

    return _closest(score, None, blocks, queries, count, None, shards, budget_bytes)


def nearest_features(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    queries: jax.Array,
    *,
    count: int = 1,
    eligible: tuple[jax.Array, ...] | None = None,
    shards: Shards = ONE_DEVICE,
    budget_bytes: int = SCORES_BUDGET_BYTES,
) -> Neighbours:
    """The entries whose features are nearest; scores are −‖φ(q) − φ(k)‖² = 2·φ(k, q) − φ(k, k) − φ(q, q).

    Features of a normalised kernel are taken at unit length: 2·ρ − 2. For the arguments see `nearest`.
    """

    features = queries.shape[1]

    def score(pairs: Pairs) -> jax.Array:
        if kernel.normalised:
            return 2 * _correlation(kernel, pairs, features) - 2
        of_keys = self_similarity(kernel, pairs.key_norms, features)[:, None]
        of_queries = self_similarity(kernel, pairs.query_norms, features)
        return jnp.minimum(2 * kernel.similarity(pairs, features) - of_keys - of_queries, 0)

    return _closest(score, None, blocks, queries, count, eligible, shards, budget_bytes)


def correlations(kernel: Kernel, keys: jax.Array, key_norms: jax.Array, queries: jax.Array) -> jax.Array:
    """ρ = φ(k, q) / √(φ(k, k)·φ(q, q)), the cosine of the angle between the features of k and q.

    Args:
      kernel: φ; a normalised kernel's is exp(logit).
      keys: [N, D].
      key_norms: [N] ‖k‖².
      queries: [B, D].

    Returns:
      [N, B] from −1 to 1; 0 where a feature vanishes.
    """
    pairs = Pairs(keys @ queries.T, jnp.sum(queries * queries, axis=1), key_norms)
    return _correlation(kernel, pairs, queries.shape[1])


def _correlation(kernel: Kernel, pairs: Pairs, features: int) -> jax.Array:
    similarity = kernel.similarity(pairs, features)
    of_keys = self_similarity(kernel, pairs.key_norms, features)[:, None]
    of_queries = self_similarity(kernel, pairs.query_norms, features)
    if kernel.normalised:
        return jnp.exp(jnp.minimum(similarity - (of_keys + of_queries) / 2, 0))
    square = of_keys * of_queries
    return jnp.where(square > 0, similarity * jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)


def self_similarity(kernel: Kernel, norms: jax.Array, features: int) -> jax.Array:
    """φ(x, x), or the logit, for vectors of squared norms [n]."""

    def one(norm: jax.Array) -> jax.Array:
        return kernel.similarity(Pairs(norm[None, None], norm[None], norm[None]), features)[0, 0]

    found: jax.Array = jax.vmap(one)(norms)
    return found


def _closest(
    score: Score,
    exactly: Callable[[jax.Array, jax.Array], jax.Array] | None,
    blocks: tuple[Block, ...],
    queries: jax.Array,
    count: int,
    eligible: tuple[jax.Array, ...] | None,
    shards: Shards,
    budget_bytes: int,
) -> Neighbours:
    if eligible is None:
        eligible = tuple(block.live for block in blocks)
    plan = plan_reading(
        sum(block.slots for block in blocks) // shards.count,
        queries.shape[0],
        blocks[0].keys.shape[1] + blocks[0].values.shape[1],
        itemsize=queries.dtype.itemsize,
        budget_bytes=budget_bytes,
    )

    def search(rows: tuple[tuple[Block, ...], tuple[jax.Array, ...]], queries: jax.Array) -> Neighbours:
        found, begin = [], 0
        for block, chosen in zip(*rows, strict=True):
            best, places = _in_block(score, block, chosen, queries, min(count, block.slots), plan)
            keys = block.keys[places]
            if exactly is not None:
                best = jnp.where(jnp.isneginf(best), best, exactly(keys, queries))
            slots = begin + shards.slots_of(places)
            begin += block.slots * shards.count
            found.append(Neighbours(best, jnp.where(jnp.isneginf(best), -1, slots), keys))
        own = _best_of(found, count)
        if shards.count == 1:
            return own
        everywhere = Neighbours(*(shards.gathered(part) for part in own))
        return _best_of([Neighbours(*(part[n] for part in everywhere)) for n in range(shards.count)], count)

    queries = jax.lax.stop_gradient(queries)  # a decision, not a quantity to learn through
    found: Neighbours = shards.spread(search, (blocks, eligible), queries, False)
    return found


def _in_block(
    score: Score, block: Block, eligible: jax.Array, queries: jax.Array, count: int, plan: Plan
) -> tuple[jax.Array, jax.Array]:
    """Scores [B, count] and places [B, count] of the closest rows of a block, chunk by chunk."""
    way = plan.orientation
    norms = jnp.sum(queries * queries, axis=1)

    def step(best: tuple[jax.Array, jax.Array], chunk: tuple[jax.Array, ...]) -> tuple[Any, None]:
        keys, key_norms, chosen, rows = chunk
        scores = score(way.pairs(way.products(keys, queries), norms, key_norms))
        scores = jnp.where(way.across_entries(chosen), scores, -jnp.inf)
        return _better(best, _top(scores, rows, way, min(count, keys.shape[0]))), None

    keys = as_window(jax.lax.stop_gradient(block.keys))  # which rows are closest is a decision too
    rows = jnp.arange(eligible.shape[0], dtype=jnp.int32)
    shape = (queries.shape[0], count)
    none = jnp.full(shape, -jnp.inf, queries.dtype), jnp.zeros(shape, jnp.int32)
    found, _ = over_chunks(step, none, (keys, block.key_norms, eligible, rows), plan.chunk)
    scores, places = found
    return scores, places


def _top(scores: jax.Array, rows: jax.Array, way: Orientation, count: int) -> tuple[jax.Array, jax.Array]:
    """The highest scores, [B, count], and their rows, the lower row first among equals."""
    if count > 1:
        best, order = jax.lax.top_k(scores if way.queries_first else scores.T, count)
        return best, rows[order]
    highest = jnp.max(scores, axis=way.entry_axis)
    # argmax takes 1.5 times as long on a CPU.
    there = scores == way.across_queries(highest)
    row = jnp.min(jnp.where(there, way.across_entries(rows), rows[-1]), axis=way.entry_axis)
    return highest[:, None], row[:, None]


def _better(
    one: tuple[jax.Array, jax.Array], other: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """The best of two [B, m] and [B, m'], as many as the first has; the first's among equals."""
    scores, rows = (jnp.concatenate(parts, axis=1) for parts in zip(one, other, strict=True))
    best, order = jax.lax.top_k(scores, one[0].shape[1])
    return best, jnp.take_along_axis(rows, order, axis=1)


def _best_of(found: list[Neighbours], count: int) -> Neighbours:
    scores, slots, keys = (jnp.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    best, order = jax.lax.top_k(scores, min(count, scores.shape[1]))
    missing = count - best.shape[1]  # fewer slots than neighbours asked for
    keys = jnp.take_along_axis(keys, order[:, :, None], axis=1)
    return Neighbours(
        jnp.pad(best, ((0, 0), (0, missing)), constant_values=-jnp.inf),
        jnp.pad(jnp.take_along_axis(slots, order, axis=1), ((0, 0), (0, missing)), constant_values=-1),
        jnp.pad(keys, ((0, 0), (0, missing), (0, 0))),
    )
