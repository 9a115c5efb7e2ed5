"""What a run of entries says to a batch of queries, and the gradients of that: the arithmetic of retrieval.

A run is whatever is read at once: a block, a chunk of one, a chunk from disk. Forward is two products,
backward two more; the scores may be handed over from one to the other or computed again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .database import Block
from .fold import Cotangent, Partial
from .kernels import Kernel, Pairs
from .orientation import ENTRIES_FIRST, Orientation
from .window import Rows, as_window, cut


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coefficients:
    """What a block's stored rows are multiplied by at the present step; zero for empty slots."""

    values: jax.Array  # [n] factor of the stored value
    weights: jax.Array | None  # [n] factor of the stored weight; None for summed kernels


class Entries(NamedTuple):
    """The columns of a run that retrieval reads."""

    keys: Rows  # [n, D]
    values: Rows  # [n, F]
    weights: jax.Array | None  # [n]
    key_norms: jax.Array  # [n] ‖k‖²
    live: jax.Array  # [n] bool

    @classmethod
    def of(cls, block: Block) -> "Entries":
        return cls(block.keys, block.values, block.weights, block.key_norms, block.live)

    def in_place(self) -> "Entries":
        """The same, of which a part leaves keys and values where they lie."""
        return self._replace(keys=as_window(self.keys), values=as_window(self.values))


class Scores(NamedTuple):
    """A run's similarities to B queries, as the backward pass wants them."""

    similarity: jax.Array  # φ, or exp(logit − maximum) with 0 for empty slots; of the orientation's shape
    dots: jax.Array | None  # ⟨k, q⟩, of the same shape; None where the kernel's slopes do not read it
    maximum: jax.Array | None  # [B] highest logit of a live entry of the run; None for summed kernels


class Gradients(NamedTuple):
    """Gradients of a loss in what a run of entries was asked, and in the entries."""

    queries: jax.Array  # [B, D]
    entries: Entries | None  # of keys, values and weights; None unless trained


def score(
    kernel: Kernel, entries: Entries, queries: jax.Array, orientation: Orientation = ENTRIES_FIRST
) -> Scores:
    """The similarities of n entries and B queries [B, D]."""
    dots = orientation.products(entries.keys, queries)
    pairs = orientation.pairs(dots, _square_norms(queries), entries.key_norms)
    similarity = kernel.similarity(pairs, queries.shape[1])
    kept = dots if scores_kept(kernel) == 2 else None
    if not kernel.normalised:
        return Scores(similarity, kept, None)
    # Logits once computed are not computed again: fused twice, a large one rounds differently from its own
    # maximum, and exp() of the difference is 0 or infinite instead of 1.
    live = orientation.across_entries(entries.live)
    logits = jax.lax.optimization_barrier(jnp.where(live, similarity, -jnp.inf))
    maximum = jnp.max(logits, axis=orientation.entry_axis)
    finite = jnp.where(jnp.isfinite(maximum), maximum, 0)  # −inf: there is no live entry
    return Scores(jnp.exp(logits - orientation.across_queries(finite)), kept, maximum)


def partial_answer(
    entries: Entries,
    coefficients: Coefficients,
    scores: Scores,
    orientation: Orientation = ENTRIES_FIRST,
    least_share: float = 0.0,
) -> Partial:
    """What the run says to the queries it was scored against (`least_share`: see `WeightedSoftmax`)."""
    similarity = scores.similarity
    factors = similarity * orientation.across_entries(coefficients.values)
    numerator = orientation.combine(factors, entries.values)
    if scores.maximum is None:
        return Partial(numerator)
    weights = orientation.across_entries(_effective_weights(entries, coefficients))
    denominator = orientation.over_entries(weights * similarity)
    if not least_share:
        return Partial(numerator, denominator, scores.maximum)
    mass = orientation.over_entries(jnp.abs(weights) * similarity)
    return Partial(numerator, denominator, scores.maximum, mass, least_share)


def gradients(
    kernel: Kernel,
    entries: Entries,
    coefficients: Coefficients,
    scores: Scores,
    queries: jax.Array,
    whole: Cotangent,
    orientation: Orientation = ENTRIES_FIRST,
    *,
    trained: bool = False,
) -> Gradients:
    """The gradients in the queries, as far as they come through this run, and in its entries.

    Args:
      kernel: the similarity.
      entries: the run, n entries.
      coefficients: theirs.
      scores: what `score` returned for them and these queries.
      queries: [B, D].
      whole: the gradient in the merged partial of all runs.
      orientation: of the scores.
      trained: whether gradients are wanted for the entries too.
    """
    cotangent = whole.in_part(scores.maximum)
    pull = orientation.products(entries.values, cotangent.numerator)  # ⟨v, g⟩
    pull = pull * orientation.across_entries(coefficients.values)  # ∂loss/∂φ
    if cotangent.denominator is not None:
        weights = orientation.across_entries(_effective_weights(entries, coefficients))
        pull = pull + weights * orientation.across_queries(cotangent.denominator)
        if cotangent.mass is not None:
            pull = pull + jnp.abs(weights) * orientation.across_queries(cotangent.mass)
        pull = pull * scores.similarity  # ∂loss/∂logit
    pairs = _pairs(entries, scores, queries, orientation)
    slopes = orientation.slopes(kernel, scores.similarity, pairs, queries.shape[1])
    by_dot = pull * slopes.by_dot
    own_slope = orientation.over_entries(pull * slopes.by_query_norm)  # [B] Σ of slopes in ‖q‖²
    by_queries = orientation.combine(by_dot, entries.keys) + 2 * queries * own_slope[:, None]
    if not trained:
        return Gradients(by_queries, None)
    key_slope = orientation.over_queries(pull * slopes.by_key_norm)
    by_keys = orientation.spread(by_dot, queries) + 2 * cut(entries.keys) * key_slope[:, None]
    by_entries = _entry_gradients(entries, coefficients, scores, by_keys, cotangent, orientation)
    return Gradients(by_queries, by_entries)


def scores_kept(kernel: Kernel) -> int:
    """Arrays of scores that the backward pass wants: the similarities, and perhaps the inner products."""
    number, pair = jnp.ones(1), jnp.ones((1, 1))
    traced = jax.make_jaxpr(lambda s, *pairs: kernel.slopes(s, Pairs(*pairs), 1))(pair, pair, number, number)
    dots = traced.jaxpr.invars[1]
    read = [v for equation in traced.jaxpr.eqns for v in equation.invars] + list(traced.jaxpr.outvars)
    return 2 if any(v is dots for v in read) else 1


def _entry_gradients(
    entries: Entries,
    coefficients: Coefficients,
    scores: Scores,
    by_keys: jax.Array,
    cotangent: Cotangent,
    orientation: Orientation,
) -> Entries:
    factors = scores.similarity * orientation.across_entries(coefficients.values)
    values = orientation.spread(factors, cotangent.numerator)
    weights = None
    if cotangent.denominator is not None:
        assert coefficients.weights is not None
        by_weight = scores.similarity * orientation.across_queries(cotangent.denominator)
        weights = coefficients.weights * orientation.over_queries(by_weight)
        if cotangent.mass is not None:
            by_size = orientation.over_queries(scores.similarity * orientation.across_queries(cotangent.mass))
            signs = jnp.sign(_effective_weights(entries, coefficients))
            weights = weights + coefficients.weights * signs * by_size
    # The norms are functions of the keys, accounted for in the keys' gradient.
    return Entries(by_keys, values, weights, jnp.zeros_like(entries.key_norms), None)  # type: ignore[arg-type]


def _pairs(entries: Entries, scores: Scores, queries: jax.Array, orientation: Orientation) -> Pairs:
    # Where slopes do not read inner products, anything of their shape will do.
    dots = scores.similarity if scores.dots is None else scores.dots
    return orientation.pairs(dots, _square_norms(queries), entries.key_norms)


def _square_norms(queries: jax.Array) -> jax.Array:
    return jnp.sum(queries * queries, axis=1)


def _effective_weights(entries: Entries, coefficients: Coefficients) -> jax.Array:
    assert entries.weights is not None
    assert coefficients.weights is not None
    return entries.weights * coefficients.weights
