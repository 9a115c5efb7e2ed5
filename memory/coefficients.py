"""What momentum and weight decay make of entries as they age (App. A.4, D).

Stored values never change with age. All entries of one creation step share a coefficient, advanced once per
step by the recurrences (92–93), in float64 on the host:

    velocity ← μ·velocity,   coefficient ← (1 − γ)·coefficient + velocity,

both 1 for the newest step. For constant rates this is Eq. 100 divided by its value at age 0. Entries of the
initial function have no velocity: their coefficient only decays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .database import EMPTY, INITIAL, Block
from .scores import Coefficients

_FIRST_ROWS = 1024  # padding of the table on the device; grows fourfold, so that shapes are few


@dataclass(frozen=True)
class Clock:
    """The coefficient of every creation step up to `step`.

    >>> clock = Clock.start().advance(momentum=0.9, decay=0.0).advance(momentum=0.9, decay=0.0)
    >>> clock.coefficients.tolist()
    [1.9, 1.0]
    """

    step: int  # the present step; rows are for creation steps 1 … step
    initial: float  # coefficient of the initial entries
    coefficients: np.ndarray  # [step] float64
    velocities: np.ndarray  # [step] float64

    @classmethod
    def start(cls) -> "Clock":
        """Step 0: only the initial function exists."""
        return cls(0, 1.0, np.empty(0), np.empty(0))

    def advance(self, *, momentum: float, decay: float) -> "Clock":
        """One step later, with that step's rates μ and γ; the new step's coefficient is 1."""
        velocities = np.append(self.velocities * momentum, 1.0)
        coefficients = np.append(self.coefficients * (1 - decay), 0.0) + velocities
        return Clock(self.step + 1, self.initial * (1 - decay), coefficients, velocities)

    @classmethod
    def at_rest(cls, step: int) -> "Clock":
        """As if nothing had faded so far and no momentum were left."""
        return cls(step, 1.0, np.ones(step), np.zeros(step))

    def without_momentum(self) -> "Clock":
        """One step later in which nothing fades, and whose own entries have no momentum."""
        return Clock(
            self.step + 1, self.initial, np.append(self.coefficients, 1.0), np.append(self.velocities, 0.0)
        )

    def hold(self) -> "Clock":
        """One step later in which nothing fades and nothing is added: no entry is of that step."""
        rows = [np.append(each, 1.0) for each in (self.coefficients, self.velocities)]
        return Clock(self.step + 1, self.initial, *rows)

    def bounded(self, momentum: float) -> "Clock":
        """Upper bounds on the coefficients from now on, if momentum stays at most `momentum`.

        A velocity v adds at most v·(μ + μ² + …) more; decay only lowers the sum.
        """
        ahead = momentum / (1 - momentum)
        return replace(self, coefficients=self.coefficients + self.velocities * ahead)

    def scaled(self, first: int, last: int, factor: float) -> "Clock":
        """The entries created in steps first … last multiplied by a factor: decay of an older phase.

        Step 0 is the initial function. Momentum not yet paid out is multiplied too.
        """
        chosen = slice(max(first, 1) - 1, last)
        coefficients, velocities = self.coefficients.copy(), self.velocities.copy()
        coefficients[chosen] *= factor
        velocities[chosen] *= factor
        return Clock(self.step, self.initial * (factor if first <= 0 else 1), coefficients, velocities)


@dataclass(frozen=True)
class Clocks:
    """The clocks of a memory's values and weights; one and the same object where they do not differ."""

    values: Clock
    weights: Clock

    @classmethod
    def start(cls) -> "Clocks":
        """Step 0."""
        return cls.both(Clock.start())

    @classmethod
    def both(cls, clock: Clock) -> "Clocks":
        """The same clock for values and weights."""
        return cls(clock, clock)

    def advance(self, *, momentum: float, weight_momentum: float, decay: float) -> "Clocks":
        """One step later (see `Clock.advance`), with a momentum of values and one of weights (Table 16)."""
        values = self.values.advance(momentum=momentum, decay=decay)
        if self.weights is self.values and momentum == weight_momentum:
            return Clocks.both(values)
        return Clocks(values, self.weights.advance(momentum=weight_momentum, decay=decay))

    def each(self, change: Callable[[Clock], Clock]) -> "Clocks":
        """Both clocks changed alike."""
        values = change(self.values)
        return Clocks(values, values if self.weights is self.values else change(self.weights))

    def bounded(self, momentum: float, weight_momentum: float) -> "Clocks":
        """Upper bounds on the coefficients from now on (see `Clock.bounded`)."""
        values = self.values.bounded(momentum)
        if self.weights is self.values and momentum == weight_momentum:
            return Clocks.both(values)
        return Clocks(values, self.weights.bounded(weight_momentum))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CoefficientTable:
    """Coefficients by creation step on the device, padded."""

    values: jax.Array  # [S]; row 0 is the initial entries'
    weights: jax.Array  # [S]


def device_table(clocks: Clocks, dtype: Any) -> CoefficientTable:
    """The clocks' coefficients as a table indexed by creation step."""
    each = (clocks.values, clocks.weights)
    return CoefficientTable(
        *(jnp.asarray(pad_by_step(clock.initial, clock.coefficients), dtype) for clock in each)
    )


def pad_by_step(initial: float, rows: np.ndarray) -> np.ndarray:
    """[S] float64: `initial`, then `rows` by creation step, then zeros up to a size that rarely changes."""
    size = _FIRST_ROWS
    while size < len(rows) + 1:
        size *= 4
    padded = np.zeros(size)
    padded[0] = initial
    padded[1 : len(rows) + 1] = rows
    return padded


def block_coefficients(block: Block, table: CoefficientTable | None) -> Coefficients:
    """The coefficient of each slot of a block; zero where it is empty.

    Args:
      block: the block.
      table: coefficients by creation step, or None where neither momentum nor decay is used (all are 1).
    """
    if table is None:
        ones = block.live.astype(block.keys.dtype)
        return Coefficients(ones, None if block.weights is None else ones)
    row = jnp.maximum(block.created, INITIAL)
    values = jnp.where(block.created == EMPTY, 0, table.values[row])
    if block.weights is None:
        return Coefficients(values, None)
    return Coefficients(values, jnp.where(block.created == EMPTY, 0, table.weights[row]))
