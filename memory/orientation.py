"""Scores lie either way round: [n, B] with the entries first, or [B, n] with the queries first.

Measured on two x86 cores with AVX-512, in GFlop/s of the two products that retrieval makes with keys [n, D]
and scores. Few queries and wide keys (n, D, B = 2500, 3072, 16): 96 and 41 with the entries first, 52 and 26
with the queries first. Many queries and narrow keys (512, 64, 1024): 90 and 48 with the entries first, 116
and 84 with the queries first.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .kernels import Kernel, Pairs, Slopes
from .native import combine, inner_products
from .window import Rows, cut


@dataclass(frozen=True)
class Orientation:
    """Which axis of the scores comes first; the functions take and return scores of that shape."""

    queries_first: bool

    def across_entries(self, numbers: jax.Array) -> jax.Array:
        """One number per entry [n], to be broadcast with scores."""
        return numbers if self.queries_first else numbers[:, None]

    def across_queries(self, numbers: jax.Array) -> jax.Array:
        """One number per query [B], to be broadcast with scores."""
        return numbers[:, None] if self.queries_first else numbers

    def products(self, rows: Rows, queries: jax.Array) -> jax.Array:
        """Inner products of rows [n, D] and queries [B, D]."""
        return queries @ cut(rows).T if self.queries_first else inner_products(rows, queries)

    def combine(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """Rows [n, F] added up with scores as their factors, [B, F]."""
        return scores @ cut(rows) if self.queries_first else combine(scores, rows)

    def spread(self, scores: jax.Array, numbers: jax.Array) -> jax.Array:
        """Rows of the queries [B, F] added up with scores as their factors, [n, F]."""
        return scores.T @ numbers if self.queries_first else scores @ numbers

    def over_entries(self, scores: jax.Array) -> jax.Array:
        """The sum over entries, [B]."""
        return jnp.sum(scores, axis=self.entry_axis)

    def over_queries(self, scores: jax.Array) -> jax.Array:
        """The sum over queries, [n]."""
        return jnp.sum(scores, axis=1 - self.entry_axis)

    @property
    def entry_axis(self) -> int:
        return 1 if self.queries_first else 0

    def pairs(self, dots: jax.Array, query_norms: jax.Array, key_norms: jax.Array) -> Pairs:
        """What kernels read. They are symmetric: with the queries first, queries take the part of keys."""
        if self.queries_first:
            return Pairs(dots, key_norms, query_norms)
        return Pairs(dots, query_norms, key_norms)

    def slopes(self, kernel: Kernel, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        """The derivatives of a similarity of `pairs`."""
        slopes = kernel.slopes(similarity, pairs, features)
        if self.queries_first:
            return Slopes(slopes.by_dot, slopes.by_key_norm, slopes.by_query_norm)
        return slopes


ENTRIES_FIRST = Orientation(queries_first=False)
QUERIES_FIRST = Orientation(queries_first=True)
