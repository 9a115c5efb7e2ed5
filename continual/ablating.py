"""What a run's network owes to what it has learnt by heart, and to its exponential (Fig. 3 right, Fig. 4)."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..learners import Learner, State
from ..learners.ablation import linearised
from ..memory.kernels import WeightedSoftmax
from .run import Run
from .scores import Score, score

TRAINING = "training"  # names the examples that have come by

Scorer = Callable[[Learner, State], Score]


@dataclass(frozen=True)
class Ablated:
    """Scores of one set of examples."""

    examples: int
    accuracy: float | None  # None for regression
    loss: float | None  # None without examples
    linear_accuracy: float | None  # with 1 + x for exp(x); None also where layers have no exponential
    linear_loss: float | None

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def ablate(directory: Path, *, examples: int | None = None) -> dict[str, Ablated]:
    """Scores a run's last committed network on what it has learnt from and on what it has not.

    Args:
      directory: the run's folder; what is learnt is not changed.
      examples: most examples of each set, from the first on; None: all of a task, and as many of the stream.

    Returns:
      By set of examples: "training", those of the present phase, then every task. Networks whose growing
      layers are all softmax layers are scored a second time with their exponential made linear.

    Raises:
      MissingDataError: there is no run.
      BusyError: somebody else writes it.
    """
    with Run.resume(directory) as run:
        linear = linearised(run.learner, run.state) if _only_softmax(run.learner) else None
        most = examples or max([task.length for task in run.tasks.values()] or [run.progress.examples])
        x, y = run.stage.first_examples(most)
        scorers: dict[str, Scorer] = {TRAINING: partial(_score, x=x, y=y)} if len(x) else {}
        for name, task in run.tasks.items():
            scorers[name] = partial(task.evaluate, running=run.reader.prepare, examples=examples)
        return {name: _ablated(run, linear, scorer) for name, scorer in scorers.items()}


def _ablated(run: Run, linear: tuple[Learner, State] | None, scorer: Scorer) -> Ablated:
    task, found = run.learner.task, scorer(run.learner, run.state)
    ablated = Score() if linear is None else scorer(*linear)
    return Ablated(
        found.examples,
        found.accuracy(task),
        found.mean_loss(),
        ablated.accuracy(task),
        ablated.mean_loss(),
    )


def _score(learner: Learner, state: State, *, x: np.ndarray, y: np.ndarray) -> Score:
    outputs, losses = learner.answer(state, x, y)
    return score(learner.task, outputs, losses, y)


def _only_softmax(learner: Learner) -> bool:
    kernels = [layer.spec.kernel for layer in learner.layers.values()]
    return bool(kernels) and all(isinstance(kernel, WeightedSoftmax) for kernel in kernels)
