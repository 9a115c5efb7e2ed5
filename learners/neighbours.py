"""Soft nearest neighbours: the memory of exemplars that growing networks are compared with."""

from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as config

from ..memory.kernels import WeightedSoftmax
from ..memory.policy import MemoryConfig
from .layers import GrowingLayer, GrowingSpec
from .losses import Task
from .networks import ResidualGrowingNetwork
from .rules import Rates, Signals


@config(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False), kw_only=True)
class NeighboursConfig:
    """Soft nearest neighbours: the mean of all targets seen, weighted by exp(⟨k, q⟩ / T√d).

    Keys are normalised inputs; no representation is learnt. Outputs are shares of the classes, not logits, so
    their loss says nothing.
    """

    kind: Literal["knn"]
    # T: the lower, the fewer neighbours count.
    temperature: Annotated[float, Field(gt=0)]
    # How the exemplars are bounded.
    memory: MemoryConfig = MemoryConfig()


@dataclass(frozen=True)
class TargetRule:
    """Value: the target; weight 1. Both losses' gradients give the target away.

    Cross-entropy has g = softmax(s) − onehot(y), squared error g = 2·(s − y).
    """

    classification: bool

    def rates(self, step: int) -> Rates:
        return Rates(1.0)

    def __call__(self, signals: Signals, rates: Rates) -> tuple[jax.Array, jax.Array | None]:
        outputs, gradients, _ = signals
        if self.classification:
            targets = jax.nn.softmax(outputs, axis=1) - gradients
        else:
            targets = outputs - gradients / 2
        return rates.value * targets, jnp.ones(outputs.shape[0], outputs.dtype)


def neighbours_network(
    config: NeighboursConfig, *, features: int, task: Task, seed: int
) -> ResidualGrowingNetwork:
    """The network of one growing readout; one initial entry of weight 1 and value 0 is the prior.

    Args:
      config: the configuration.
      features: numbers per example, flattened.
      task: what the outputs mean.
      seed: of what the memory's policies draw at random.
    """
    rule = TargetRule(task.classification)
    kernel = WeightedSoftmax(config.temperature)
    spec = GrowingSpec(features, task.outputs, kernel, rule, config.memory, "zero", 1, 0.0, 0.0, seed=seed)
    return ResidualGrowingNetwork([], GrowingLayer("readout", spec))
