"""Learner configurations, and the learners they describe."""

from dataclasses import replace
from typing import Annotated, Literal

import jax
import optax
from flax import nnx
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as config

from ..memory.kernels import RBF, Kernel, Linear, WeightedSoftmax
from ..memory.policies import MemoryConfig
from ..memory.sharding import ONE_DEVICE, Shards
from .layers import GrowingLayer, GrowingSpec
from .learner import Learner
from .losses import Task
from .networks import ResidualGrowingNetwork, ResidualMLP
from .rules import GrowingRule, KernelRule, WeightedSoftmaxRule

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

LEARNERS: dict[str, str] = {
    "rbf": "residual network of growing RBF layers (Algorithm 5); grows: every layer; trained: nothing",
    "softmax": "the same with weighted softmax layers (Algorithm 3); grows: every layer; trained: nothing",
    "linear": "the same with linear layers, SGD's dual form (Sec. 2); grows: every layer; trained: nothing",
    "mlp": "parametric residual MLP (Eq. 12); grows: nothing; trained: all weights, by an optax optimiser",
}


@config(frozen=True, config=_STRICT, kw_only=True)
class GrowingConfig:
    """What all growing residual networks share."""

    # Growing blocks in front of the growing readout.
    blocks: Annotated[int, Field(ge=0)] = 1
    # Step size of stored values: η of linear and RBF layers, β of softmax layers; per example, not per batch.
    value_rate: Annotated[float, Field(gt=0)]
    # μ: momentum on stored entries.
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    # γ: weight decay per step.
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    # How each layer's database is bounded.
    memory: MemoryConfig = MemoryConfig()


@config(frozen=True, config=_STRICT, kw_only=True)
class LinearConfig(GrowingConfig):
    """Growing linear layers."""

    kind: Literal["linear"]


@config(frozen=True, config=_STRICT, kw_only=True)
class RBFConfig(GrowingConfig):
    """Growing RBF layers."""

    kind: Literal["rbf"]
    # T: kernel width; the exponent's scale is T·√d_in.
    temperature: Annotated[float, Field(gt=0)]


@config(frozen=True, config=_STRICT, kw_only=True)
class SoftmaxConfig(GrowingConfig):
    """Growing weighted softmax layers."""

    kind: Literal["softmax"]
    # T: softmax temperature; logits are ⟨k, q⟩ / (T·√d_in).
    temperature: Annotated[float, Field(gt=0)]
    # η: step size of stored weights.
    weight_rate: Annotated[float, Field(ge=0)]
    # The initial function's entries: random of unit size, or zeros.
    initial: Literal["unit", "zero"] = "unit"
    # How many of them; None: as many as a batch has examples.
    initial_entries: Annotated[int, Field(gt=0)] | None = None


@config(frozen=True, config=_STRICT, kw_only=True)
class MLPConfig:
    """The parametric baseline."""

    kind: Literal["mlp"]
    # Residual blocks in front of the readout.
    blocks: Annotated[int, Field(ge=0)] = 1
    # Hidden units of a block; None: as many as the input has features.
    width: Annotated[int, Field(gt=0)] | None = None
    # σ.
    activation: Literal["relu", "gelu", "softmax"] = "gelu"
    # Trains all weights on the batch-mean loss.
    optimiser: Literal["sgd", "adam", "adamw", "rmsprop"] = "adam"
    # Its step size.
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3


LearnerConfig = Annotated[RBFConfig | SoftmaxConfig | LinearConfig | MLPConfig, Field(discriminator="kind")]


def build_learner(
    config: LearnerConfig,
    *,
    features: int,
    task: Task,
    batch_size: int,
    seed: int,
    shards: Shards = ONE_DEVICE,
) -> Learner:
    """The learner that a configuration describes.

    Args:
      config: the configuration.
      features: numbers per example, flattened.
      task: what the outputs mean.
      batch_size: examples per update (the default number of initial entries).
      seed: draws a parametric network's weights.
      shards: the devices that the growing layers' entries are spread over.
    """
    if isinstance(config, MLPConfig):
        return _parametric(config, features, task, seed)
    kernel, rule = _kernel_and_rule(config)
    initial, count = "unit", 0
    if isinstance(config, SoftmaxConfig):
        initial, count = config.initial, config.initial_entries or batch_size
    spec = GrowingSpec(
        features, features, kernel, rule, config.memory, initial, count, config.momentum, config.decay
    )
    blocks = [GrowingLayer(f"block{number}", spec) for number in range(config.blocks)]
    readout = GrowingLayer("readout", replace(spec, value_features=task.outputs))
    return Learner(ResidualGrowingNetwork(blocks, readout), task, shards=shards)


def initial_key(seed: int) -> jax.Array:
    """The random key from which a run's learner draws its initial function."""
    return jax.random.key(seed)


def _kernel_and_rule(config: RBFConfig | SoftmaxConfig | LinearConfig) -> tuple[Kernel, GrowingRule]:
    if isinstance(config, SoftmaxConfig):
        return WeightedSoftmax(config.temperature), WeightedSoftmaxRule(config.value_rate, config.weight_rate)
    kernel = RBF(config.temperature) if isinstance(config, RBFConfig) else Linear()
    return kernel, KernelRule(config.value_rate)


def _parametric(config: MLPConfig, features: int, task: Task, seed: int) -> Learner:
    optimisers = {"sgd": optax.sgd, "adam": optax.adam, "adamw": optax.adamw, "rmsprop": optax.rmsprop}
    network = ResidualMLP(
        features,
        task.outputs,
        config.blocks,
        config.width or features,
        config.activation,
        rngs=nnx.Rngs(seed),
    )
    return Learner(network, task, optimisers[config.optimiser](config.learning_rate))
