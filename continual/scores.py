"""Scores: how predictions become accuracies and losses."""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from ..learners import Task
from ..learners.language import Tokens
from ..stream.schema import Array


@dataclass(frozen=True)
class Score:
    """Sums over examples, so that scores of parts add up to the score of the whole.

    Of texts, `correct` counts values of which all words are right, and by attribute there are three sums.
    """

    examples: int = 0
    correct: int = 0
    loss: float = 0.0  # sum of the examples' losses
    values: tuple[int, ...] = ()  # values by attribute; empty without texts
    values_right: tuple[int, ...] = ()  # those of which all words are right
    values_loss: tuple[float, ...] = ()  # sum of the losses of their words

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.examples + other.examples,
            self.correct + other.correct,
            self.loss + other.loss,
            _sums(self.values, other.values),
            _sums(self.values_right, other.values_right),
            _sums(self.values_loss, other.values_loss),
        )

    def accuracy(self, task: Task) -> float | None:
        """Share predicted right, of texts that of values; None for regression and for no examples."""
        judged = sum(self.values) if self.values else self.examples
        return self.correct / judged if task.classification and judged else None

    def mean_loss(self) -> float | None:
        """None for no examples."""
        return self.loss / self.examples if self.examples else None

    def attribute_loss(self) -> float | None:
        """Loss of a value, summed over its words: the mean over attributes; None without values."""
        means = [loss / count for loss, count in zip(self.values_loss, self.values, strict=True) if count]
        return sum(means) / len(means) if means else None

    def by_attribute(self, task: Task) -> dict[str, dict[str, float]] | None:
        """Accuracy and loss of the values of each attribute that came up; None without texts."""
        if task.attributes is None:
            return None
        sums = zip(task.attributes, self.values, self.values_right, self.values_loss, strict=False)
        return {
            name: {"accuracy": right / count, "loss": loss / count}
            for name, count, right, loss in sums
            if count
        }


def predictions(task: Task, outputs: Any) -> Array:
    """What kept outputs predict.

    Returns:
      Class indices [B] int32 of outputs [B, C], or values ([B] where C is 1, else [B, C]), or words [B, T].
    """
    if isinstance(outputs, Tokens):
        return np.asarray(outputs.predicted)
    if task.classification:
        classes: Array = np.argmax(outputs, axis=1).astype(np.int32)
        return classes
    values: Array = outputs[:, 0] if task.outputs == 1 else outputs
    return values


def recorded(task: Task, outputs: Any, y: Array) -> tuple[Array, Array]:
    """What is recorded of a batch: targets and predictions, of texts how many values each tells and of how
    many all words were predicted.

    Args:
      task: the task.
      outputs: kept ones.
      y: targets [B, …].
    """
    if isinstance(outputs, Tokens):
        values = judged_values(outputs, y)
        told, right = (
            np.bincount(values.examples, weights, minlength=len(y)).astype(np.int32)
            for weights in (None, values.right)
        )
        return told, right
    predicted = predictions(task, outputs)
    return y.reshape(predicted.shape), predicted


def score(task: Task, outputs: Any, losses: Array, y: Array) -> Score:
    """The score of kept outputs with losses [B] against targets y."""
    loss = float(np.sum(losses, dtype=np.float64))
    if isinstance(outputs, Tokens):
        found = judged_values(outputs, y)
        count = len(task.attributes or ())
        sums = [
            np.bincount(found.attributes, weights, minlength=count).tolist()
            for weights in (None, found.right, found.losses)
        ]
        right = tuple(int(each) for each in sums[1])
        return Score(len(y), sum(right), loss, tuple(sums[0]), right, tuple(sums[2]))
    predicted = predictions(task, outputs)
    correct = int(np.sum(predicted == y.reshape(predicted.shape))) if task.classification else 0
    return Score(len(y), correct, loss)


@dataclass(frozen=True)
class Values:
    """The M values that texts tell, in their order."""

    examples: Array  # [M] int64 the example each is in
    attributes: Array  # [M] int64
    right: Array  # [M] bool whether all words are
    losses: Array  # [M] float64 of all words


def judged_values(outputs: Tokens, y: Array) -> Values:
    """How values were predicted: a value is a run of tokens whose next word tells of the same attribute.

    Args:
      outputs: [B, T] of each.
      y: targets [B, T, 2].
    """
    attributes = y[..., 1].astype(np.int64)
    before = np.concatenate([np.full((len(y), 1), -1), attributes[:, :-1]], axis=1)
    told = attributes >= 0
    first = told & (attributes != before)
    number = np.cumsum(first.reshape(-1))[told.reshape(-1)] - 1
    wrong = (np.asarray(outputs.predicted) != y[..., 0])[told]
    losses = np.asarray(outputs.losses)[told].astype(np.float64)
    count = int(first.sum())
    return Values(
        examples=np.nonzero(first)[0],
        attributes=attributes[first],
        right=np.bincount(number, wrong, minlength=count) == 0,
        losses=np.bincount(number, losses, minlength=count),
    )


def _sums(some: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one + other for one, other in zip_longest(some, others, fillvalue=0))
