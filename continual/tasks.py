"""The tasks of a run: what it is evaluated on, by name, and when."""

from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError
from ..stream import Schema, open_log, open_source
from .evaluation import HeldOut
from .run_config import EvaluationConfig, Phase, RunConfig

PREDICT_COST = 0.5  # of learning from an example: two products over the entries instead of four


def open_tasks(config: RunConfig, phases: tuple[Phase, ...]) -> dict[str, HeldOut]:
    """Opens all held-out data of a run.

    Args:
      config: the run's configuration.
      phases: its phases.

    Returns:
      Task name → data: a task per phase, named after it (or after the split, in a run without named phases),
      then those of `evaluation.tasks`.

    Raises:
      ConfigError, MissingDataError, DataError: as `HeldOut`.
    """
    wanted = config.evaluation
    tasks = {}
    if wanted.split is not None:
        for phase in phases:
            held_out = HeldOut(phase.stream, wanted.split, wanted.examples)
            tasks[own_task(config, phase)] = held_out
    for name, stream in wanted.tasks.items():
        tasks[name] = HeldOut(stream.with_seed(config.seed), None, wanted.examples)
    return tasks


def own_task(config: RunConfig, phase: Phase) -> str:
    """The name of the task that a phase teaches."""
    return phase.name if config.phases else str(config.evaluation.split)


def examples_on_the_way(config: EvaluationConfig, tasks: int) -> int | None:
    """Most examples of each of so many tasks in an evaluation on the way; None: all, 0: no evaluation.

    The budget depends on counts only, never on the clock, so that it is the same in a resumed run.
    """
    if config.share is None or config.every_examples is None:
        return config.examples
    affordable = int(config.share * config.every_examples / (PREDICT_COST * tasks))
    return affordable if config.examples is None else min(affordable, config.examples)


def phase_schemas(phases: tuple[Phase, ...]) -> tuple[Schema, dict[str, Schema]]:
    """The schema of the first phase's stream, and those of the others by what they are called.

    Raises:
      ConfigError, MissingDataError, DataError: a stream or a log cannot be opened.
    """
    schemas = {}
    for phase in phases:
        kept = phase.config.log
        opened = open_source(phase.stream) if kept is None else open_log(Path(kept))
        schemas[f"phase {phase.name}"] = opened.schema
    return next(iter(schemas.values())), schemas


def check_schemas(schema: Schema, others: Mapping[str, Schema]) -> None:
    """Refuses streams that one learner cannot learn from.

    Args:
      schema: of the first phase.
      others: by what they are called.

    Raises:
      ConfigError: x, y or the classes have another size, or words are others.
    """
    for name, other in others.items():
        found = (other.x.size, other.y.shape, len(other.classes or ()))
        expected = (schema.x.size, schema.y.shape, len(schema.classes or ()))
        if found != expected:
            raise ConfigError(
                f"{name}: expected (numbers per example, shape of y, classes) {expected} as in the first "
                f"phase; found {found}: choose a stream of the same kind, or declare stream.classes"
            )
        if (other.vocabulary, other.attributes) != (schema.vocabulary, schema.attributes):
            raise ConfigError(
                f"{name}: expected the same words, and attributes, as in the first phase; found others: "
                f"give its stream the same lists of words"
            )
