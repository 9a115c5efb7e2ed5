"""Forgetting chosen training examples: their entries go, and what that changes is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingDataError
from ..learners.language import Tokens
from .effective import columns_of
from .run import Run
from .scores import predictions


@dataclass(frozen=True)
class Forgotten:
    """What went, and how the answers to held-out examples changed. Without held-out data they are None."""

    entries: Mapping[str, int]  # entries removed, by layer
    examples: int  # held-out examples asked before and after, over all tasks
    # Of an answer: Euclidean norm of the difference of outputs, of texts that of the words' losses.
    largest_change: float | None
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


def _answers(run: Run, examples: int) -> list[Any]:
    """Kept outputs for all tasks' first held-out examples, part by part."""
    return [
        outputs
        for task in run.tasks.values()
        for outputs, _, _ in task.answers(run.learner, run.state, run.reader.prepare, examples=examples)
    ]


def _compared(entries: Mapping[str, int], before: list[Any], after: list[Any], run: Run) -> Forgotten:
    if not before:
        return Forgotten(entries, 0, None, None, None)
    task, pairs = run.learner.task, list(zip(before, after, strict=True))
    change = np.concatenate([np.linalg.norm(_numbers(b) - _numbers(a), axis=1) for b, a in pairs])
    changed = sum(
        int(np.sum((predictions(task, b) != predictions(task, a)).reshape(len(_numbers(b)), -1).any(axis=1)))
        for b, a in pairs
    )
    return Forgotten(
        entries,
        len(change),
        float(change.max()),
        float(change.mean()),
        changed if task.classification else None,
    )


def _numbers(outputs: Any) -> np.ndarray:
    """[n, C] of kept outputs."""
    return np.asarray(outputs.losses if isinstance(outputs, Tokens) else outputs)
