"""A progress line for long work on a terminal."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from .text import duration

_TERMINAL_SECONDS = 0.1  # between two redraws on a terminal
_RATE_SECONDS = 15.0  # about how far back the shown rate looks


class ProgressLine:
    """Shows step, examples, share done, rate, time left, entries and accuracy.

    On a terminal it rewrites one line; elsewhere (a file, a pipe) it prints a plain line every few
    seconds. It costs next to nothing when called at every step.

    Example:
      >>> import io
      >>> out = io.StringIO()
      >>> with ProgressLine(total=1000, stream=out, every_seconds=0) as progress:
      ...     progress.update(step=25, examples=200, entries=210, accuracy=0.5)
      >>> print(out.getvalue().split(" · ")[0])
      step 25
    """

    def __init__(
        self,
        total: int | None,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        every_seconds: float = 10.0,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the clock.

        Args:
          total: examples in all; None when not known.
          done: examples already learnt from when this process began (a resumed run).
          stream: where to write; standard error by default.
          every_seconds: between two plain lines when `stream` is not a terminal.
          quiet: write nothing.
          clock: seconds from any origin.
        """
        self._total = total
        self._stream = stream if stream is not None else sys.stderr
        self._terminal = self._stream.isatty()
        self._interval = _TERMINAL_SECONDS if self._terminal else every_seconds
        self._quiet = quiet
        self._clock = clock
        self._last_shown = self._mark_time = clock()
        self._mark_examples = done
        self._rate: float | None = None
        self._pending = ""

    def update(
        self, step: int, examples: int, entries: int | None = None, accuracy: float | None = None
    ) -> None:
        """Shows where the work is, if it is time to.

        Args:
          step: updates since step 0.
          examples: examples since step 0.
          entries: entries in all layers.
          accuracy: prequential accuracy, a ratio.
        """
        if self._quiet:
            return
        now = self._clock()
        self._measure(now, examples)
        self._pending = self._text(step, examples, entries, accuracy)
        if now - self._last_shown >= self._interval:
            self._show(now)

    def close(self) -> None:
        """Shows the last state and ends the line."""
        if self._pending:
            self._show(self._clock())
        if self._terminal and not self._quiet:
            self._stream.write("\n")
            self._stream.flush()
        self._quiet = True

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure(self, now: float, examples: int) -> None:
        """Follows the rate of the last seconds, so that a growing memory's slowing shows."""
        elapsed = now - self._mark_time
        if elapsed >= 1.0 or (self._rate is None and elapsed > 0):
            rate = (examples - self._mark_examples) / elapsed
            share = min(1.0, elapsed / _RATE_SECONDS)
            self._rate = rate if self._rate is None else self._rate + share * (rate - self._rate)
            if elapsed >= 1.0:
                self._mark_time, self._mark_examples = now, examples

    def _text(self, step: int, examples: int, entries: int | None, accuracy: float | None) -> str:
        of_total = f" of {self._total:,} ({examples / self._total:.0%})" if self._total else ""
        # What matters most comes first: a narrow terminal cuts the end.
        parts = [f"{examples:,}{of_total} examples"]
        if accuracy is not None:
            parts.append(f"accuracy {accuracy:.3f}")
        if entries is not None:
            parts.append(f"{entries:,} entries")
        if self._rate:
            parts.append(f"{self._rate:,.0f}/s")
            if self._total:
                parts.append(f"{duration((self._total - examples) / self._rate)} left")
        return " · ".join([*parts, f"step {step:,}"])

    def _show(self, now: float) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{self._pending[:width]}")
        else:
            self._stream.write(f"{self._pending}\n")
        self._stream.flush()
        self._pending = ""
        self._last_shown = now
