"""Learner configurations, and the learners they describe."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import jax
import optax
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from ..errors import ConfigError
from ..memory.kernels import (
    RBF,
    Cosine,
    Kernel,
    Laplace,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    RationalQuadratic,
    WeightedSoftmax,
)
from ..memory.policy import MemoryConfig
from ..memory.sharding import ONE_DEVICE, Shards
from .decoder_config import DecoderConfig, build_decoder
from .layers import GrowingLayer, GrowingSpec
from .learner import Learner
from .losses import Task
from .neighbours import NeighboursConfig, neighbours_network
from .networks import ResidualGrowingNetwork
from .optimisers import AdamConfig, PlainConfig, build_plain
from .parametric import ParametricConfig, build_parametric
from .rules import GaugeRule, GrowingRule, KernelRule, NaiveSoftmaxRule, WeightedSoftmaxRule
from .schedules import Schedule, highest
from .training import EntryTraining

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

_GROWS = "grows: every layer; trained: nothing"
LEARNERS: dict[str, str] = {
    "rbf": f"residual network of growing RBF layers (Algorithm 5); {_GROWS}",
    "softmax": f"the same with weighted softmax layers (Algorithm 3); {_GROWS}",
    "naive_softmax": f"the same without weights (App. B.3), a cautionary baseline; {_GROWS}",
    "gauge": f"the same with gauge-invariant softmax layers (Algorithms 1 and 2); {_GROWS}",
    "linear": f"the same with linear layers, SGD's dual form (Sec. 2); {_GROWS}",
    "laplace": f"the same with the Laplace kernel (Sec. 3.1, as all below); {_GROWS}",
    "matern32": f"the same with the Matérn-3/2 kernel; {_GROWS}",
    "matern52": f"the same with the Matérn-5/2 kernel; {_GROWS}",
    "rational_quadratic": f"the same with the rational quadratic kernel; {_GROWS}",
    "polynomial": f"the same with a polynomial kernel; {_GROWS}",
    "cosine": f"the same with the cosine kernel; {_GROWS}",
    "knn": "soft nearest neighbours of the inputs; grows: the readout, by targets; trained: nothing",
    "mlp": "parametric residual MLP (Eq. 12); grows: nothing; trained: all weights, by an optimiser",
    "decoder": "decoder of texts; grows: feed-forward parts of kind rbf; trained: all else, by an optimiser",
    "parametric_softmax": "softmax layers of fixed size (F.5); grows: nothing; trained: all entries",
}


@config(frozen=True, config=_STRICT, kw_only=True)
class TrainConfig:
    """How the entries of hybrid layers are trained, on the batch-mean loss."""

    # The optimiser, a name or a mapping with its options; each column has one of its own.
    optimiser: PlainConfig = AdamConfig(kind="adam")
    # What the steps of a column are multiplied by; 0: the column is not trained.
    keys: Annotated[float, Field(ge=0)] = 1.0
    values: Annotated[float, Field(ge=0)] = 1.0
    weights: Annotated[float, Field(ge=0)] = 1.0


@config(frozen=True, config=_STRICT, kw_only=True)
class GrowingConfig:
    """What all growing residual networks share."""

    # Growing blocks in front of the growing readout.
    blocks: Annotated[int, Field(ge=0)] = 1
    # Step size of stored values: η of linear and RBF layers, β of softmax layers; per example, not per batch.
    value_rate: Annotated[float, Field(gt=0)] | Schedule
    # μ: momentum on stored entries.
    momentum: Annotated[float, Field(ge=0, lt=1)] | Schedule = 0.0
    # γ: weight decay per step.
    decay: Annotated[float, Field(ge=0, lt=1)] | Schedule = 0.0
    # How each layer's database is bounded.
    memory: MemoryConfig = MemoryConfig()
    # Trains the stored entries too, which makes the layers hybrid (Algorithm 4); None: they stay as they are.
    train: TrainConfig | None = None

    @model_validator(mode="after")
    def _check_rates(self) -> "GrowingConfig":
        for name in ("momentum", "decay"):
            most = highest(getattr(self, name))
            if most >= 1:
                raise ValueError(f"{name} must stay below 1; found a schedule that reaches {most}")
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class LinearConfig(GrowingConfig):
    """Growing linear layers."""

    kind: Literal["linear"]


@config(frozen=True, config=_STRICT, kw_only=True)
class CosineConfig(GrowingConfig):
    """Growing layers with the cosine kernel."""

    kind: Literal["cosine"]


@config(frozen=True, config=_STRICT, kw_only=True)
class TemperedConfig(GrowingConfig):
    """What growing layers share whose kernel has a temperature."""

    # T: the kernel's scale is T·√d_in, of squared distances or of inner products.
    temperature: Annotated[float, Field(gt=0)]


@config(frozen=True, config=_STRICT, kw_only=True)
class RBFConfig(TemperedConfig):
    """Growing RBF layers."""

    kind: Literal["rbf"]


@config(frozen=True, config=_STRICT, kw_only=True)
class LaplaceConfig(TemperedConfig):
    """Growing layers with the Laplace kernel."""

    kind: Literal["laplace"]


@config(frozen=True, config=_STRICT, kw_only=True)
class Matern32Config(TemperedConfig):
    """Growing layers with the Matérn-3/2 kernel."""

    kind: Literal["matern32"]


@config(frozen=True, config=_STRICT, kw_only=True)
class Matern52Config(TemperedConfig):
    """Growing layers with the Matérn-5/2 kernel."""

    kind: Literal["matern52"]


@config(frozen=True, config=_STRICT, kw_only=True)
class RationalQuadraticConfig(TemperedConfig):
    """Growing layers with the rational quadratic kernel."""

    kind: Literal["rational_quadratic"]
    # α: how heavy the tails are; RBF as α → ∞.
    shape: Annotated[float, Field(gt=0)] = 1.0


@config(frozen=True, config=_STRICT, kw_only=True)
class PolynomialConfig(TemperedConfig):
    """Growing layers with a polynomial kernel."""

    kind: Literal["polynomial"]
    # p.
    degree: Annotated[int, Field(ge=1)] = 2
    # c.
    constant: Annotated[float, Field(ge=0)] = 1.0


@config(frozen=True, config=_STRICT, kw_only=True)
class NormalisedConfig(TemperedConfig):
    """What growing layers share whose answer is a weighted mean."""

    # The initial function's entries: random of unit size, the same with values that sum to zero, or zeros.
    initial: Literal["unit", "centred", "zero"] = "unit"
    # How many of them; None: as many as a batch has examples.
    initial_entries: Annotated[int, Field(gt=0)] | None = None


@config(frozen=True, config=_STRICT, kw_only=True)
class NaiveSoftmaxConfig(NormalisedConfig):
    """Growing softmax layers without weights (App. B.3): every new entry changes the whole function."""

    kind: Literal["naive_softmax"]

    @model_validator(mode="after")
    def _check(self) -> "NaiveSoftmaxConfig":
        if self.momentum != 0 or self.decay != 0:
            raise ValueError(
                "entries without weights have no momentum and decay: leave them out, or kind: softmax"
            )
        if self.train is not None and self.train.weights != 0:
            raise ValueError(
                "entries without weights have none to train: set train.weights: 0, or kind: softmax"
            )
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class WeightedConfig(NormalisedConfig):
    """What growing layers share whose entries carry weights."""

    # η: step size of stored weights.
    weight_rate: Annotated[float, Field(ge=0)] | Schedule
    # Whether weights have momentum too, or values only (Table 16).
    momentum_on: Literal["both", "values"] = "both"
    # Whether weights that a growing rule or a training step makes negative become 0, or stay (App. C.5).
    negative_weights: Literal["clipped", "kept"] = "clipped"
    # ε of kept ones: the least denominator, as a share of what it would be were all weights positive.
    least_share: Annotated[float, Field(gt=0, le=1)] = 0.5

    @model_validator(mode="after")
    def _check_share(self) -> "WeightedConfig":
        if self.negative_weights == "clipped" and self.least_share != 0.5:
            raise ValueError(
                "least_share limits negative weights: leave it out, or set negative_weights: kept"
            )
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class SoftmaxConfig(WeightedConfig):
    """Growing weighted softmax layers (Algorithm 3)."""

    kind: Literal["softmax"]
    # ⟨s, g⟩, which weights follow, is limited to ± this; None: not limited.
    clip: Annotated[float, Field(gt=0)] | None = None


@config(frozen=True, config=_STRICT, kw_only=True)
class GaugeConfig(WeightedConfig):
    """Growing gauge-invariant weighted softmax layers (Algorithms 1 and 2)."""

    kind: Literal["gauge"]
    # α: distance of the virtual gauge along the gradient, which makes weights positive.
    gauge: Annotated[float, Field(gt=0)]
    # Whether weights grow with the length of the gradient (Algorithm 2) or with its square (Algorithm 1).
    order: Literal["length", "square"] = "length"

    @model_validator(mode="after")
    def _check_sign(self) -> "GaugeConfig":
        if self.negative_weights == "kept" and self.train is None:
            raise ValueError("the gauge makes all weights positive: leave negative_weights out, or train")
        return self


KernelConfig = (
    LinearConfig
    | CosineConfig
    | RBFConfig
    | LaplaceConfig
    | Matern32Config
    | Matern52Config
    | RationalQuadraticConfig
    | PolynomialConfig
)
SoftmaxKind = SoftmaxConfig | NaiveSoftmaxConfig | GaugeConfig
LearnerConfig = Annotated[
    KernelConfig | SoftmaxKind | NeighboursConfig | ParametricConfig | DecoderConfig,
    Field(discriminator="kind"),
]


def build_learner(
    config: LearnerConfig,
    *,
    features: int,
    task: Task,
    batch_size: int,
    seed: int,
    shards: Shards = ONE_DEVICE,
    spill_folder: Path | None = None,
) -> Learner:
    """The learner that a configuration describes.

    Args:
      config: the configuration.
      features: numbers per example, flattened.
      task: what the outputs mean.
      batch_size: examples per update (the default number of initial entries).
      seed: draws a parametric network's weights.
      shards: the devices that the growing layers' entries are spread over.
      spill_folder: where entries go that exceed a memory's byte budget; None: a temporary folder.

    Raises:
      ConfigError: a byte budget is too small, or does not go with the memory's other policies.
    """
    if isinstance(config, DecoderConfig):
        return build_decoder(config, task=task, seed=seed, shards=shards, spill_folder=spill_folder)
    if task.language:
        raise ConfigError(f"learner.kind {config.kind!r} cannot learn texts: set it to decoder")
    if isinstance(config, ParametricConfig):
        return build_parametric(config, features=features, task=task, seed=seed)
    if isinstance(config, NeighboursConfig):
        network = neighbours_network(config, features=features, task=task, seed=seed)
        return Learner(network, task, shards=shards, spill_folder=spill_folder)
    kernel, rule = _kernel_and_rule(config)
    spec = GrowingSpec(
        features,
        features,
        kernel,
        rule,
        config.memory,
        "unit",
        0,
        config.momentum,
        config.decay,
        seed=seed,
        training=None if config.train is None else _training(config.train),
    )
    if isinstance(config, NormalisedConfig):
        spec = replace(spec, initial=config.initial, initial_entries=config.initial_entries or batch_size)
    if isinstance(config, WeightedConfig):
        training = spec.training
        if training is not None and config.negative_weights == "clipped":
            training = replace(training, least_initial_weight=1 / (2 * spec.initial_entries))
        spec = replace(spec, momentum_on=config.momentum_on, training=training)
    elif isinstance(config, NaiveSoftmaxConfig):
        spec = replace(spec, initial_weight=1.0)
    blocks = [
        GrowingLayer(f"block{number}", replace(spec, seed=seed + number + 1))
        for number in range(config.blocks)
    ]
    readout = GrowingLayer("readout", replace(spec, value_features=task.outputs))
    return Learner(ResidualGrowingNetwork(blocks, readout), task, shards=shards, spill_folder=spill_folder)


def initial_key(seed: int) -> jax.Array:
    """The random key from which a run's learner draws its initial function."""
    return jax.random.key(seed)


def _training(config: TrainConfig) -> EntryTraining:
    optimiser = build_plain(config.optimiser)
    columns = [
        optax.chain(optimiser, optax.scale(factor)) if factor else optax.set_to_zero()
        for factor in (config.keys, config.values, config.weights)
    ]
    return EntryTraining(*columns)


def _kernel_and_rule(config: KernelConfig | SoftmaxKind) -> tuple[Kernel, GrowingRule]:
    match config:
        case SoftmaxConfig():
            kept = config.negative_weights == "kept"
            rule = WeightedSoftmaxRule(config.value_rate, config.weight_rate, config.clip, kept)
            return _weighted(config), rule
        case NaiveSoftmaxConfig():
            return WeightedSoftmax(config.temperature), NaiveSoftmaxRule(config.value_rate)
        case GaugeConfig():
            gauge = GaugeRule(config.value_rate, config.weight_rate, config.gauge, config.order)
            return _weighted(config), gauge
    return _kernel(config), KernelRule(config.value_rate)


def _weighted(config: WeightedConfig) -> WeightedSoftmax:
    share = config.least_share if config.negative_weights == "kept" else 0.0
    return WeightedSoftmax(config.temperature, share)


def _kernel(config: KernelConfig) -> Kernel:
    match config:
        case LinearConfig():
            return Linear()
        case CosineConfig():
            return Cosine()
        case RBFConfig():
            return RBF(config.temperature)
        case LaplaceConfig():
            return Laplace(config.temperature)
        case Matern32Config():
            return Matern32(config.temperature)
        case Matern52Config():
            return Matern52(config.temperature)
        case RationalQuadraticConfig():
            return RationalQuadratic(config.temperature, config.shape)
        case PolynomialConfig():
            return Polynomial(config.temperature, config.degree, config.constant)
