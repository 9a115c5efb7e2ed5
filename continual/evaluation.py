"""Scores: how predictions become accuracies and losses, before learning and on held-out data."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, LaminaError
from ..learners import Learner, State, Task
from ..stream import StreamConfig, open_source, read_good
from ..stream.schema import Array, Schema
from .preparing import Preparation, Prepare

PART = 2048  # held-out examples that are read and predicted at once


@dataclass(frozen=True)
class Score:
    """Sums over examples, so that scores of parts add up to the score of the whole."""

    examples: int = 0
    correct: int = 0
    loss: float = 0.0  # sum of the examples' losses

    def __add__(self, other: "Score") -> "Score":
        return Score(self.examples + other.examples, self.correct + other.correct, self.loss + other.loss)

    def accuracy(self, task: Task) -> float | None:
        """Share predicted right; None for regression and for no examples."""
        return self.correct / self.examples if task.classification and self.examples else None

    def mean_loss(self) -> float | None:
        """None for no examples."""
        return self.loss / self.examples if self.examples else None


def predictions(task: Task, outputs: Array) -> Array:
    """What outputs [B, C] predict: class indices [B] int32, or values ([B] where C is 1, else [B, C])."""
    if task.classification:
        classes: Array = np.argmax(outputs, axis=1).astype(np.int32)
        return classes
    values: Array = outputs[:, 0] if task.outputs == 1 else outputs
    return values


def score(task: Task, outputs: Array, losses: Array, y: Array) -> Score:
    """The score of outputs [B, C] with losses [B] against targets y."""
    correct = int(np.sum(predictions(task, outputs) == y)) if task.classification else 0
    return Score(len(y), correct, float(np.sum(losses, dtype=np.float64)))


def task_of(schema: Schema) -> Task:
    """The learner's task on a stream."""
    if schema.classes is None:
        return Task(schema.y.size, classification=False)
    return Task(len(schema.classes), classification=True)


class HeldOut:
    """Held-out data that a run is evaluated on, in its stored order.

    Args:
      stream: the stream that it belongs to.
      split: the part of its data set to hold out; None: the stream itself.
      most: where that part has no end, how much of it counts as all.

    Raises:
      ConfigError: the source has no such part, or it is without an end and `most` is not given.
      MissingDataError, DataError: it cannot be read.
    """

    def __init__(self, stream: StreamConfig, split: str | None, most: int | None = None) -> None:
        self._on_bad_input = stream.on_bad_input
        try:
            self._source = open_source(stream, split=split)
        except LaminaError as error:
            hint = f"to evaluate on other data set evaluation.split (now {split}), or null for none"
            raise type(error)(f"{error}; {hint}") from None
        length = most if self._source.length is None else self._source.length
        if length is None:
            raise ConfigError(
                f"evaluation.split: the part {split!r} of {stream.source} has no end: set "
                f"evaluation.examples to evaluate on so many, or evaluation.split to null"
            )
        self.length = length
        self._prepare = Preparation(stream, self.schema)

    @property
    def schema(self) -> Schema:
        """Shapes and types of its examples."""
        return self._source.schema

    def outputs(
        self,
        learner: Learner,
        state: State,
        running: Prepare,
        *,
        examples: int | None = None,
        rows: int = 0,
    ) -> Iterator[tuple[Array, Array]]:
        """Answers to held-out examples, [n, C], and their targets, part by part (see `evaluate`)."""
        stop = min(self.length, examples or self.length)
        for start in range(0, stop, PART):
            x, y = read_good(self._source, start, min(start + PART, stop), self._on_bad_input)
            x = self._prepare(x, running)
            padding = np.zeros((max(0, rows - len(x)), *x.shape[1:]), x.dtype)
            yield learner.predict(state, np.concatenate([x, padding]))[: len(x)], y

    def evaluate(
        self,
        learner: Learner,
        state: State,
        running: Prepare,
        *,
        examples: int | None = None,
        rows: int = 0,
    ) -> Score:
        """Scores held-out examples.

        Args:
          learner: the learner.
          state: its state.
          running: prepares x as the present phase's reader does, with its running statistics.
          examples: how many, from the first on; None: all.
          rows: predicts at least so many at a time, so that tasks of different sizes share one program.

        Raises:
          DataError: an example is bad, and the stream's `on_bad_input` is not "skip".
        """
        total = Score()
        for outputs, y in self.outputs(learner, state, running, examples=examples, rows=rows):
            losses = np.asarray(learner.task.loss(jnp.asarray(outputs), jnp.asarray(y)))
            total = total + score(learner.task, outputs, losses, y)
        return total
