"""The configuration of decoders of texts, and the learners they describe."""

from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import optax
from flax import nnx
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from ..errors import ConfigError
from ..memory.kernels import RBF
from ..memory.policy import MemoryConfig
from ..memory.sharding import ONE_DEVICE, Shards
from .cos_bochner import CosBochner
from .decoder import AttentionShape, Decoder
from .feed_forward import FeedForward, GeGLU, GrowingFeedForward
from .language import TokenConfig
from .layers import GrowingSpec
from .learner import Learner
from .losses import Task
from .optimisers import AdamWConfig, OptimiserConfig, build_optimiser
from .rules import KernelRule
from .schedules import Rate, Schedule, require_below_one

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_Count = Annotated[int, Field(gt=0)]
_Positive = Annotated[float, Field(gt=0)]
_Fading = Annotated[float, Field(ge=0, lt=1)]

FeedForwardKind = Literal["geglu", "cos_bochner", "rbf"]
FEED_FORWARDS: dict[str, str] = {
    "geglu": "W₃·(gelu(W₁x) ⊙ W₂x), trained",
    "cos_bochner": "V·√(2/m)·cos(Wx + b), random features of the RBF kernel; trained, W and b if wanted",
    "rbf": "a growing RBF layer, which stores tokens",
}


@config(frozen=True, config=_STRICT, kw_only=True)
class GeGLUConfig:
    """Feed-forward parts of the kind "geglu"."""

    # Numbers in between.
    width: _Count = 256


@config(frozen=True, config=_STRICT, kw_only=True)
class CosBochnerConfig:
    """Feed-forward parts of the kind "cos_bochner"."""

    # m.
    features: _Count = 384
    # T of the RBF kernel that they stand for.
    temperature: _Positive = 3.0
    # Whether every frequency has a cosine and a sine, or one cosine with a phase.
    paired: bool = False
    # Whether W and b are trained beside V.
    trained: bool = True
    # What the optimiser's steps of V are multiplied by: with 1, V hardly learns under Adam.
    rate_factor: _Positive = 10.0

    @model_validator(mode="after")
    def _check(self) -> "CosBochnerConfig":
        if self.paired and self.features % 2:
            raise ValueError(f"features come in pairs: expected an even number; found {self.features}")
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class GrowingFeedForwardConfig:
    """Feed-forward parts of the kind "rbf"."""

    # T: the kernel is exp(−‖q − k‖² / (2·T·√d)).
    temperature: _Positive = 1.0
    # η, of a token's own gradient.
    value_rate: _Positive | Schedule = 10.0
    # μ: momentum on stored entries.
    momentum: _Fading | Schedule = 0.0
    # γ: weight decay per step.
    decay: _Fading | Schedule = 0.0
    # How each layer's database is bounded.
    memory: MemoryConfig = MemoryConfig()
    # Which tokens it answers and stores.
    tokens: TokenConfig = TokenConfig()

    @model_validator(mode="after")
    def _check(self) -> "GrowingFeedForwardConfig":
        require_below_one(momentum=self.momentum, decay=self.decay)
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class DecoderConfig:
    """A small decoder in the form of Gemma 3."""

    kind: Literal["decoder"]
    # Numbers per token, d.
    width: _Count = 64
    layers: _Count = 2
    # Heads of queries, and of keys and values (None: as many).
    heads: _Count = 4
    groups: _Count | None = None
    # Numbers of a head; None: width / heads.
    head_size: _Count | None = None
    # Tokens that a local layer sees; every so many layers one is global.
    window: _Count = 512
    global_every: _Count = 6
    # Bases of the rotary positions' wave lengths.
    local_base: _Positive = 10_000.0
    global_base: _Positive = 1_000_000.0
    # The feed-forward parts: one kind for all layers, or a list with the kind of each.
    ffn: FeedForwardKind | tuple[FeedForwardKind, ...] = "geglu"
    # Whether norms follow feed-forward parts; never those that start at 0 (cos_bochner and rbf).
    post_norm: bool = True
    # Options of the kinds.
    geglu: GeGLUConfig = GeGLUConfig()
    cos_bochner: CosBochnerConfig = CosBochnerConfig()
    rbf: GrowingFeedForwardConfig = GrowingFeedForwardConfig()
    # Trains everything but the growing layers' entries on the batch-mean loss.
    optimiser: OptimiserConfig = AdamWConfig(kind="adamw", b2=0.95, weight_decay=0.1)

    @model_validator(mode="after")
    def _check(self) -> "DecoderConfig":
        if not isinstance(self.ffn, str) and len(self.ffn) != self.layers:
            raise ValueError(
                f"ffn: expected one kind, or one for each of {self.layers} layers; found {len(self.ffn)}"
            )
        if self.heads % (self.groups or self.heads):
            raise ValueError(f"heads must be a multiple of groups; found {self.heads} and {self.groups}")
        if self.head_size is None and self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads, or head_size set; found {self.width} and {self.heads}"
            )
        if (self.head_size or self.width // self.heads) % 2:
            raise ValueError(
                "a head must have an even number of numbers, which are rotated in pairs: set head_size"
            )
        return self

    @property
    def kinds(self) -> tuple[FeedForwardKind, ...]:
        """The kind of each layer's feed-forward part."""
        return (self.ffn,) * self.layers if isinstance(self.ffn, str) else self.ffn

    @property
    def momentum(self) -> Rate:
        """Of the stored entries."""
        return self.rbf.momentum


def build_decoder(
    config: DecoderConfig,
    *,
    task: Task,
    seed: int,
    shards: Shards = ONE_DEVICE,
    spill_folder: Path | None = None,
) -> Learner:
    """The learner that a configuration describes.

    Args:
      config: the configuration.
      task: of texts.
      seed: draws the initial parameters.
      shards: the devices that the growing layers' entries are spread over.
      spill_folder: where entries go that exceed a memory's byte budget; None: a temporary folder.

    Raises:
      ConfigError: the stream has no texts, or a byte budget does not fit.
    """
    if not task.language:
        raise ConfigError("learner.kind 'decoder' learns texts: expected a stream of words, as biography")
    # Each feed-forward part is drawn by itself, so that what is around it does not depend on its kind.
    keys = jax.random.split(jax.random.key(seed), config.layers + 1)
    parts = [
        _feed_forward(config, number, kind, seed, nnx.Rngs(keys[number + 1]))
        for number, kind in enumerate(config.kinds)
    ]
    shape = AttentionShape(
        config.heads,
        config.groups or config.heads,
        config.head_size or config.width // config.heads,
        config.window,
        config.local_base,
        config.global_base,
    )
    network = Decoder(
        task.outputs,
        config.width,
        shape,
        parts,
        global_every=config.global_every,
        post_norm=config.post_norm,
        rngs=nnx.Rngs(keys[0]),
    )
    optimiser = build_optimiser(config.optimiser, network)
    scaled = optax.chain(optimiser, _scaled(network, config.cos_bochner.rate_factor))
    return Learner(network, task, scaled, shards=shards, spill_folder=spill_folder)


def _feed_forward(
    config: DecoderConfig, number: int, kind: FeedForwardKind, seed: int, rngs: nnx.Rngs
) -> FeedForward:
    match kind:
        case "geglu":
            return GeGLU(config.width, config.geglu.width, rngs=rngs)
        case "cos_bochner":
            options = config.cos_bochner
            return CosBochner(
                config.width,
                options.features,
                options.temperature,
                paired=options.paired,
                trained=options.trained,
                rngs=rngs,
            )
        case "rbf":
            return GrowingFeedForward(f"ffn{number}", _spec(config, seed + number + 1))


def _spec(config: DecoderConfig, seed: int) -> GrowingSpec:
    options = config.rbf
    return GrowingSpec(
        config.width,
        config.width,
        RBF(options.temperature),
        KernelRule(options.value_rate),
        options.memory,
        "zero",
        0,
        options.momentum,
        options.decay,
        seed=seed,
        tokens=options.tokens,
    )


def _scaled(network: Decoder, factor: float) -> optax.GradientTransformation:
    """Multiplies the steps of Cos-Bochner parts: V's by the factor, those of what is not trained by 0."""
    factors: dict[tuple[Any, ...], float] = {}
    for path, module in nnx.iter_modules(network):
        if isinstance(module, CosBochner):
            factors[*path, "values"] = factor
            if not module.trained:
                factors[*path, "frequencies"] = factors[*path, "phases"] = 0.0

    def scale(updates: Any, parameters: Any) -> Any:
        def scaled(path: Any, update: jax.Array) -> jax.Array:
            keys = tuple(key.key for key in path if hasattr(key, "key"))
            return update * factors.get(keys, 1.0)

        return jax.tree_util.tree_map_with_path(scaled, updates)

    return optax.stateless(scale)
