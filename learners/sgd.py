"""What SGD makes of each step's gradient: the weights of the entries in a dense layer's dual form.

A dense layer trained by SGD is W₀ minus a sum of all its gradients (Sec. 2). Learning rate, momentum and
decay, of a gradient's own step and of all later ones, only decide the weight that it has in that sum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from ..errors import ConfigError

Rate = float | Callable[[Any], Any]  # constant, or an optax schedule: a function of the steps done before


@dataclass(frozen=True)
class SGD:
    """Gradient descent with momentum and weight decay, each constant or scheduled.

    With ∇ the gradient of step t, and η, μ, λ that step's rates, decay is either decoupled (Eqs. 92–93 with
    γ = ηλ) or coupled, when it passes through the momentum like a gradient of (λ/2)·‖W‖²:

        decoupled:  ν ← μν + ∇,       W ← (1 − ηλ)·W − ην
        coupled:    ν ← μν + ∇ + λW,  W ← W − ην

    Nesterov's momentum replaces ν in W's line by what was just added to it, plus μν.

    >>> SGD(0.1, momentum=0.9).weights(3)[1:].round(3).tolist()
    [0.271, 0.19, 0.1]

    Raises:
      ConfigError: a constant rate is out of range.
    """

    learning_rate: Rate  # η
    momentum: Rate = 0.0  # μ
    decay: Rate = 0.0  # λ
    coupled: bool = False
    nesterov: bool = False

    def __post_init__(self) -> None:
        for name in ("learning_rate", "momentum", "decay"):
            rate, limit = getattr(self, name), 1 if name == "momentum" else math.inf
            if not callable(rate) and not 0 <= rate < limit:
                raise ConfigError(f"{name}: expected a number from 0 to below {limit}; found {rate}")

    def weights(self, steps: int) -> np.ndarray:
        """[1 + steps] float64: how much of W₀ is left after that many steps, then each gradient's weight."""
        weights = EntryWeights.start()
        for _ in range(steps):
            weights = weights.advance(self)
        return weights.weights

    def transformation(self) -> optax.GradientTransformation:
        """The same descent as an optax transformation.

        Raises:
          ValueError: momentum is a schedule, which optax's own trace does not take.
        """
        if callable(self.momentum):
            raise ValueError("expected a constant momentum to make an optax transformation; found a schedule")
        decay = optax.add_decayed_weights(self.decay)
        if self.coupled:
            return optax.chain(decay, optax.sgd(self.learning_rate, self.momentum, self.nesterov))
        trace = optax.trace(self.momentum, self.nesterov)
        return optax.chain(trace, decay, optax.scale_by_learning_rate(self.learning_rate))


@dataclass(frozen=True)
class EntryWeights:
    """Weights after so many steps: row 0 is W₀'s, row t that of the (negative) gradients of step t."""

    weights: np.ndarray  # [1 + steps] float64
    velocities: np.ndarray  # [1 + steps] float64: each one's part in ν

    @classmethod
    def start(cls) -> "EntryWeights":
        """Before the first step there is only W₀."""
        return cls(np.ones(1), np.zeros(1))

    @property
    def steps(self) -> int:
        """Steps done."""
        return len(self.weights) - 1

    def advance(self, rule: SGD) -> "EntryWeights":
        """One step of a rule later."""
        rates = (rule.learning_rate, rule.momentum, rule.decay)
        # Schedules are given what optax gives them: for another type of count they round otherwise.
        count = jnp.int32(self.steps)
        rate, momentum, decay = (float(r(count)) if callable(r) else r for r in rates)
        before = np.append(self.weights, 0.0)
        added = np.zeros(len(before))
        added[-1] = 1.0
        if rule.coupled:
            added -= decay * before
        velocities = momentum * np.append(self.velocities, 0.0) + added
        moved = added + momentum * velocities if rule.nesterov else velocities
        kept = before if rule.coupled else (1 - rate * decay) * before
        return replace(self, weights=kept + rate * moved, velocities=velocities)
