"""The configuration of Vision Transformers, and the learners they describe."""

from math import isqrt
from pathlib import Path
from typing import Annotated, Literal

from flax import nnx
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from ..errors import ConfigError
from ..memory.sharding import ONE_DEVICE, Shards
from .learner import Learner
from .losses import Task
from .parametric import HeldConfig, held_optimiser
from .parts import PartConfig, PerceptronConfig, build_part
from .vit import Patches, VisionTransformer

_Count = Annotated[int, Field(gt=0)]


@config(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False), kw_only=True)
class ViTConfig(HeldConfig):
    """A Vision Transformer."""

    kind: Literal["vit"]
    # Height, width and channels of the images; None: square ones with one channel or three.
    image: tuple[_Count, _Count, _Count] | None = None
    # Pixels along a side of a patch.
    patch: _Count = 4
    # Numbers per token.
    width: _Count = 128
    # Transformer blocks, and heads of their attention.
    blocks: _Count = 2
    heads: _Count = 8
    # The blocks' feed-forward part, of any kind that a named layer may have, growing or trained.
    ffn: PartConfig = PerceptronConfig(kind="mlp", width=512)
    # Other parts for some of them: name (block0, block1, …) → part.
    layers: dict[str, PartConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> "ViTConfig":
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads; found {self.width} and {self.heads}")
        names = [f"block{number}" for number in range(self.blocks)]
        if unknown := self.layers.keys() - set(names):
            raise ValueError(f"layers: expected names among {', '.join(names)}; found {min(unknown)!r}")
        if any(part.blocks != 1 for part in (self.ffn, *self.layers.values())):
            raise ValueError("a feed-forward part is one layer: leave out its blocks, and set learner.blocks")
        return self

    def patches(self, features: int) -> Patches:
        """How images of so many numbers are cut.

        Raises:
          ConfigError: they are not images of that shape, or patches do not fit.
        """
        shape = self.image or _square(features)
        if shape is None or shape[0] * shape[1] * shape[2] != features:
            raise ConfigError(
                f"learner.image: expected height, width and channels of images of {features} numbers; "
                f"found {'none, and they are not square' if shape is None else list(shape)}: set it"
            )
        if shape[0] % self.patch or shape[1] % self.patch:
            raise ConfigError(
                f"learner.patch: expected a divisor of {shape[0]} and {shape[1]} pixels; found {self.patch}"
            )
        return Patches(*shape, self.patch)


def build_vit(
    config: ViTConfig,
    *,
    features: int,
    task: Task,
    batch_size: int,
    seed: int,
    shards: Shards = ONE_DEVICE,
    spill_folder: Path | None = None,
) -> Learner:
    """The learner that a configuration describes. For the arguments see `build_learner`.

    Raises:
      ConfigError: examples are not images of the shape that the configuration says.
    """
    rngs = nnx.Rngs(seed)
    parts = [
        build_part(
            config.layers.get(f"block{number}", config.ffn),
            f"block{number}",
            inputs=config.width,
            outputs=config.width,
            batch_size=batch_size,
            seed=seed + number,
            rngs=rngs,
        )
        for number in range(config.blocks)
    ]
    network = VisionTransformer(
        config.patches(features), config.width, config.heads, parts, task.outputs, rngs=rngs
    )
    optimiser = held_optimiser(config, network)
    return Learner(network, task, optimiser, shards=shards, spill_folder=spill_folder)


def _square(features: int) -> tuple[int, int, int] | None:
    for channels in (1, 3):
        side = isqrt(features // channels)
        if side * side * channels == features:
            return side, side, channels
    return None
