"""What a run over phases came to: the accuracy matrix and the figures read off it, as plain values."""

from typing import Any

from ..learners import Task
from .matrix import continual_metrics
from .progress import Progress, Scores
from .run_config import RunConfig, phases_of
from .tasks import own_task


def continual_values(config: RunConfig, progress: Progress, task: Task) -> dict[str, Any]:
    """The figures of the phases that have ended so far.

    Args:
      config: the run's configuration.
      progress: what it has done.
      task: what its outputs mean; the accuracies of a regression are None.

    Returns:
      `phases`, those that have ended; `tasks`, their own and then the others; `accuracy`, a row per phase
      with a column per task; `untrained`, the accuracies before the first of several phases;
      `anytime_accuracy`, the mean over all evaluations of the mean accuracy on the tasks of the phases so
      far; and the figures of `continual_metrics`. What is undefined is None.
    """
    ended = phases_of(config)[: len(progress.matrix)]
    own = [own_task(config, phase) for phase in ended]
    tasks = [*own, *(name for name in _names(progress) if name not in own)]
    matrix = [_accuracies(row, tasks, task) for row in progress.matrix]
    untrained = _accuracies(progress.untrained, tasks, task)
    points = progress.anytime_points
    return {
        "phases": [phase.name for phase in ended],
        "tasks": tasks,
        "accuracy": matrix,
        "untrained": untrained,
        "anytime_accuracy": progress.anytime_sum / points if points else None,
        **continual_metrics([row[: len(own)] for row in matrix], untrained[: len(own)]),
    }


def _names(progress: Progress) -> list[str]:
    """All tasks that were evaluated at a phase's end."""
    return list(dict.fromkeys(name for row in progress.matrix for name in row))


def _accuracies(scores: Scores, tasks: list[str], task: Task) -> list[float | None]:
    return [scores[name].accuracy(task) if name in scores else None for name in tasks]
