"""The learner of a phase, and the settings of JAX that it needs, from the run's configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from ..errors import ConfigError
from ..learners import Learner, build_learner
from ..memory.sharding import Shards, request_devices
from ..stream import Schema
from .adopting import check_layers
from .evaluation import task_of
from .run_config import Phase, RunConfig


def prepare_jax(config: RunConfig) -> None:
    """Sets the precision and asks for the devices that a run's learners compute with."""
    jax.config.update("jax_enable_x64", config.precision == "float64")
    request_devices(config.devices)


def check_learners(config: RunConfig, phases: Sequence[Phase], schema: Schema) -> None:
    """Refuses phases whose learners cannot go on with each other's memories, before anything is learnt.

    Args:
      config: the run's configuration.
      phases: its phases.
      schema: of their streams.

    Raises:
      ConfigError: the first phase whose layers differ, or that freezes a layer there is not.
    """
    prepare_jax(config)
    first: dict[str, Any] | None = None
    for phase in phases:
        try:
            learner = learner_of(config, phase, schema)
        except ConfigError as error:
            raise ConfigError(f"phase {phase.name}: {error}") from None
        specs = {name: layer.spec for name, layer in learner.layers.items()}
        layers = {n: (s.key_features, s.value_features, s.kernel.normalised) for n, s in specs.items()}
        first = layers if first is None else first
        check_layers(f"phase {phase.name}", layers, first)
        for name in layers:
            if layers[name] != first[name]:
                raise ConfigError(
                    f"phase {phase.name}: layer {name} expects (key features, value features, weights) "
                    f"{layers[name]}; found {first[name]} in the first phase: use a learner of the same kind"
                )


def learner_of(config: RunConfig, phase: Phase, schema: Schema, spill_folder: Path | None = None) -> Learner:
    """The learner that a phase describes for a stream of that schema.

    Args:
      config: the run's configuration.
      phase: the phase.
      schema: of its stream.
      spill_folder: where entries go that exceed a memory's byte budget; None: a temporary folder.

    Raises:
      ConfigError: there are fewer devices than the configuration wants, no layer of a name to freeze, or a
        byte budget does not fit its layer.
    """
    learner = build_learner(
        phase.config.learner,
        features=schema.x.size,
        task=task_of(schema),
        batch_size=config.batch_size,
        seed=config.seed,
        shards=Shards.over(config.devices),
        spill_folder=spill_folder,
    )
    learner.freeze(phase.config.freeze)
    return learner
