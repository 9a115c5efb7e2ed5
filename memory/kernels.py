"""Kernels: how alike a query and a key are, and how that changes with the query.

Every kernel here is a function of three numbers per pair, the inner product ⟨k, q⟩ and the squared norms
‖q‖² and ‖k‖², so that retrieval needs one matrix product over the keys whatever the kernel. The paper's
temperature T enters as the scale T·√d_in (Remark 3.1, Algorithm 5): kernels of the distance have the
length ℓ = √(T·√d_in). Any positive-definite kernel gives a principled growing layer (Sec. 3.1).
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple, Protocol

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


class Slopes(NamedTuple):
    """Derivatives of a similarity, each [N, B] or one number for all pairs."""

    by_dot: jax.Array | float  # in ⟨k, q⟩
    by_query_norm: jax.Array | float  # in ‖q‖²
    by_key_norm: jax.Array | float  # in ‖k‖²


class Kernel(Protocol):
    """A similarity φ(k, q) of keys and queries.

    A *normalised* kernel is used as exp(logit) in a ratio (weighted softmax, Eq. 8): its `similarity` is
    the logit and its entries carry weights. The others are summed (Eq. 14).
    """

    normalised: ClassVar[bool]

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        """φ (or the logit of a normalised kernel), [N, B], for keys of `features` = d_in numbers."""

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        """The derivatives of `similarity`; finite also for equal vectors and for zeros."""


@dataclass(frozen=True)
class Linear:
    """φ = ⟨k, q⟩: the dual form of a dense layer trained by gradient descent (Eq. 1)."""

    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return pairs.dots

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        return Slopes(1.0, 0.0, 0.0)


@dataclass(frozen=True)
class WeightedSoftmax:
    """Logit ⟨k, q⟩ / (T·√d_in), exponentiated and normalised over the weighted entries (Eq. 8).

    Where weights may be negative, the denominator D may vanish or change its sign (App. C.5). With a least
    share ε it is max(D, ε·A), A being what it would be were all weights positive: equal to D where they are.
    """

    temperature: float  # T > 0
    least_share: float = 0.0  # ε in [0, 1]; 0: weights are never negative
    normalised: ClassVar[bool] = True

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return pairs.dots / (self.temperature * sqrt(features))

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        return Slopes(1 / (self.temperature * sqrt(features)), 0.0, 0.0)


@dataclass(frozen=True)
class RBF:
    """φ = exp(−‖q − k‖² / (2·T·√d_in)) (Algorithm 5)."""

    temperature: float  # T > 0
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return jnp.exp(pairs.square_distances() / (-2 * self.temperature * sqrt(features)))

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        return _radial(similarity / (self.temperature * sqrt(features)))


@dataclass(frozen=True)
class Laplace:
    """φ = exp(−‖q − k‖ / ℓ); its kink at equal vectors has slope 0."""

    temperature: float  # T > 0
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return jnp.exp(-_scaled_distances(pairs, self.temperature, features))

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        distances = _scaled_distances(pairs, self.temperature, features)
        square_length = self.temperature * sqrt(features)
        return _radial(jnp.where(distances == 0, 0, similarity / (square_length * _nonzero(distances))))


@dataclass(frozen=True)
class Matern32:
    """φ = (1 + u)·exp(−u) with u = √3·‖q − k‖ / ℓ: once differentiable samples."""

    temperature: float  # T > 0
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        u = sqrt(3) * _scaled_distances(pairs, self.temperature, features)
        return (1 + u) * jnp.exp(-u)

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        u = sqrt(3) * _scaled_distances(pairs, self.temperature, features)
        return _radial(3 / (self.temperature * sqrt(features)) * jnp.exp(-u))


@dataclass(frozen=True)
class Matern52:
    """φ = (1 + u + u²/3)·exp(−u) with u = √5·‖q − k‖ / ℓ: twice differentiable samples."""

    temperature: float  # T > 0
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        u = sqrt(5) * _scaled_distances(pairs, self.temperature, features)
        return (1 + u + u * u / 3) * jnp.exp(-u)

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        u = sqrt(5) * _scaled_distances(pairs, self.temperature, features)
        return _radial(5 / (3 * self.temperature * sqrt(features)) * (1 + u) * jnp.exp(-u))


@dataclass(frozen=True)
class RationalQuadratic:
    """φ = (1 + ‖q − k‖² / (2·α·ℓ²))^−α: RBF kernels of many widths, mixed."""

    temperature: float  # T > 0
    shape: float = 1.0  # α > 0; RBF as α → ∞
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return self._base(pairs, features) ** -self.shape

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        square_length = self.temperature * sqrt(features)
        return _radial(similarity / (square_length * self._base(pairs, features)))

    def _base(self, pairs: Pairs, features: int) -> jax.Array:
        square_length = self.temperature * sqrt(features)
        return 1 + pairs.square_distances() / (2 * self.shape * square_length)


@dataclass(frozen=True)
class Polynomial:
    """φ = (⟨k, q⟩ / (T·√d_in) + c)^p."""

    temperature: float  # T > 0
    degree: int = 2  # p ≥ 1
    constant: float = 1.0  # c ≥ 0
    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return self._base(pairs, features) ** self.degree

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        inner = self._base(pairs, features) ** (self.degree - 1)
        return Slopes(self.degree / (self.temperature * sqrt(features)) * inner, 0.0, 0.0)

    def _base(self, pairs: Pairs, features: int) -> jax.Array:
        return pairs.dots / (self.temperature * sqrt(features)) + self.constant


@dataclass(frozen=True)
class Cosine:
    """φ = ⟨k, q⟩ / (‖k‖·‖q‖); 0 where a vector is zero, or so small that its square is."""

    normalised: ClassVar[bool] = False

    def similarity(self, pairs: Pairs, features: int) -> jax.Array:
        return pairs.dots * self._inverse_norms(pairs)

    def slopes(self, similarity: jax.Array, pairs: Pairs, features: int) -> Slopes:
        key_norms = pairs.key_norms[:, None]
        by_query = jnp.where(pairs.query_norms == 0, 0, similarity / (-2 * _nonzero(pairs.query_norms)))
        by_key = jnp.where(key_norms == 0, 0, similarity / (-2 * _nonzero(key_norms)))
        return Slopes(self._inverse_norms(pairs), by_query, by_key)

    def _inverse_norms(self, pairs: Pairs) -> jax.Array:
        norms = jnp.sqrt(pairs.key_norms)[:, None] * jnp.sqrt(pairs.query_norms)
        return jnp.where(norms == 0, 0, 1 / _nonzero(norms))


def least_share(kernel: Kernel) -> float:
    """ε of a kernel whose entries may have negative weights, else 0."""
    return kernel.least_share if isinstance(kernel, WeightedSoftmax) else 0.0


def _radial(by_dot: jax.Array) -> Slopes:
    """The slopes of a function of ‖q − k‖² = ‖q‖² + ‖k‖² − 2·⟨k, q⟩."""
    return Slopes(by_dot, by_dot / -2, by_dot / -2)


def _scaled_distances(pairs: Pairs, temperature: float, features: int) -> jax.Array:
    """‖q − k‖ / ℓ, [N, B]."""
    return jnp.sqrt(pairs.square_distances() / (temperature * sqrt(features)))


def _nonzero(x: jax.Array) -> jax.Array:
    return jnp.where(x == 0, 1, x)
