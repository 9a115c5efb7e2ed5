"""How a schedule, decay and momentum weight what a dense layer learnt from, alone and all together."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import optax

from ..errors import ConfigError
from ..learners.sgd import SGD, Rate

SCHEDULES = ("constant", "linear", "cosine", "warmup-cosine", "exponential")


@dataclass(frozen=True)
class Comparison:
    """The entries of a dense layer's dual form after training, under several rules beside plain descent."""

    steps: int
    learning_rate: float  # of plain gradient descent, whose entries all have this weight
    rules: Mapping[str, SGD]

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """By rule, [1 + steps]: how much of W₀ is left, then the weight of each step's gradients."""
        return {name: rule.weights(self.steps) for name, rule in self.rules.items()}

    @property
    def relative(self) -> dict[str, np.ndarray]:
        """By rule, [steps]: each step's weight over the one it has in plain gradient descent."""
        return {name: weights[1:] / self.learning_rate for name, weights in self.weights.items()}

    def values(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "steps": self.steps,
            "learning_rate": self.learning_rate,
            "rules": {
                name: {"initial": float(weights[0]), "weights": weights[1:].tolist()}
                for name, weights in self.weights.items()
            },
        }

    def text(self) -> str:
        """A table: what is left of W₀, and how heavy old, middle and new entries are."""
        lines = [f"{'relative to plain descent':<32}  {'W0':>6}  {'oldest':>7}  {'middle':>7}  {'newest':>7}"]
        for name, relative in self.relative.items():
            ages = "  ".join(f"{relative[place]:>7.3f}" for place in (0, self.steps // 2, -1))
            lines.append(f"{name:<32}  {self.weights[name][0]:>6.3f}  {ages}")
        return "\n".join(lines)


def compare(
    steps: int, learning_rate: float, schedule: str, momentum: float, decay: float, *, coupled: bool = False
) -> Comparison:
    """Compares a schedule, decay and momentum with plain gradient descent.

    Args:
      steps: of training, ≥ 1.
      learning_rate: η > 0, the schedule's largest.
      schedule: one of SCHEDULES.
      momentum: μ.
      decay: λ, of optax's decayed weights.
      coupled: whether decay passes through momentum (see `SGD`).

    Raises:
      ConfigError: a rate is out of range.
    """
    if not learning_rate > 0:
        raise ConfigError(f"learning_rate: expected a number above 0; found {learning_rate}")
    rate = _schedule(schedule, learning_rate, steps)
    kind = "coupled decay" if coupled else "decay"
    rules = {
        f"{schedule} learning rate": SGD(rate),
        f"{kind} {decay:g}": SGD(learning_rate, decay=decay, coupled=coupled),
        f"momentum {momentum:g}": SGD(learning_rate, momentum=momentum),
        "all together": SGD(rate, momentum=momentum, decay=decay, coupled=coupled),
    }
    return Comparison(steps, learning_rate, rules)


def _schedule(name: str, peak: float, steps: int) -> Rate:
    """From `peak` to 0 (exponential: to a hundredth of it) over the steps; warm-up takes a tenth of them."""
    schedules: dict[str, Rate] = {
        "constant": peak,
        "linear": optax.linear_schedule(peak, 0.0, steps),
        "cosine": optax.cosine_decay_schedule(peak, steps),
        "warmup-cosine": optax.warmup_cosine_decay_schedule(0.0, peak, steps // 10, steps),
        "exponential": optax.exponential_decay(peak, steps, 0.01),
    }
    return schedules[name]
