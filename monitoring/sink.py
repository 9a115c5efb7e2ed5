"""What a recorder hands to its sinks: samples of the declared metrics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .metrics import Metric


@dataclass(frozen=True)
class Distribution:
    """The value of a histogram metric."""

    counts: tuple[int, ...]  # observations per bucket, one more than the metric's bounds (above them)
    total: float  # sum of all observations, in the metric's unit


class Sample(NamedTuple):
    """One series' value now."""

    metric: Metric
    labels: tuple[str, ...]  # values of `metric.labels`, in their order
    value: float | Distribution  # a Unix time in seconds where `metric.age`


Samples = Callable[[], Iterable[Sample]]
"""Makes the samples of a moment, when somebody reads them; from any thread, and as often as asked."""


class Sink(Protocol):
    """Shows the latest samples of a run. It never blocks the loop and keeps nothing older."""

    def publish(self, samples: Samples) -> None:
        """Replaces everything shown by these samples: a series that is not among them is gone."""

    def close(self) -> None:
        """Shows nothing any more and frees what it held; closing twice is harmless."""
