"""Rates that change with the steps of a run: constants and schedules.

They are evaluated on the host in float64, because coefficients of entries are advanced there (`Clock`).
"""

from collections.abc import Callable
from math import cos, pi
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@config(frozen=True, config=_STRICT, kw_only=True)
class LinearSchedule:
    """From `first` in a straight line to `last`, which holds from then on."""

    kind: Literal["linear"]
    first: Annotated[float, Field(ge=0)]
    last: Annotated[float, Field(ge=0)]
    # Steps from first to last.
    steps: Annotated[int, Field(gt=0)]

    def at(self, step: int) -> float:
        return self.first + (self.last - self.first) * min(step / self.steps, 1)

    def highest(self) -> float:
        return max(self.first, self.last)


@config(frozen=True, config=_STRICT, kw_only=True)
class CosineSchedule:
    """From `first` along half a cosine to `last`, after a linear warm-up from 0."""

    kind: Literal["cosine"]
    first: Annotated[float, Field(ge=0)]
    last: Annotated[float, Field(ge=0)] = 0.0
    # Steps from first to last, the warm-up included.
    steps: Annotated[int, Field(gt=0)]
    # Steps of the warm-up.
    warmup: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _check(self) -> "CosineSchedule":
        if self.warmup >= self.steps:
            raise ValueError(f"warmup must end before steps do; found {self.warmup} of {self.steps} steps")
        return self

    def at(self, step: int) -> float:
        if step < self.warmup:
            return self.first * step / self.warmup
        done = min((step - self.warmup) / (self.steps - self.warmup), 1)
        return self.last + (self.first - self.last) * (1 + cos(pi * done)) / 2

    def highest(self) -> float:
        return max(self.first, self.last)


@config(frozen=True, config=_STRICT, kw_only=True)
class ExponentialSchedule:
    """`first`, multiplied by `factor` every `steps` steps (smoothly), but never below `floor`."""

    kind: Literal["exponential"]
    first: Annotated[float, Field(ge=0)]
    factor: Annotated[float, Field(gt=0, le=1)]
    steps: Annotated[int, Field(gt=0)]
    floor: Annotated[float, Field(ge=0)] = 0.0

    def at(self, step: int) -> float:
        return float(max(self.first * self.factor ** (step / self.steps), self.floor))

    def highest(self) -> float:
        return max(self.first, self.floor)


@config(frozen=True, config=_STRICT, kw_only=True)
class StepSchedule:
    """values[i] until step boundaries[i]; the last value from the last boundary on."""

    kind: Literal["steps"]
    values: tuple[Annotated[float, Field(ge=0)], ...]
    boundaries: tuple[int, ...]

    @model_validator(mode="after")
    def _check(self) -> "StepSchedule":
        rising = all(a < b for a, b in zip((0, *self.boundaries), self.boundaries, strict=False))
        if len(self.values) != len(self.boundaries) + 1 or not rising:
            raise ValueError(
                "expected rising boundaries > 0 and one value more than boundaries; found "
                f"{len(self.values)} values and boundaries {list(self.boundaries)}"
            )
        return self

    def at(self, step: int) -> float:
        return self.values[sum(step >= boundary for boundary in self.boundaries)]

    def highest(self) -> float:
        return max(self.values)


Schedule = Annotated[
    LinearSchedule | CosineSchedule | ExponentialSchedule | StepSchedule, Field(discriminator="kind")
]
Rate = float | LinearSchedule | CosineSchedule | ExponentialSchedule | StepSchedule
SCHEDULES: dict[str, str] = {
    "linear": "from first in a straight line to last in so many steps",
    "cosine": "from first along half a cosine to last in so many steps, after a warm-up",
    "exponential": "first, multiplied by factor every so many steps",
    "steps": "values that change at boundaries",
}


def rate_at(rate: Rate, step: int) -> float:
    """The rate that holds for update number `step` + 1 of a run.

    >>> rate_at(0.5, 100)
    0.5
    >>> rate_at(LinearSchedule(kind="linear", first=1, last=0, steps=4), 1)
    0.75
    """
    return float(rate) if isinstance(rate, int | float) else rate.at(step)


def traced(rate: Rate) -> float | Callable[[jax.Array], jax.Array]:
    """The rate as optax takes it: a number, or a function of the count of steps done, to be compiled."""
    match rate:
        case LinearSchedule():
            return lambda count: rate.first + (rate.last - rate.first) * jnp.minimum(count / rate.steps, 1)
        case CosineSchedule():
            return lambda count: _cosine(rate, count)
        case ExponentialSchedule():
            return lambda count: jnp.maximum(rate.first * rate.factor ** (count / rate.steps), rate.floor)
        case StepSchedule():
            return lambda count: jnp.take(
                jnp.asarray(rate.values), jnp.sum(count >= jnp.asarray(rate.boundaries, jnp.int32))
            )
        case _:
            return float(rate)


def _cosine(rate: CosineSchedule, count: jax.Array) -> jax.Array:
    done = jnp.minimum((count - rate.warmup) / (rate.steps - rate.warmup), 1)
    falling = rate.last + (rate.first - rate.last) * (1 + jnp.cos(jnp.pi * done)) / 2
    return jnp.where(count < rate.warmup, rate.first * count / max(rate.warmup, 1), falling)


def highest(rate: Rate) -> float:
    """A bound that the rate never exceeds."""
    return float(rate) if isinstance(rate, int | float) else rate.highest()


def require_below_one(**rates: Rate) -> None:
    """Refuses rates that may reach 1, with which sums over steps have no bound.

    Raises:
      ValueError: one does.
    """
    for name, rate in rates.items():
        most = highest(rate)
        if most >= 1:
            raise ValueError(f"{name} must stay below 1; found a schedule that reaches {most}")
