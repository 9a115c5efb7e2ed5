"""The fold: how what parts of a memory answer becomes the answer of the whole.

Blocks, cache-sized chunks, devices and chunks read from disk are all parts of one memory. Each gives a
`Partial`; partials are merged in any order and any grouping, and the last one is finished into the answer.
For summed kernels a partial is a sum. For normalised ones it is a numerator and a denominator under the
part's own highest logit, so that nothing overflows whatever the part (the running maximum of online
softmax: Milakov & Gimelshein 2018). Where weights may be negative there is also the mass, Σ |w|·φ, a share of
which the denominator is kept above (App. C.5).

The way back is linear: `cotangent` is the gradient in the merged partial, `Cotangent.in_part` that in one
part of it.

>>> one = Partial(jnp.array([[2.0]]), jnp.array([1.0]), jnp.array([5.0]))
>>> other = Partial(jnp.array([[8.0]]), jnp.array([1.0]), jnp.array([5.0]))
>>> finish(merge(one, other)).tolist()
[[5.0]]
"""

from dataclasses import dataclass, field
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
    mass: jax.Array | None = None  # [B] Σ |w|·φ where weights may be negative, else None
    least_share: float = field(default=0.0, metadata={"static": True})  # ε: of the mass, for the denominator


class Cotangent(NamedTuple):
    """The gradient of a loss in a partial."""

    numerator: jax.Array  # [B, F]
    denominator: jax.Array | None  # [B]; None for summed kernels
    maximum: jax.Array | None  # [B] the maximum they refer to
    mass: jax.Array | None = None  # [B]; None unless weights may be negative

    def in_part(self, maximum: jax.Array | None) -> "Cotangent":
        """The gradient in a part that was merged into the whole, whose own maximum is given."""
        if self.denominator is None or self.maximum is None or maximum is None:
            return self
        scale = _scale(maximum, self.maximum)
        mass = None if self.mass is None else self.mass * scale
        return Cotangent(self.numerator * scale[:, None], self.denominator * scale, maximum, mass)


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
        None if one.mass is None or other.mass is None else one.mass * a + other.mass * b,
        one.least_share,
    )


def merge_devices(shards: Shards, part: Partial) -> Partial:
    """On a device: what the parts of all devices say together, in one collective."""
    if shards.count == 1:
        return part
    if part.denominator is None or part.maximum is None:
        return Partial(shards.total(part.numerator))
    masses = [] if part.mass is None else [part.mass]
    numbers = jnp.stack([part.maximum, part.denominator, *masses], axis=1)
    everywhere = shards.gathered(jnp.concatenate([numbers, part.numerator], axis=1))  # [n, B, 2 or 3 + F]
    maxima = everywhere[:, :, 0]
    highest = jnp.max(maxima, axis=0)
    total = jnp.sum(_scale(maxima, highest)[:, :, None] * everywhere[:, :, 1:], axis=0)
    mass = total[:, 1] if masses else None
    return Partial(total[:, 1 + len(masses) :], total[:, 0], highest, mass, part.least_share)


def finish(whole: Partial) -> jax.Array:
    """The answer [B, F]; zeros, the prior, where nothing (or nothing of weight) was merged."""
    denominator = _denominator(whole)
    if denominator is None:
        return whole.numerator
    none = denominator == 0
    return jnp.where(none[:, None], 0, whole.numerator / _nonzero(denominator)[:, None])


def log_normaliser(whole: Partial) -> jax.Array | None:
    """[B] the logarithm of a normalised kernel's denominator, −inf for zero; None for summed kernels."""
    denominator = _denominator(whole)
    if denominator is None or whole.maximum is None:
        return None
    return jnp.log(denominator) + jnp.where(jnp.isfinite(whole.maximum), whole.maximum, 0)


def cotangent(whole: Partial, gradient: jax.Array) -> Cotangent:
    """The gradient in the whole's partial, given `gradient` [B, F] in its answer."""
    denominator = _denominator(whole)
    if denominator is None:
        return Cotangent(gradient, None, None)
    none = denominator == 0
    by_numerator = jnp.where(none[:, None], 0, gradient / _nonzero(denominator)[:, None])
    by_denominator = -jnp.sum(finish(whole) * by_numerator, axis=1)
    if whole.mass is None:
        return Cotangent(by_numerator, by_denominator, whole.maximum)
    # Where the share of the mass took the denominator's place, the gradient goes there.
    kept = denominator == whole.denominator
    by_mass = whole.least_share * jnp.where(kept, 0, by_denominator)
    return Cotangent(by_numerator, jnp.where(kept, by_denominator, 0), whole.maximum, by_mass)


def nothing(
    batch: int, value_features: int, dtype: jnp.dtype, *, normalised: bool, least_share: float = 0.0
) -> Partial:
    """What no entries at all say to `batch` queries: merging it changes nothing."""
    numerator = jnp.zeros((batch, value_features), dtype)
    if not normalised:
        return Partial(numerator)
    none = jnp.zeros(batch, dtype)
    maximum = jnp.full(batch, -jnp.inf, dtype)
    return Partial(numerator, none, maximum, none if least_share else None, least_share)


def _denominator(whole: Partial) -> jax.Array | None:
    """[B] what the numerator is divided by: never below its share of the mass."""
    if whole.denominator is None or whole.mass is None:
        return whole.denominator
    return jnp.maximum(whole.denominator, whole.least_share * whole.mass)


def _scale(maximum: jax.Array, highest: jax.Array) -> jax.Array:
    """What exponentials under `maximum` are multiplied by to be under `highest`; 0 without live entries."""
    return jnp.exp(maximum - jnp.where(jnp.isfinite(highest), highest, 0))


def _nonzero(denominator: jax.Array) -> jax.Array:
    return jnp.where(denominator == 0, 1, denominator)
