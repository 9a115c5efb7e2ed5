"""Configurations of parametric networks, the baselines, and the learners they describe."""

from typing import Annotated, Literal

import optax
from flax import nnx
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from .ewc import elastic
from .learner import Learner
from .losses import Task
from .networks import Network, ParametricSoftmaxNetwork, ResidualMLP
from .optimisers import AdamConfig, OptimiserConfig, build_optimiser
from .parametric_softmax import ParametricSoftmaxLayer

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@config(frozen=True, config=_STRICT, kw_only=True)
class HeldConfig:
    """What learners share whose parameters are trained."""

    # λ of elastic weight consolidation: how strongly parameters are held where earlier phases left them.
    ewc: Annotated[float, Field(ge=0)] = 0.0
    # Examples of a phase (its first ones) that the importance of parameters is measured on at its end.
    ewc_examples: Annotated[int, Field(gt=0)] = 256
    # Trains all that does not grow, on the batch-mean loss.
    optimiser: OptimiserConfig = AdamConfig(kind="adam")


@config(frozen=True, config=_STRICT, kw_only=True)
class MLPConfig(HeldConfig):
    """A residual MLP."""

    kind: Literal["mlp"]
    # Residual blocks in front of the readout.
    blocks: Annotated[int, Field(ge=0)] = 1
    # Matrices of a block: W₂·σ(W₁·norm(e)), or σ(W·norm(e)).
    matrices: Literal[1, 2] = 2
    # Hidden units of a block of two matrices; None: as many as the input has features.
    width: Annotated[int, Field(gt=0)] | None = None
    # σ.
    activation: Literal["relu", "gelu", "softmax"] = "gelu"

    @model_validator(mode="after")
    def _check(self) -> "MLPConfig":
        if self.matrices == 1 and self.width is not None:
            raise ValueError("width is that of blocks of two matrices: leave it out, or set matrices: 2")
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class ParametricSoftmaxConfig(HeldConfig):
    """A residual network of softmax layers of fixed size."""

    kind: Literal["parametric_softmax"]
    # Residual blocks in front of the readout.
    blocks: Annotated[int, Field(ge=0)] = 0
    # Entries of each layer, N.
    entries: Annotated[int, Field(gt=0)]
    # T: inner products are divided by T·√d_in.
    temperature: Annotated[float, Field(gt=0)]
    # Whether entries have trained weights beside keys and values.
    weighted: bool = False


ParametricConfig = MLPConfig | ParametricSoftmaxConfig


def build_parametric(config: ParametricConfig, *, features: int, task: Task, seed: int) -> Learner:
    """The learner that a configuration describes.

    Args:
      config: the configuration.
      features: numbers per example, flattened.
      task: what the outputs mean.
      seed: draws the initial parameters.
    """
    network = _network(config, features, task, nnx.Rngs(seed))
    return Learner(network, task, held_optimiser(config, network))


def held_optimiser(config: HeldConfig, network: Network) -> optax.GradientTransformation:
    """The optimiser of a network's parameters, which holds them where earlier phases left them if wanted."""
    optimiser = build_optimiser(config.optimiser, network)
    return elastic(optimiser, config.ewc) if config.ewc else optimiser


def _network(config: ParametricConfig, features: int, task: Task, rngs: nnx.Rngs) -> Network:
    if isinstance(config, MLPConfig):
        width = None if config.matrices == 1 else config.width or features
        return ResidualMLP(features, task.outputs, config.blocks, width, config.activation, rngs=rngs)
    shapes = [(f"block{number}", features) for number in range(config.blocks)] + [("readout", task.outputs)]
    return ParametricSoftmaxNetwork(
        [
            ParametricSoftmaxLayer(
                name,
                features,
                outputs,
                config.entries,
                config.temperature,
                weighted=config.weighted,
                rngs=rngs,
            )
            for name, outputs in shapes
        ]
    )
