"""Growing rules: what a layer appends for an example, derived by functional gradient descent.

With s the layer's output [B, F] for queries q [B, D] and g [B, F] the gradient of each example's own loss
with respect to s, every rule stores the key q; they differ in the stored value and weight.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from .schedules import Rate, rate_at


class Rates(NamedTuple):
    """The step sizes of one update."""

    value: float | jax.Array
    weight: float | jax.Array = 0.0


class Signals(NamedTuple):
    """What a layer answered to a batch, and what its loss makes of that."""

    outputs: jax.Array  # [B, F] s
    gradients: jax.Array  # [B, F] g, of each example's own loss with respect to s
    # [B] α: the share that an entry of weight 1 at the query would have in its answer; else None.
    own_shares: jax.Array | None = None


class GrowingRule(Protocol):
    """How a batch's signals become stored values and weights."""

    def rates(self, step: int) -> Rates:
        """The step sizes of update number `step` + 1."""

    def __call__(self, signals: Signals, rates: Rates) -> tuple[jax.Array, jax.Array | None]:
        """Values [B, F] and weights [B] (None for summed kernels) of the new entries."""


@dataclass(frozen=True)
class KernelRule:
    """Value −η·g for linear and positive-definite kernels (Sec. 3.1, Algorithm 5)."""

    value_rate: Rate  # η

    def rates(self, step: int) -> Rates:
        return Rates(rate_at(self.value_rate, step))

    def __call__(self, signals: Signals, rates: Rates) -> tuple[jax.Array, jax.Array | None]:
        return -rates.value * signals.gradients, None


@dataclass(frozen=True)
class WeightedSoftmaxRule:
    """Weight max(0, η·⟨s, g⟩) and weighted value −β·g (Algorithm 3)."""

    value_rate: Rate  # β
    weight_rate: Rate  # η
    clip: float | None = None  # ⟨s, g⟩ is limited to ±clip; None: not limited
    negative: bool = False  # whether negative weights are kept (App. C.5), or become 0

    def rates(self, step: int) -> Rates:
        return Rates(rate_at(self.value_rate, step), rate_at(self.weight_rate, step))

    def __call__(self, signals: Signals, rates: Rates) -> tuple[jax.Array, jax.Array | None]:
        alignment = jnp.sum(signals.outputs * signals.gradients, axis=1)
        if self.clip is not None:
            alignment = jnp.clip(alignment, -self.clip, self.clip)
        weights = rates.weight * alignment
        return -rates.value * signals.gradients, weights if self.negative else jnp.maximum(0, weights)


@dataclass(frozen=True)
class NaiveSoftmaxRule:
    """Weight 1 and value s − η·α·g: gradient descent on the new value alone (App. B.3, Eq. 39).

    At the query the new entry changes nothing but by that step; everywhere else it does, whatever η.
    """

    value_rate: Rate  # η

    def rates(self, step: int) -> Rates:
        return Rates(rate_at(self.value_rate, step))

    def __call__(self, signals: Signals, rates: Rates) -> tuple[jax.Array, jax.Array | None]:
        assert signals.own_shares is not None
        values = signals.outputs - rates.value * signals.own_shares[:, None] * signals.gradients
        return values, jnp.ones_like(signals.own_shares)


@dataclass(frozen=True)
class GaugeRule:
    """Weights that are positive by the choice of gauge (App. C.7).

    `length` (Algorithm 2): α_t = α/‖g‖, weight ηα‖g‖, of the order of the gradient. `square` (Algorithm 1):
    α_t = α, weight ηα‖g‖². The weighted value is (−w·α_t − β + η·α_t·⟨s, g⟩)·g (Eq. 85).
    """

    value_rate: Rate  # β
    weight_rate: Rate  # η
    gauge: float  # α > 0
    order: Literal["length", "square"] = "length"

    def rates(self, step: int) -> Rates:
        return Rates(rate_at(self.value_rate, step), rate_at(self.weight_rate, step))

    def __call__(self, signals: Signals, rates: Rates) -> tuple[jax.Array, jax.Array | None]:
        outputs, gradients, _ = signals
        square = jnp.sum(gradients * gradients, axis=1)
        alignment = jnp.sum(outputs * gradients, axis=1)
        if self.order == "square":
            weights = rates.weight * self.gauge * square
            factor = rates.weight * self.gauge * alignment - weights * self.gauge
        else:
            length = jnp.sqrt(square)
            weights = rates.weight * self.gauge * length
            # w·α_t = ηα² exactly; the paper adds 1e-8 to the length that divides (F.3.1).
            factor = rates.weight * self.gauge * (alignment / (length + 1e-8) - self.gauge)
        return (factor - rates.value)[:, None] * gradients, weights
