"""Learner configurations, and the learners they describe."""

from functools import partial
from pathlib import Path
from typing import Annotated

import jax
from pydantic import Field

from ..errors import ConfigError
from ..memory.sharding import ONE_DEVICE, Shards
from .decoder_config import DecoderConfig, build_decoder
from .growing_config import AnyGrowing, growing_spec
from .layered import MixedConfig, build_layered
from .layers import GrowingLayer
from .learner import Learner
from .losses import Task
from .neighbours import NeighboursConfig, neighbours_network
from .networks import ResidualGrowingNetwork
from .parametric import ParametricConfig, build_parametric
from .vit_config import ViTConfig, build_vit

_KERNEL = "grows: every layer; trained: nothing; v = −η·g"
_WEIGHED = "grows: every layer; trained: nothing"
LEARNERS: dict[str, str] = {
    "rbf": f"residual network of growing RBF layers; {_KERNEL} (Algorithm 5)",
    "softmax": f"the same, weighted softmax layers; {_WEIGHED}; w = max(0, η⟨s, g⟩), v = −β·g (Algorithm 3)",
    "gauge": f"the same, in a gauge of positive weights; {_WEIGHED}; w, v of Eqs. 82, 85 (Algorithms 1, 2)",
    "naive_softmax": f"the same without weights, a cautionary baseline; {_WEIGHED}; v = s − η·α·g (Eq. 39)",
    "linear": f"the same, linear layers: SGD's dual form; {_KERNEL} (Eq. 1)",
    "laplace": f"the same, Laplace kernel; {_KERNEL} (Sec. 3.1)",
    "matern32": f"the same, Matérn-3/2 kernel; {_KERNEL} (Sec. 3.1)",
    "matern52": f"the same, Matérn-5/2 kernel; {_KERNEL} (Sec. 3.1)",
    "rational_quadratic": f"the same, rational quadratic kernel; {_KERNEL} (Sec. 3.1)",
    "polynomial": f"the same, polynomial kernel; {_KERNEL} (Sec. 3.1)",
    "cosine": f"the same, cosine kernel; {_KERNEL} (Sec. 3.1)",
    "knn": "soft nearest neighbours of the inputs; grows: the readout; trained: nothing; v = the target",
    "mlp": "residual MLP; grows: nothing; trained: all weights, by an optimiser (Eq. 12)",
    "parametric_softmax": "softmax layers of fixed size; grows: nothing; trained: all entries (F.5)",
    "decoder": "decoder of texts; grows: feed-forward parts of kind rbf; trained: all else, by an optimiser",
    "mixed": "residual network of named layers; grows: those of a growing kind; trained: the others",
    "vit": "Vision Transformer (F.11); grows: feed-forward parts of a growing kind; trained: all else",
}

LearnerConfig = Annotated[
    AnyGrowing | NeighboursConfig | ParametricConfig | DecoderConfig | MixedConfig | ViTConfig,
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
    match config:
        case MixedConfig():
            build = partial(build_layered, config)
        case ViTConfig():
            build = partial(build_vit, config)
        case _:
            build = partial(_build_growing, config)
    return build(
        features=features,
        task=task,
        batch_size=batch_size,
        seed=seed,
        shards=shards,
        spill_folder=spill_folder,
    )


def initial_key(seed: int) -> jax.Array:
    """The random key from which a run's learner draws its initial function."""
    return jax.random.key(seed)


def _build_growing(
    config: AnyGrowing,
    *,
    features: int,
    task: Task,
    batch_size: int,
    seed: int,
    shards: Shards,
    spill_folder: Path | None,
) -> Learner:
    spec = partial(growing_spec, config, inputs=features, batch_size=batch_size)
    blocks = [
        GrowingLayer(f"block{number}", spec(outputs=features, seed=seed + number + 1))
        for number in range(config.blocks)
    ]
    readout = GrowingLayer("readout", spec(outputs=task.outputs, seed=seed))
    return Learner(ResidualGrowingNetwork(blocks, readout), task, shards=shards, spill_folder=spill_folder)
