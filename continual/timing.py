"""Where the time of the loop goes: parts of an interval, and quantiles over steps."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..monitoring.rows import STEP_PARTS


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

    def move(self, seconds: float, source: str, target: str) -> None:
        """Counts seconds that were measured within one part as another's."""
        self.seconds[source] -= seconds
        self.seconds[target] += seconds

    def read(self) -> tuple[dict[str, float], float]:
        """Seconds per part and in all since the last reading; begins anew."""
        now = time.perf_counter()
        parts, wall = self.seconds, now - self.since
        self.seconds, self.since = dict.fromkeys(STEP_PARTS, 0.0), now
        return parts, wall


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
