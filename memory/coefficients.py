"""What momentum and weight decay make of entries as they age (App. A.4, D).

Stored values never change with age. All entries of one creation step share a coefficient, advanced once per
step by the recurrences (92–93), in float64 on the host:

    velocity ← μ·velocity,   coefficient ← (1 − γ)·coefficient + velocity,

both 1 for the newest step. For constant rates this is Eq. 100 divided by its value at age 0. Entries of the
initial function have no velocity: their coefficient only decays.
"""

from dataclasses import dataclass
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

    def hold(self) -> "Clock":
        """One step later in which nothing fades and nothing is added: no entry is of that step."""
        rows = [np.append(each, 1.0) for each in (self.coefficients, self.velocities)]
        return Clock(self.step + 1, self.initial, *rows)

    def future_bounds(self, momentum: float) -> np.ndarray:
        """[step] upper bounds on each coefficient from now on, if momentum stays at most `momentum`.

        A velocity v adds at most v·(μ + μ² + …) more; decay only lowers the sum.
        """
        ahead = momentum / (1 - momentum)
        return self.coefficients + self.velocities * ahead


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CoefficientTable:
    """Coefficients by creation step on the device, padded."""

    values: jax.Array  # [S]; row 0 is the initial entries'
    weights: jax.Array  # [S]


def device_table(values: Clock, weights: Clock, dtype: Any) -> CoefficientTable:
    """The clocks' coefficients as a table indexed by creation step."""
    return CoefficientTable(
        *(jnp.asarray(pad_by_step(clock.initial, clock.coefficients), dtype) for clock in (values, weights))
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
