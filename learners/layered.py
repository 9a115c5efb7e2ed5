"""Residual networks of named layers, each growing or trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from ..memory.sharding import ONE_DEVICE, Shards
from .layers import GrowingLayer, Recall, rms_norm
from .learner import Learner
from .losses import Task
from .networks import Network
from .parametric import HeldConfig, held_optimiser
from .parts import Part, PartConfig, Perceptron, build_part


@config(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False), kw_only=True)
class MixedConfig(HeldConfig):
    """A residual network of named layers."""

    kind: Literal["mixed"]
    # Name → layer, in the order in which they follow each other; the last one is the readout.
    layers: Annotated[dict[str, PartConfig], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> "MixedConfig":
        *_, (last, readout) = self.layers.items()
        if readout.blocks != 1:
            raise ValueError(f"the last layer, {last}, is the readout: expected blocks: 1; found more")
        names = [name for name, _ in self.rows()]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"layers in a row are numbered; two would be {min(repeated)!r}: rename one")
        return self

    def rows(self) -> list[tuple[str, PartConfig]]:
        """Every layer by itself: several of one name are numbered from 0 on."""
        return [
            (name if layer.blocks == 1 else f"{name}{number}", layer)
            for name, layer in self.layers.items()
            for number in range(layer.blocks)
        ]


class LayeredNetwork(Network):
    """e ← e + layer(norm(e)) for every layer but the last, which reads out norm(e) (Eqs. 12 and 13).

    The norm in front of dense layers is an RMSNorm with a trained scale, that of all others has none (F.2).

    Args:
      features: numbers per example.
      layers: those of the stack, then the readout.
      rngs: of the norms.
    """

    def __init__(self, features: int, layers: Sequence[Part], *, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List(layers)
        self.norms = nnx.List(
            [
                nnx.RMSNorm(features, param_dtype=jnp.result_type(float), rngs=rngs)
                if isinstance(layer, Perceptron)
                else None
                for layer in layers
            ]
        )

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        stream = x.reshape(x.shape[0], -1)
        *blocks, readout = zip(self.norms, self.layers, strict=True)
        for norm, layer in blocks:
            stream = stream + layer(_normed(norm, stream), recall)
        norm, layer = readout
        return layer(_normed(norm, stream), recall)


def build_layered(
    config: MixedConfig,
    *,
    features: int,
    task: Task,
    batch_size: int,
    seed: int,
    shards: Shards = ONE_DEVICE,
    spill_folder: Path | None = None,
) -> Learner:
    """The learner that a configuration describes. For the arguments see `build_learner`."""
    rngs, rows = nnx.Rngs(seed), config.rows()
    parts = [
        build_part(
            layer,
            name,
            inputs=features,
            outputs=task.outputs if number == len(rows) - 1 else features,
            batch_size=batch_size,
            seed=seed + number,
            rngs=rngs,
        )
        for number, (name, layer) in enumerate(rows)
    ]
    network = LayeredNetwork(features, parts, rngs=rngs)
    trained = any(not isinstance(part, GrowingLayer) for part in parts)
    optimiser = held_optimiser(config, network) if trained else None
    return Learner(network, task, optimiser, shards=shards, spill_folder=spill_folder)


def _normed(norm: nnx.RMSNorm | None, stream: jax.Array) -> jax.Array:
    return rms_norm(stream) if norm is None else norm(stream)
