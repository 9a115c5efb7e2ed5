"""Origins: which stream, and which offset in it, an entry or a prediction came from.

Examples are numbered through all phases of a run, and through all runs that a memory was handed on by: a span
is the stretch of these numbers that one phase's stream has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..stream import StreamConfig
from ..stream.config import config_from_values, config_to_json


@dataclass(frozen=True)
class Span:
    """Origins `start`, `start` + 1, …: the offsets 0, 1, … of a stream, as far as the next span's start."""

    start: int
    run: str  # the run whose phase it was
    phase: str
    stream: StreamConfig  # with its seed

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {**vars(self), "stream": config_to_json(self.stream)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Span":
        """The span that `to_json` gave."""
        return cls(**{**values, "stream": config_from_values(values["stream"])})


def locate(spans: Sequence[Span], origin: int) -> tuple[Span, int]:
    """The span that an origin lies in, and the offset in its stream.

    >>> stream = StreamConfig(source="digits")
    >>> span, offset = locate([Span(0, "a", "one", stream), Span(100, "a", "two", stream)], 130)
    >>> span.phase, offset
    ('two', 30)
    """
    span = max((each for each in spans if each.start <= origin), key=lambda each: each.start)
    return span, origin - span.start
