"""What a learner takes, has learnt, and returns: batches, states and results."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from ..memory.append import Occupancy
from ..memory.coefficients import Clock, Clocks, CoefficientTable, device_table
from ..memory.cold import ColdPart
from ..memory.database import Database
from .dense import DenseSignals
from .training import States


class Examples(Protocol):
    """A batch: any object with these attributes."""

    @property
    def x(self) -> np.ndarray: ...  # [B, …]
    @property
    def y(self) -> np.ndarray: ...  # [B] labels, or [B, C] targets
    @property
    def origins(self) -> np.ndarray: ...  # [B] stream offsets


class Batch(NamedTuple):
    """The plainest batch."""

    x: np.ndarray  # [B, …]
    y: np.ndarray  # [B] labels, or [B, C] targets
    origins: np.ndarray  # [B] stream offsets


@dataclass(frozen=True)
class Memory:
    """One growing layer's state."""

    database: Database
    occupancy: Occupancy
    clocks: Clocks | None  # None where neither momentum nor decay is used
    cold: ColdPart | None = None  # the entries on disk; None without a byte budget
    training: States | None = None  # the optimisers' states where entries are trained

    @property
    def entries(self) -> int:
        """Entries in memory and on disk (waits for the device)."""
        return int(self.database.entries) + (0 if self.cold is None else self.cold.entries)

    @property
    def table(self) -> CoefficientTable | None:
        """The present coefficients by creation step; None where all are 1."""
        if self.clocks is None:
            return None
        return device_table(self.clocks, self.database.blocks[0].keys.dtype)

    def held(self) -> "Memory":
        """The memory one step later in which nothing was added and nothing faded."""
        return self if self.clocks is None else replace(self, clocks=self.clocks.each(Clock.hold))


@dataclass(frozen=True)
class State:
    """All that a learner has learnt. Passing it to `update` consumes it."""

    step: int  # updates done
    memories: Mapping[str, Memory]  # by layer name
    parameters: Any  # the network's nnx.State of parameters
    optimiser: Any  # the optimiser's state


@dataclass(frozen=True)
class Result:
    """What one update saw and did."""

    outputs: Any  # [B, C], of texts `Tokens`: predicted before learning from the batch
    losses: jax.Array  # [B] of those predictions
    changes: Mapping[str, jax.Array]  # per layer [5] int32: admitted, merged, rejected, pruned, evicted
    pruning_bounds: Mapping[str, float]  # layers pruned at this step: bound on their output's change
    nearest: Mapping[str, jax.Array]  # [R] distances to the nearest keys, where admission measures them
    maintain_seconds: float  # time that pruning and folding took
    dense: Mapping[str, DenseSignals]  # per dense layer: its inputs and output gradients
    # [R] the example of each row, B for none, of layers that read tokens.
    examples: Mapping[str, jax.Array] = field(default_factory=dict)
