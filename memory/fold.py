"""The fold: how what parts of a memory answer becomes the answer of the whole.

Blocks, cache-sized chunks, devices and chunks read from disk are all parts of one memory. Each gives a
`Partial`; partials are merged in any order and any grouping, and the last one is finished into the answer.
For summed kernels a partial is a sum. For normalised ones it is a numerator and a denominator under the
part's own highest logit, so that nothing overflows whatever the part (the running maximum of online
softmax: Milakov & Gimelshein 2018).

The way back is linear: `cotangent` is the gradient in the merged partial, `Cotangent.in_part` that in one
part of it.

>>> one = Partial(jnp.array([[2.0]]), jnp.array([1.0]), jnp.array([5.0]))
>>> other = Partial(jnp.array([[8.0]]), jnp.array([1.0]), jnp.array([5.0]))
>>> finish(merge(one, other)).tolist()
[[5.0]]
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .sharding import Shards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Partial:
    """What some of a memory's entries say to B queries."""

    numerator: jax.Array  # [B, F] Σ c·φ·v; for a normalised kernel with φ = exp(logit − maximum)
    denominator: jax.Array | None = None  # [B] Σ w·φ of a normalised kernel, else None
    maximum: jax.Array | None = None  # [B] highest logit of a live entry, −inf without one; else None


class Cotangent(NamedTuple):
    """The gradient of a loss in a partial."""

    numerator: jax.Array  # [B, F]
    denominator: jax.Array | None  # [B]; None for summed kernels
    maximum: jax.Array | None  # [B] the maximum they refer to

    def in_part(self, maximum: jax.Array | None) -> "Cotangent":
        """The gradient in a part that was merged into the whole, whose own maximum is given."""
        if self.denominator is None or self.maximum is None or maximum is None:
            return self
        scale = _scale(maximum, self.maximum)
        return Cotangent(self.numerator * scale[:, None], self.denominator * scale, maximum)


def merge(one: Partial, other: Partial) -> Partial:
    """What both parts say together."""
    if one.denominator is None or other.denominator is None:
        return Partial(one.numerator + other.numerator)
    assert one.maximum is not None
    assert other.maximum is not None
    highest = jnp.maximum(one.maximum, other.maximum)
    a, b = _scale(one.maximum, highest), _scale(other.maximum, highest)
    return Partial(
        one.numerator * a[:, None] + other.numerator * b[:, None],
        one.denominator * a + other.denominator * b,
        highest,
    )


def merge_devices(shards: Shards, part: Partial) -> Partial:
    """On a device: what the parts of all devices say together, in one collective."""
    if shards.count == 1:
        return part
    if part.denominator is None or part.maximum is None:
        return Partial(shards.total(part.numerator))
    packed = jnp.concatenate([part.maximum[:, None], part.denominator[:, None], part.numerator], axis=1)
    everywhere = shards.gathered(packed)  # [n, B, 2 + F]
    maxima = everywhere[:, :, 0]
    highest = jnp.max(maxima, axis=0)
    total = jnp.sum(_scale(maxima, highest)[:, :, None] * everywhere[:, :, 1:], axis=0)
    return Partial(total[:, 1:], total[:, 0], highest)


def finish(whole: Partial) -> jax.Array:
    """The answer [B, F]; zeros, the prior, where nothing (or nothing of weight) was merged."""
    if whole.denominator is None:
        return whole.numerator
    none = whole.denominator == 0
    return jnp.where(none[:, None], 0, whole.numerator / _nonzero(whole.denominator)[:, None])


def cotangent(whole: Partial, gradient: jax.Array) -> Cotangent:
    """The gradient in the whole's partial, given `gradient` [B, F] in its answer."""
    if whole.denominator is None:
        return Cotangent(gradient, None, None)
    none = whole.denominator == 0
    by_numerator = jnp.where(none[:, None], 0, gradient / _nonzero(whole.denominator)[:, None])
    by_denominator = -jnp.sum(finish(whole) * by_numerator, axis=1)
    return Cotangent(by_numerator, by_denominator, whole.maximum)


def nothing(batch: int, value_features: int, dtype: jnp.dtype, *, normalised: bool) -> Partial:
    """What no entries at all say to `batch` queries: merging it changes nothing."""
    numerator = jnp.zeros((batch, value_features), dtype)
    if not normalised:
        return Partial(numerator)
    return Partial(numerator, jnp.zeros(batch, dtype), jnp.full(batch, -jnp.inf, dtype))


def _scale(maximum: jax.Array, highest: jax.Array) -> jax.Array:
    """What exponentials under `maximum` are multiplied by to be under `highest`; 0 without live entries."""
    return jnp.exp(maximum - jnp.where(jnp.isfinite(highest), highest, 0))


def _nonzero(denominator: jax.Array) -> jax.Array:
    return jnp.where(denominator == 0, 1, denominator)
