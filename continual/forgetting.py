"""Forgetting chosen training examples: their entries go, and what that changes is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingDataError
from .effective import columns_of
from .evaluation import predictions
from .run import Run


@dataclass(frozen=True)
class Forgotten:
    """What went, and how the answers to held-out examples changed. Without held-out data they are None."""

    entries: Mapping[str, int]  # entries removed, by layer
    examples: int  # held-out examples asked before and after, over all tasks
    largest_change: float | None  # of an answer: Euclidean norm of the difference of outputs
    mean_change: float | None
    predictions_changed: int | None  # of classifications

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def forget_examples(directory: Path, origins: Sequence[int], *, examples: int = 1000) -> Forgotten:
    """Removes all entries of given training examples from a run's memories, and commits.

    Args:
      directory: the run's folder.
      origins: stream offsets, as `explain` shows them.
      examples: most held-out examples of each task to measure the change on.

    Raises:
      MissingDataError: there is no run, or no entry comes from one of the examples; nothing is changed.
      BusyError: somebody else writes the run.
      StorageError: the file system refused; the run is as it was.
    """
    with Run.resume(directory) as run:
        wanted = np.unique(np.asarray(origins, np.int64))
        _require_known(run, wanted)
        before = _answers(run, examples)
        state, entries = run.learner.forget(run.state, wanted)
        run.state = state
        after = _answers(run, examples)
        run.commit()
        return _compared(entries, before, after, run)


def _require_known(run: Run, wanted: np.ndarray) -> None:
    known = [
        columns["origin"][columns["created"] > 0]
        for memory in run.state.memories.values()
        for columns in columns_of(memory, ("created", "origin"))
    ]
    missing = np.setdiff1d(wanted, np.concatenate(known)) if known else wanted
    if len(missing):
        raise MissingDataError(
            f"{run.directory}: expected offsets of examples that entries came from; found {missing[0]}, from "
            f"which there is none: `lamina explain` shows the offsets"
        )


def _answers(run: Run, examples: int) -> np.ndarray:
    """[n, C] of all tasks' first held-out examples."""
    parts = [
        outputs
        for task in run.tasks.values()
        for outputs, _ in task.outputs(run.learner, run.state, run.reader.prepare, examples=examples)
    ]
    return np.concatenate(parts) if parts else np.empty((0, run.learner.task.outputs))


def _compared(entries: Mapping[str, int], before: np.ndarray, after: np.ndarray, run: Run) -> Forgotten:
    if not len(before):
        return Forgotten(entries, 0, None, None, None)
    task, change = run.learner.task, np.linalg.norm(after - before, axis=1)
    changed = int(np.sum(predictions(task, before) != predictions(task, after)))
    return Forgotten(
        entries,
        len(before),
        float(change.max()),
        float(change.mean()),
        changed if task.classification else None,
    )
