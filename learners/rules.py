"""Growing rules: what a layer appends for an example, derived by functional gradient descent.

With s the layer's output [B, F] for queries q [B, D] and g [B, F] the gradient of each example's own loss
with respect to s, every rule stores the key q; they differ in the stored value and weight.
"""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp


class GrowingRule(Protocol):
    """How outputs and per-example gradients become stored values and weights."""

    def __call__(self, outputs: jax.Array, gradients: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """Values [B, F] and weights [B] (None for summed kernels) of the new entries."""


@dataclass(frozen=True)
class KernelRule:
    """Value −η·g for linear and positive-definite kernels (Sec. 3.1, Algorithm 5)."""

    value_rate: float  # η > 0

    def __call__(self, outputs: jax.Array, gradients: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        return -self.value_rate * gradients, None


@dataclass(frozen=True)
class WeightedSoftmaxRule:
    """Weight max(0, η·⟨s, g⟩) and weighted value −β·g (Algorithm 3)."""

    value_rate: float  # β > 0
    weight_rate: float  # η > 0

    def __call__(self, outputs: jax.Array, gradients: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        alignment = jnp.sum(outputs * gradients, axis=1)
        return -self.value_rate * gradients, jnp.maximum(0, self.weight_rate * alignment)
