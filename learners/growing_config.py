"""Configurations of growing layers, and the layers they describe."""

from dataclasses import replace
from typing import Annotated, Literal, get_args, get_type_hints

import optax
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

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
from .layers import GrowingSpec
from .optimisers import AdamConfig, PlainConfig, build_plain
from .rules import GaugeRule, GrowingRule, KernelRule, NaiveSoftmaxRule, WeightedSoftmaxRule
from .schedules import Schedule, require_below_one
from .training import EntryTraining

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


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
    """What all growing layers share."""

    # Growing blocks in front of the growing readout; of a named layer: how many such layers in a row.
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
        require_below_one(momentum=self.momentum, decay=self.decay)
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
AnyGrowing = KernelConfig | SoftmaxKind
GROWING_KINDS: tuple[str, ...] = tuple(
    get_args(get_type_hints(each)["kind"])[0] for each in get_args(AnyGrowing)
)


def growing_spec(config: AnyGrowing, *, inputs: int, outputs: int, batch_size: int, seed: int) -> GrowingSpec:
    """The growing layer that a configuration describes.

    Args:
      config: the configuration.
      inputs: numbers per key, D.
      outputs: numbers per value, F.
      batch_size: examples per update (the default number of initial entries).
      seed: of what the memory's policies draw at random.
    """
    kernel, rule = _kernel_and_rule(config)
    spec = GrowingSpec(
        inputs,
        outputs,
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
    if isinstance(config, NaiveSoftmaxConfig):
        return replace(spec, initial_weight=1.0)
    if isinstance(config, WeightedConfig):
        training = spec.training
        if training is not None and config.negative_weights == "clipped":
            training = replace(training, least_initial_weight=1 / (2 * spec.initial_entries))
        return replace(spec, momentum_on=config.momentum_on, training=training)
    return spec


def _training(config: TrainConfig) -> EntryTraining:
    optimiser = build_plain(config.optimiser)
    columns = [
        optax.chain(optimiser, optax.scale(factor)) if factor else optax.set_to_zero()
        for factor in (config.keys, config.values, config.weights)
    ]
    return EntryTraining(*columns)


def _kernel_and_rule(config: AnyGrowing) -> tuple[Kernel, GrowingRule]:
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
