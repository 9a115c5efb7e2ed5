"""The optimisers of parametric layers, by name, with their options."""

from typing import Annotated, Any, Literal

import optax
from flax import nnx
from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from .delta import delta
from .dense import for_dense_layers
from .mesa import mesa
from .schedules import Schedule, traced

OPTIMISERS: dict[str, str] = {
    "sgd": "stochastic gradient descent, with momentum or Nesterov's",
    "rmsprop": "RMSProp: gradients over the root of their mean square",
    "adam": "Adam",
    "adamw": "Adam with decoupled weight decay",
    "muon": "Muon: orthogonalised momentum of matrices, Adam for all else",
    "mesa": "Mesa (FOOF), for dense layers: gradients whitened by the inputs' second moment (Eq. 121, E.4)",
    "delta": "Delta, for dense layers: descent that first forgets along the inputs (Eqs. 103, 122)",
}
PLAIN = ("sgd", "rmsprop", "adam", "adamw", "muon")  # those of any parameters, not only of dense layers

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_Rate = Annotated[float, Field(gt=0)]
_Rates = _Rate | Schedule  # a schedule counts the optimiser's own steps
_Share = Annotated[float, Field(ge=0, lt=1)]


def _by_name(value: Any) -> Any:
    """An optimiser without options may be given as its name alone."""
    return {"kind": value} if isinstance(value, str) else value


@config(frozen=True, config=_STRICT, kw_only=True)
class SGDConfig:
    """Stochastic gradient descent."""

    kind: Literal["sgd"]
    # η, the step size.
    learning_rate: _Rates = 1e-3
    # μ.
    momentum: _Share = 0.0
    # Whether momentum looks ahead.
    nesterov: bool = False
    # λ: added to the gradient is λ times the parameter, so that without momentum W ← (1 − ηλ)·W − η·∇.
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


@config(frozen=True, config=_STRICT, kw_only=True)
class RMSPropConfig:
    """RMSProp."""

    kind: Literal["rmsprop"]
    learning_rate: _Rates = 1e-3
    # How slowly the mean square forgets.
    smoothing: _Share = 0.9
    momentum: _Share = 0.0


@config(frozen=True, config=_STRICT, kw_only=True)
class AdamConfig:
    """Adam."""

    kind: Literal["adam"]
    learning_rate: _Rates = 1e-3
    # How slowly the mean gradient and the mean square forget: β₁ and β₂.
    b1: _Share = 0.9
    b2: _Share = 0.999


@config(frozen=True, config=_STRICT, kw_only=True)
class AdamWConfig:
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"]
    learning_rate: _Rates = 1e-3
    b1: _Share = 0.9
    b2: _Share = 0.999
    # λ: weights are multiplied by 1 − ηλ a step.
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4


@config(frozen=True, config=_STRICT, kw_only=True)
class MuonConfig:
    """Muon for matrices, Adam for all else."""

    kind: Literal["muon"]
    # Of both.
    learning_rate: _Rates = 1e-3
    momentum: _Share = 0.95
    # Newton–Schulz iterations of the orthogonalisation.
    iterations: Annotated[int, Field(gt=0)] = 5
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


Plain = SGDConfig | RMSPropConfig | AdamConfig | AdamWConfig | MuonConfig
PlainConfig = Annotated[Plain, Field(discriminator="kind"), BeforeValidator(_by_name)]


@config(frozen=True, config=_STRICT, kw_only=True)
class MesaConfig:
    """Mesa (FOOF)."""

    kind: Literal["mesa"]
    learning_rate: _Rates = 1e-3
    # γ: how slowly the second moment of the inputs forgets; 1: never.
    forgetting: Annotated[float, Field(ge=0, le=1)] = 0.99
    # λ: added to the second moment's diagonal.
    regularisation: _Rate = 0.01
    # A mean over batches, examples and features, or a sum over examples.
    form: Literal["cumulative", "static"] = "cumulative"
    # Iterations that approximate the inverse; None: it is solved exactly.
    newton_schulz: Annotated[int, Field(gt=0)] | None = None
    # What becomes of whitened gradients.
    on_top: Literal["nothing", "momentum", "adam"] = "nothing"
    # μ of on_top: momentum, β₁ of on_top: adam; None: 0.9.
    momentum: _Share | None = None
    # Trains what is not the weights of a dense layer, as norm scales.
    others: PlainConfig = AdamConfig(kind="adam")

    @model_validator(mode="after")
    def _check(self) -> "MesaConfig":
        if self.on_top == "nothing" and self.momentum is not None:
            raise ValueError("momentum belongs to on_top: momentum or adam; set both or neither")
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class DeltaConfig:
    """The Delta rule."""

    kind: Literal["delta"]
    learning_rate: _Rates = 1e-3
    # λ: how strongly a layer forgets along its inputs; the step's rate multiplies it.
    decay: Annotated[float, Field(ge=0)] = 1e-5
    # What of an example's part is divided by its ‖x‖².
    normalised: Literal["nothing", "decay", "everything"] = "nothing"
    # Trains what is not the weights of a dense layer, as norm scales.
    others: PlainConfig = AdamConfig(kind="adam")


Optimiser = Plain | MesaConfig | DeltaConfig
# A mapping with its options, or its name alone.
OptimiserConfig = Annotated[Optimiser, Field(discriminator="kind"), BeforeValidator(_by_name)]


def build_optimiser(config: Optimiser, network: nnx.Module) -> optax.GradientTransformation:
    """The optimiser that a configuration describes.

    Args:
      config: the configuration.
      network: whose parameters it is going to train.
    """
    match config:
        case MesaConfig():
            return for_dense_layers(network, _mesa(config), build_plain(config.others))
        case DeltaConfig():
            dense = delta(traced(config.learning_rate), config.decay, config.normalised)
            return for_dense_layers(network, dense, build_plain(config.others))
        case _:
            return build_plain(config)


def build_plain(config: Plain) -> optax.GradientTransformation:
    """An optimiser of any parameters."""
    rate = traced(config.learning_rate)
    match config:
        case SGDConfig():
            descent = optax.sgd(rate, config.momentum or None, config.nesterov)
            decay = optax.add_decayed_weights(config.weight_decay)
            return optax.chain(decay, descent) if config.weight_decay else descent
        case RMSPropConfig():
            return optax.rmsprop(rate, config.smoothing, momentum=config.momentum or None)
        case AdamConfig():
            return optax.adam(rate, config.b1, config.b2)
        case AdamWConfig():
            return optax.adamw(rate, config.b1, config.b2, weight_decay=config.weight_decay)
        case MuonConfig():
            return optax.contrib.muon(
                rate, beta=config.momentum, ns_steps=config.iterations, weight_decay=config.weight_decay
            )


def _mesa(config: MesaConfig) -> optax.GradientTransformation:
    momentum = 0.9 if config.momentum is None else config.momentum
    return mesa(
        traced(config.learning_rate),
        config.forgetting,
        config.regularisation,
        form=config.form,
        newton_schulz=config.newton_schulz,
        momentum=0.0 if config.on_top == "nothing" else momentum,
        adam=config.on_top == "adam",
    )
