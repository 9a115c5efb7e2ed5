"""Held-out data, and how a learner's predictions for it are scored."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..errors import ConfigError, LaminaError
from ..learners import Learner, State, Task
from ..stream import StreamConfig, no_knowledge_level, open_source, read_good
from ..stream.schema import Array, Schema
from .preparing import Preparation, Prepare
from .scores import Score, score

PART = 2048  # held-out examples that are read and predicted at once
_KEPT_BYTES = 2**26  # of a task's examples, once read: drawing texts takes as long as predicting them


def task_of(schema: Schema) -> Task:
    """The learner's task on a stream."""
    if schema.vocabulary is not None:
        return Task(len(schema.vocabulary), classification=True, attributes=schema.attributes)
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
        self._kept: dict[tuple[int, int], tuple[Array, Array]] = {}
        self._kept_bytes = 0
        of_people = stream.source.partition(":")[0] == "biography"
        # Attribute loss of somebody who knows nobody; None where it is not known.
        self.no_knowledge_level = no_knowledge_level(stream) if of_people else None

    @property
    def schema(self) -> Schema:
        """Shapes and types of its examples."""
        return self._source.schema

    def answers(
        self,
        learner: Learner,
        state: State,
        running: Prepare,
        *,
        examples: int | None = None,
        rows: int = 0,
    ) -> Iterator[tuple[Any, Array, Array]]:
        """Kept outputs for held-out examples, their losses [n] and targets, part by part (see `evaluate`)."""
        stop = min(self.length, examples or self.length)
        for start in range(0, stop, PART):
            x, y = self._read(start, min(start + PART, stop))
            x = self._prepare(x, running)
            found, count = learner.answer(state, _padded(x, rows), _padded(y, rows)), len(x)
            outputs, losses = jax.tree.map(lambda column, n=count: column[:n], found)
            yield outputs, losses, y

    def _read(self, start: int, stop: int) -> tuple[Array, Array]:
        """Good examples at offsets start … stop − 1; kept for the next time where they are few."""
        if (start, stop) in self._kept:
            return self._kept[start, stop]
        x, y = read_good(self._source, start, stop, self._on_bad_input)
        size = x.nbytes + y.nbytes
        if self._kept_bytes + size <= _KEPT_BYTES:
            self._kept[start, stop] = x, y
            self._kept_bytes += size
        return x, y

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
        for outputs, losses, y in self.answers(learner, state, running, examples=examples, rows=rows):
            total = total + score(learner.task, outputs, losses, y)
        return total


def _padded(rows: Array, least: int) -> Array:
    """Rows [n, …], the last one (or zeros) repeated until there are `least`, and one at least."""
    last = rows[-1:] if len(rows) else np.zeros((1, *rows.shape[1:]), rows.dtype)
    return np.concatenate([rows, np.repeat(last, max(0, max(least, 1) - len(rows)), axis=0)])
