"""The interval between two rows of the metrics table, and the time that its parts took."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..monitoring.rows import STEP_PARTS
from .evaluation import Score


@dataclass
class Stopwatch:
    """Seconds spent per part of a step since the last reading."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEP_PARTS, 0.0))
    since: float = field(default_factory=time.perf_counter)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds the time inside to a part."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    def read(self) -> tuple[dict[str, float], float]:
        """Seconds per part and in all since the last reading; begins anew."""
        now = time.perf_counter()
        parts, wall = self.seconds, now - self.since
        self.seconds, self.since = dict.fromkeys(STEP_PARTS, 0.0), now
        return parts, wall


@dataclass(frozen=True)
class Progress:
    """What a run has done. Saved in every commit, so that a resumed run goes on exactly."""

    examples: int = 0  # learnt from
    offset: int = 0  # position in the stream
    skipped: int = 0  # bad examples passed over
    phase: Score = field(default_factory=Score)  # of the predictions made before learning, in this phase
    window: Score = field(default_factory=Score)  # the same, since the last row
    shapes: tuple[str, ...] = ()  # memory shapes the training step was compiled for
    evaluation: Score = field(default_factory=Score)  # the last one on held-out data
    totals: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by layer, in the order of COUNTERS
    wall_seconds: float = 0.0  # of the loop
    repeated_steps: int = 0  # steps done again after interruptions
    finished: bool = False  # whether the stream was learnt to its end

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back exactly."""
        values = dict(vars(self))
        for name in ("phase", "window", "evaluation"):
            values[name] = vars(values[name])
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Progress":
        """The progress that `to_json` gave."""
        scores = {name: Score(**values[name]) for name in ("phase", "window", "evaluation")}
        totals = {name: tuple(counts) for name, counts in values["totals"].items()}
        return cls(**{**values, **scores, "shapes": tuple(values["shapes"]), "totals": totals})

    def learnt(self, score: Score, offset: int, skipped: int, shape: str) -> "Progress":
        """After a batch."""
        shapes = self.shapes if shape in self.shapes else (*self.shapes, shape)
        return replace(
            self,
            examples=self.examples + score.examples,
            offset=offset,
            skipped=skipped,
            phase=self.phase + score,
            window=self.window + score,
            shapes=shapes,
        )


class StepTimes:
    """Quantiles of step durations in fixed memory: counts in bins 2 % wide."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """Counts one step."""
        number = round(math.log(max(seconds, 1e-9)) / _BIN)
        self._bins[number] = self._bins.get(number, 0) + 1

    def quantile(self, share: float) -> float:
        """The duration, in seconds, that `share` of the steps did not exceed; 0 without steps."""
        left = share * sum(self._bins.values())
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                return math.exp(number * _BIN)
        return 0.0


_BIN = 0.02
