"""What evaluations over several phases or tasks say: the accuracy matrix, and curves of forgetting."""

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


def task_curves(evaluations: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """Accuracy over the examples learnt from, for runs over several phases.

    Args:
      evaluations: rows of kind "evaluation" in order.

    Returns:
      "first task": the accuracy on the first phase's task. "tasks so far": the mean over the tasks of the
      phases begun, wherever all of them were evaluated. Each with `x` and `y`; empty for a single phase.
    """
    scored = [row for row in evaluations if row["accuracy"] is not None]
    learnt = [row for row in scored if row["step"] > 0]
    begun = list(dict.fromkeys(row["phase"] for row in learnt))
    tasks = list(dict.fromkeys(row["task"] for row in scored))
    curves: dict[str, dict[str, list[float]]] = {
        n: {"x": [], "y": []} for n in ("first task", "tasks so far")
    }
    if len(begun) < 2:
        return curves
    first = [row for row in scored if row["task"] == tasks[0]]
    curves["first task"] = {"x": [r["examples"] for r in first], "y": [r["accuracy"] for r in first]}
    points: dict[tuple[str, float], dict[str, float]] = {}
    for row in learnt:
        points.setdefault((row["phase"], row["examples"]), {})[row["task"]] = row["accuracy"]
    mean: dict[float, float] = {}
    for (phase, examples), found in points.items():
        taught = tasks[: begun.index(phase) + 1]
        if all(task in found for task in taught):
            mean[examples] = sum(found[task] for task in taught) / len(taught)
    curves["tasks so far"] = {"x": list(mean), "y": list(mean.values())}
    return curves


def _forgetting(column: Sequence[float | None]) -> float | None:
    earlier = [value for value in column[:-1] if value is not None]
    return max(earlier) - column[-1] if earlier and column[-1] is not None else None
