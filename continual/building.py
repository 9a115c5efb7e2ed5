"""The learner of a phase, and the settings of JAX that it needs, from the run's configuration."""

import jax

from ..learners import Learner, build_learner
from ..memory.sharding import Shards, request_devices
from ..stream import Schema
from .evaluation import task_of
from .run_config import Phase, RunConfig


def prepare_jax(config: RunConfig) -> None:
    """Sets the precision and asks for the devices that a run's learners compute with."""
    jax.config.update("jax_enable_x64", config.precision == "float64")
    request_devices(config.devices)


def learner_of(config: RunConfig, phase: Phase, schema: Schema) -> Learner:
    """The learner that a phase describes for a stream of that schema.

    Raises:
      ConfigError: there are fewer devices than the configuration wants, or no layer of a name to freeze.
    """
    learner = build_learner(
        phase.config.learner,
        features=schema.x.size,
        task=task_of(schema),
        batch_size=config.batch_size,
        seed=config.seed,
        shards=Shards.over(config.devices),
    )
    learner.freeze(phase.config.freeze)
    return learner
