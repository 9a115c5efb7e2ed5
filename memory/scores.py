"""What a run of entries says to a batch of queries, and the gradients of that: the arithmetic of retrieval.

A run is whatever is read at once: a block, a chunk of one, a chunk from disk. Scores are kept entries-major,
[n, B], which runs near memory bandwidth for few queries and wide keys. Forward is two products, backward two
more; the scores may be handed over from one to the other or computed again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .database import Block
from .fold import Cotangent, Partial
from .kernels import Kernel, Pairs


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coefficients:
    """What a block's stored rows are multiplied by at the present step; zero for empty slots."""

    values: jax.Array  # [n] factor of the stored value
    weights: jax.Array | None  # [n] factor of the stored weight; None for summed kernels


class Entries(NamedTuple):
    """The columns of a run that retrieval reads."""

    keys: jax.Array  # [n, D]
    values: jax.Array  # [n, F]
    weights: jax.Array | None  # [n]
    key_norms: jax.Array  # [n] ‖k‖²
    live: jax.Array  # [n] bool

    @classmethod
    def of(cls, block: Block) -> "Entries":
        return cls(block.keys, block.values, block.weights, block.key_norms, block.live)


class Scores(NamedTuple):
    """A run's similarities to B queries, as the backward pass wants them."""

    similarity: jax.Array  # [n, B] φ, or exp(logit − maximum)
    dots: jax.Array  # [n, B] ⟨k, q⟩; dropped by the compiler for kernels whose slopes do not need it
    maximum: jax.Array | None  # [B] highest logit of a live entry of the run; None for summed kernels


class Gradients(NamedTuple):
    """Gradients of a loss in what a run of entries was asked, and in the entries."""

    queries: jax.Array  # [B, D]
    entries: Entries | None  # of keys, values and weights; None unless trained


def score(kernel: Kernel, entries: Entries, queries: jax.Array) -> Scores:
    """The similarities of n entries and B queries [B, D]."""
    pairs = Pairs(entries.keys @ queries.T, _square_norms(queries), entries.key_norms)
    similarity = kernel.similarity(pairs, queries.shape[1])
    if not kernel.normalised:
        return Scores(similarity, pairs.dots, None)
    # Logits once computed are not computed again: fused twice, a large one rounds differently from its own
    # maximum, and exp() of the difference is 0 or infinite instead of 1.
    logits = jax.lax.optimization_barrier(jnp.where(entries.live[:, None], similarity, -jnp.inf))
    maximum = jnp.max(logits, axis=0)
    finite = jnp.where(jnp.isfinite(maximum), maximum, 0)  # −inf: there is no live entry
    return Scores(jnp.exp(logits - finite), pairs.dots, maximum)


def partial_answer(entries: Entries, coefficients: Coefficients, scores: Scores) -> Partial:
    """What the run says to the queries it was scored against."""
    similarity = scores.similarity
    numerator = _combine(similarity * coefficients.values[:, None], entries.values)
    if scores.maximum is None:
        return Partial(numerator)
    weights = _effective_weights(entries, coefficients)
    return Partial(numerator, jnp.sum(weights[:, None] * similarity, axis=0), scores.maximum)


def gradients(
    kernel: Kernel,
    entries: Entries,
    coefficients: Coefficients,
    scores: Scores,
    queries: jax.Array,
    whole: Cotangent,
    *,
    trained: bool,
) -> Gradients:
    """The gradients in the queries, as far as they come through this run, and in its entries.

    Args:
      kernel: the similarity.
      entries: the run, n entries.
      coefficients: theirs.
      scores: what `score` returned for them and these queries.
      queries: [B, D].
      whole: the gradient in the merged partial of all runs.
      trained: whether gradients are wanted for the entries too.
    """
    cotangent = whole.in_part(scores.maximum)
    projection = entries.values @ cotangent.numerator.T  # [n, B] ⟨v, g⟩
    pull = projection * coefficients.values[:, None]  # ∂loss/∂φ
    if cotangent.denominator is not None:
        pull = pull + _effective_weights(entries, coefficients)[:, None] * cotangent.denominator
        pull = pull * scores.similarity  # ∂loss/∂logit
    pairs = Pairs(scores.dots, _square_norms(queries), entries.key_norms)
    slopes = kernel.slopes(scores.similarity, pairs, queries.shape[1])
    by_dot = pull * slopes.by_dot
    own_slope = jnp.sum(pull * slopes.by_query_norm, axis=0)  # [B] Σ of slopes in ‖q‖²
    by_queries = _combine(by_dot, entries.keys) + 2 * queries * own_slope[:, None]
    if not trained:
        return Gradients(by_queries, None)
    by_keys = by_dot @ queries + 2 * entries.keys * jnp.sum(pull * slopes.by_key_norm, axis=1)[:, None]
    return Gradients(by_queries, _entry_gradients(entries, coefficients, scores, by_keys, cotangent))


def _entry_gradients(
    entries: Entries, coefficients: Coefficients, scores: Scores, by_keys: jax.Array, cotangent: Cotangent
) -> Entries:
    values = (scores.similarity * coefficients.values[:, None]) @ cotangent.numerator
    weights = None
    if cotangent.denominator is not None:
        assert coefficients.weights is not None
        weights = coefficients.weights * (scores.similarity @ cotangent.denominator)
    # The norms are functions of the keys, accounted for in the keys' gradient.
    return Entries(by_keys, values, weights, jnp.zeros_like(entries.key_norms), None)  # type: ignore[arg-type]


def _square_norms(queries: jax.Array) -> jax.Array:
    return jnp.sum(queries * queries, axis=1)


def _combine(scores: jax.Array, rows: jax.Array) -> jax.Array:
    """scores [n, B] and rows [n, F] → [B, F]."""
    return scores.T @ rows


def _effective_weights(entries: Entries, coefficients: Coefficients) -> jax.Array:
    assert entries.weights is not None
    assert coefficients.weights is not None
    return entries.weights * coefficients.weights
