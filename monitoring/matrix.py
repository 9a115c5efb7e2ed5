"""The accuracy matrix of a run with several phases or tasks, from its evaluations."""

from collections.abc import Sequence
from typing import Any

from .rows import Row


def accuracy_matrix(evaluations: Sequence[Row]) -> dict[str, Any] | None:
    """Draws up R[i, j], the accuracy on task j after phase i.

    Args:
      evaluations: rows of kind "evaluation" in order; the last one of a phase and task counts.

    Returns:
      `phases`, `tasks`, `accuracy` ([phase][task], None where there was none) and `forgetting` ([task], the
      best accuracy after an earlier phase less that after the last one; None where one of them is missing).
      None for a single phase and task.
    """
    scored = [row for row in evaluations if row["accuracy"] is not None]
    phases = list(dict.fromkeys(row["phase"] for row in scored))
    tasks = list(dict.fromkeys(row["task"] for row in scored))
    if len(phases) * len(tasks) <= 1:
        return None
    found = {(row["phase"], row["task"]): row["accuracy"] for row in scored}
    accuracy = [[found.get((phase, task)) for task in tasks] for phase in phases]
    return {
        "phases": phases,
        "tasks": tasks,
        "accuracy": accuracy,
        "forgetting": [_forgetting([row[place] for row in accuracy]) for place in range(len(tasks))],
    }


def _forgetting(column: Sequence[float | None]) -> float | None:
    earlier = [value for value in column[:-1] if value is not None]
    return max(earlier) - column[-1] if earlier and column[-1] is not None else None
