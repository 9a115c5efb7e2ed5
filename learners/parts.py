"""The parts that networks of named layers are made of: growing or trained, each from its configuration.

A part maps rows of D numbers to rows of F numbers, whatever network it stands in: a residual stack
(`layered`), or the place of a transformer's feed-forward part (`vit`).
"""

from typing import Annotated, Literal

import jax
from flax import nnx
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as config

from .dense import DenseLayer
from .growing_config import GROWING_KINDS, AnyGrowing, growing_spec
from .layers import GrowingLayer, Recall
from .networks import ACTIVATIONS
from .parametric_softmax import ParametricSoftmaxLayer

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_Count = Annotated[int, Field(gt=0)]


@config(frozen=True, config=_STRICT, kw_only=True)
class RowConfig:
    """What trained layers share."""

    # How many such layers in a row.
    blocks: _Count = 1


@config(frozen=True, config=_STRICT, kw_only=True)
class DenseConfig(RowConfig):
    """σ(W·x)."""

    kind: Literal["dense"]
    # σ.
    activation: Literal["none", "relu", "gelu", "softmax"] = "none"


@config(frozen=True, config=_STRICT, kw_only=True)
class PerceptronConfig(RowConfig):
    """W₂·σ(W₁·x)."""

    kind: Literal["mlp"]
    # Hidden units; None: as many as the input has features.
    width: _Count | None = None
    # σ.
    activation: Literal["relu", "gelu", "softmax"] = "gelu"


@config(frozen=True, config=_STRICT, kw_only=True)
class EntriesConfig(RowConfig):
    """A softmax layer of a fixed number of trained entries (F.5)."""

    kind: Literal["parametric_softmax"]
    # N.
    entries: _Count
    # T: inner products are divided by T·√d_in.
    temperature: Annotated[float, Field(gt=0)]
    # Whether entries have trained weights beside keys and values.
    weighted: bool = False


PartConfig = Annotated[
    AnyGrowing | DenseConfig | PerceptronConfig | EntriesConfig, Field(discriminator="kind")
]
TRAINED_PARTS: dict[str, str] = {
    "dense": "σ(W·x); trained: W",
    "mlp": "W₂·σ(W₁·x); trained: W₁ and W₂",
    "parametric_softmax": "softmax layer of fixed size; trained: all entries (F.5)",
}
PART_KINDS = (*GROWING_KINDS, *TRAINED_PARTS)


class Perceptron(nnx.Module):
    """σ(W·x), or W₂·σ(W₁·x) by layers NAME_inner and NAME_outer.

    Args:
      name: names the layer, or begins the names of two.
      inputs: D.
      outputs: F.
      width: hidden units; None: there is one matrix.
      activation: σ, one of ACTIVATIONS, or "none".
      rngs: draws the weights.
    """

    def __init__(
        self, name: str, inputs: int, outputs: int, width: int | None, activation: str, *, rngs: nnx.Rngs
    ) -> None:
        self.activation = activation
        if width is None:
            self.inner = DenseLayer(name, inputs, outputs, rngs=rngs)
            self.outer = None
        else:
            self.inner = DenseLayer(f"{name}_inner", inputs, width, rngs=rngs)
            self.outer = DenseLayer(f"{name}_outer", width, outputs, rngs=rngs)

    def __call__(self, inputs: jax.Array, recall: Recall) -> jax.Array:
        """Outputs [..., F] for inputs [..., D]."""
        hidden = self.inner(inputs, recall)
        if self.activation != "none":
            hidden = ACTIVATIONS[self.activation](hidden)
        return hidden if self.outer is None else self.outer(hidden, recall)


Part = GrowingLayer | Perceptron | ParametricSoftmaxLayer


def build_part(
    config: PartConfig, name: str, *, inputs: int, outputs: int, batch_size: int, seed: int, rngs: nnx.Rngs
) -> Part:
    """The part that a configuration describes.

    Args:
      config: the configuration; how many of it are in a row is its user's business.
      name: names the layer.
      inputs: D.
      outputs: F.
      batch_size: examples per update (the default number of initial entries of softmax layers).
      seed: of what a growing layer's memory draws at random.
      rngs: draws trained weights.
    """
    match config:
        case DenseConfig():
            return Perceptron(name, inputs, outputs, None, config.activation, rngs=rngs)
        case PerceptronConfig():
            return Perceptron(name, inputs, outputs, config.width or inputs, config.activation, rngs=rngs)
        case EntriesConfig():
            return ParametricSoftmaxLayer(
                name,
                inputs,
                outputs,
                config.entries,
                config.temperature,
                weighted=config.weighted,
                rngs=rngs,
            )
        case _:
            spec = growing_spec(config, inputs=inputs, outputs=outputs, batch_size=batch_size, seed=seed)
            return GrowingLayer(name, spec)
