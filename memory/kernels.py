"""Kernels: how alike a query and a key are, and how that changes with the query.

Every kernel here is a function of three numbers per pair, the inner product ⟨k, q⟩ and the squared norms
‖q‖² and ‖k‖², so that retrieval needs one matrix product over the keys whatever the kernel. The paper's
temperature T enters as the scale T·√d_in (Remark 3.1, Algorithm 5).
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pairs:
    """All pairs of N keys and B queries."""

    dots: jax.Array  # [N, B] inner products ⟨k, q⟩
    query_norms: jax.Array  # [B] squared norms ‖q‖²
    key_norms: jax.Array  # [N] squared norms ‖k‖²

    def square_distances(self) -> jax.Array:
        """‖q − k‖², [N, B], never negative (rounding would make it so for equal vectors)."""
        return jnp.maximum(self.query_norms + self.key_norms[:, None] - 2 * self.dots, 0)


class Kernel(Protocol):
    """A similarity φ(k, q) of keys and queries.

    A *normalised* kernel is used as exp(logit) in a ratio (weighted softmax, Eq. 8): its `similarity` is
    the logit and its entries carry weights. The others are summed (Eq. 14).
    """

    normalised: ClassVar[bool]

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        """φ (or the logit of a normalised kernel), [N, B], for keys of `features` = d_in numbers."""

    def slopes(
        self, similarity: jax.Array, pairs: Pairs, features: int
    ) -> tuple[jax.Array | float, jax.Array | float]:
        """∂φ/∂⟨k, q⟩ and ∂φ/∂‖q‖² (equal to ∂φ/∂‖k‖²: kernels are symmetric), each [N, B] or a number."""


@dataclass(frozen=True)
class Linear:
    """φ = ⟨k, q⟩: the dual form of a dense layer trained by gradient descent (Eq. 1)."""

    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return pairs.dots

    def slopes(
        self, similarity: jax.Array, pairs: Pairs, features: int
    ) -> tuple[jax.Array | float, jax.Array | float]:
        return 1.0, 0.0


@dataclass(frozen=True)
class RBF:
    """φ = exp(−‖q − k‖² / (2·T·√d_in)) (Algorithm 5)."""

    temperature: float  # T > 0
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return jnp.exp(pairs.square_distances() / (-2 * self.temperature * sqrt(features)))

    def slopes(
        self, similarity: jax.Array, pairs: Pairs, features: int
    ) -> tuple[jax.Array | float, jax.Array | float]:
        by_dot = similarity / (self.temperature * sqrt(features))
        return by_dot, by_dot / -2


@dataclass(frozen=True)
class WeightedSoftmax:
    """Logit ⟨k, q⟩ / (T·√d_in), exponentiated and normalised over the weighted entries (Eq. 8)."""

    temperature: float  # T > 0
    normalised: ClassVar[bool] = True

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return pairs.dots / (self.temperature * sqrt(features))

    def slopes(
        self, similarity: jax.Array, pairs: Pairs, features: int
    ) -> tuple[jax.Array | float, jax.Array | float]:
        return 1 / (self.temperature * sqrt(features)), 0.0
