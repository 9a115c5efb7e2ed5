"""The three phases of learning facts, read off a curve: statistics of values, plateau, knowledge."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .rows import Row

BEGIN = 1.05  # of the no-knowledge level: below it the statistics of values are known
END = 0.95  # of it: below it something is known about people


@dataclass(frozen=True)
class Plateau:
    """Where a curve of attribute losses lies near the no-knowledge level; steps are interpolated linearly."""

    start: float | None  # step at which the loss first falls under 1.05 of the level; None: it never does
    end: float | None  # step at which it last falls under 0.95 of it; None: it is not below at the end

    @property
    def length(self) -> float | None:
        """Steps from start to end; None while one of them is missing."""
        return None if self.start is None or self.end is None else self.end - self.start


def find_plateau(steps: Sequence[float], losses: Sequence[float], level: float) -> Plateau:
    """Finds the plateau of a curve.

    Args:
      steps: [n] ascending steps of evaluations.
      losses: [n] attribute losses there, in nats per value.
      level: the no-knowledge level in the same unit.

    Returns:
      Its start, end and length (Zucchet et al., 2025, name the phases; the thresholds are ours).

    Raises:
      ValueError: steps and losses are not equally many, or the level is not positive.

    >>> find_plateau([0, 100, 200, 300], [10.0, 4.0, 4.0, 2.0], 4.0)
    Plateau(start=96.66666666666667, end=210.0)
    """
    if len(steps) != len(losses) or level <= 0:
        raise ValueError(
            f"expected as many losses as steps and a positive level; found {len(losses)} losses, "
            f"{len(steps)} steps and the level {level}"
        )
    falls_begin = list(_falls(steps, losses, BEGIN * level))
    falls_end = list(_falls(steps, losses, END * level))
    below = bool(len(losses)) and losses[-1] < END * level
    return Plateau(falls_begin[0] if falls_begin else None, falls_end[-1] if below else None)


def loss_curve(rows: Iterable[Row], task: str) -> tuple[list[int], list[float]]:
    """Steps and attribute losses of a task's evaluations, ascending.

    Args:
      rows: a run's table.
      task: the name of the held-out task.
    """
    points: dict[int, float] = {}
    for row in rows:
        if row["kind"] == "evaluation" and row["task"] == task and row.get("attribute_loss") is not None:
            points[row["step"]] = row["attribute_loss"]
    steps = sorted(points)
    return steps, [points[step] for step in steps]


@dataclass(frozen=True)
class PowerLaw:
    """y = factor · x^exponent, fitted by least squares of the logarithms."""

    factor: float
    exponent: float
    error: float | None  # standard error of the exponent; None for fewer than three points

    def __call__(self, x: float) -> float:
        return float(self.factor * x**self.exponent)


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """Fits a power law, such as the plateau's end against the number of people.

    Args:
      x: [n] positive numbers, at least two of them different.
      y: [n] positive numbers.

    Raises:
      ValueError: too few points, or some that are not positive.

    >>> fit = fit_power_law([1000, 2000, 4000], [0.43 * n**0.81 for n in (1000, 2000, 4000)])
    >>> round(fit.factor, 6), round(fit.exponent, 6), round(fit.error, 6)
    (0.43, 0.81, 0.0)
    """
    if len(set(x)) < 2 or len(x) != len(y) or min(*x, *y) <= 0:
        raise ValueError(f"expected two or more points of positive numbers; found {list(x)} and {list(y)}")
    across, up = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    deviations = across - across.mean()
    exponent = float(deviations @ up / (deviations @ deviations))
    residuals = up - up.mean() - exponent * deviations
    degrees = len(across) - 2
    error = float(np.sqrt(residuals @ residuals / degrees / (deviations @ deviations))) if degrees else None
    return PowerLaw(float(np.exp(up.mean() - exponent * across.mean())), exponent, error)


def _falls(steps: Sequence[float], losses: Sequence[float], threshold: float) -> Iterator[float]:
    """The steps at which a curve comes under a threshold; its first step if it is there from the first."""
    for place, loss in enumerate(losses):
        if loss >= threshold or (place and losses[place - 1] < threshold):
            continue
        if not place:
            yield float(steps[0])
            continue
        before, step = losses[place - 1], steps[place - 1]
        yield step + (steps[place] - step) * (before - threshold) / (before - loss)
