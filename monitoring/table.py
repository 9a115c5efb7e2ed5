"""A run's local table `metrics.jsonl`: one JSON object a line, resumable at a committed position."""

import json
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import to_json

from ..errors import FormatError, MissingDataError
from .append_file import AppendFile
from .rows import Row, plain

TABLE_NAME = "metrics.jsonl"
EVALUATION_START = b'{"kind":"evaluation",'
"""How a row of kind "evaluation" begins."""
_BACKWARDS_BYTES = 1 << 16


@dataclass(frozen=True)
class DroppedRows:
    """What a resume dropped from the table because it came after the last commit."""

    step_rows: int = 0  # rows of kind "step"
    evaluation_rows: int = 0  # rows of kind "evaluation"
    last_step: int = 0  # of the last dropped row of kind "step"


class TableWriter:
    """Appends rows to a table.

    Attributes:
      dropped: what was dropped when the table was opened at a position.
    """

    def __init__(self, path: Path, position: int | None = None) -> None:
        """Opens the table.

        Args:
          path: the file.
          position: bytes to keep, from `position()` at the last commit; None: a new table.

        Raises:
          ConfigError: the table holds rows already, and no position was given.
          FormatError: the file ends before the position, or the position is not the end of a row.
          StorageError: the file system refused.
        """
        if position:
            _check_row_end(path, position)
        self._file = AppendFile(path, position)
        try:
            self.dropped = _count_dropped(self._file.tail)
            if self.dropped.step_rows:
                last_step_row(path, self._file.position())  # tells damage in what is gone on from
        except BaseException:
            self._file.close()
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Appends one row; NaN and infinite numbers become null.

        Args:
          row: the columns; `kind` is one of them.

        Raises:
          StorageError: the file system refused; the table is as it was before.
        """
        try:
            line = to_json(row, inf_nan_mode="null")
        except ValueError:  # numpy's scalars
            line = to_json(plain(row))
        self._file.append(line + b"\n")

    def position(self) -> int:
        """Returns the bytes appended so far; every one has left this process."""
        return self._file.position()

    def sync(self) -> None:
        """Makes every appended row survive a power loss."""
        self._file.sync()

    def close(self) -> None:
        """Closes the table; closing twice is harmless."""
        self._file.close()


def read_table(path: Path) -> list[Row]:
    """Reads a table, also one that is being written.

    Args:
      path: the file.

    Returns:
      The rows in order. A last line that has no end yet is left out.

    Raises:
      MissingDataError: there is no such file.
      FormatError: a line that has an end is not a row.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MissingDataError(f"no table at {path}; the run has not recorded a row yet") from None
    lines = content.split(b"\n")[:-1]  # what follows the last line end is empty or torn
    return [_parse(path, line, f"line {number}") for number, line in enumerate(lines, start=1)]


def evaluation_rows(path: Path, last_bytes: int | None = None) -> list[Row]:
    """Reads only a table's evaluations, which are few, without parsing the rows between them.

    Args:
      path: the file.
      last_bytes: only those that begin so near to its end; None: all.

    Returns:
      The rows of kind "evaluation" in order; none where there is no table.

    Raises:
      FormatError: one of them is damaged.
    """
    if not path.exists() or path.stat().st_size == 0:
        return []
    rows = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        first = 0 if last_bytes is None else max(0, len(content) - last_bytes)
        place = content.find(EVALUATION_START, first)
        while place >= 0:
            end = content.find(b"\n", place)
            if end < 0:
                break  # torn
            if place == 0 or content[place - 1 : place] == b"\n":
                rows.append(_parse(path, content[place:end], f"byte {place}"))
            place = content.find(EVALUATION_START, end)
    return rows


def step_rows_backwards(path: Path, end: int | None = None) -> Iterator[Row]:
    """Yields a table's step rows from the last one back, reading no more than is asked for.

    Args:
      path: the file.
      end: begin before this byte, at which a row begins; None: at the end of the last whole row.

    Raises:
      FormatError: a line on the way is damaged.
    """
    stop = path.stat().st_size if end is None else end
    size = _BACKWARDS_BYTES
    with open(path, "rb") as file:
        while stop > 0:
            start = max(0, stop - size)
            file.seek(start)
            lines = file.read(stop - start).split(b"\n")
            whole = lines[:-1] if start == 0 else lines[1:-1]  # what follows the last line end is torn
            for line in reversed(whole):
                row = _parse(path, line, f"before byte {stop}")
                if row["kind"] == "step":
                    yield row
            if not whole:
                size *= 4  # a line longer than what was read
            stop = 0 if start == 0 else start + len(lines[0]) + 1 if whole else stop


def row_of_step(path: Path, step: int) -> Row | None:
    """Finds a step's row without reading the table: steps grow, so the place is halved until it is near.

    Args:
      path: the file.
      step: the step.

    Returns:
      The row of kind "step" of that very step, or None if there is none.

    Raises:
      FormatError: a line on the way is damaged.
    """
    low, high = 0, path.stat().st_size  # the row begins at `low` or later, and before `high`
    with open(path, "rb") as file:
        while high - low > _BACKWARDS_BYTES:
            middle = (low + high) // 2
            found = next(_step_rows_after(path, file, middle), None)
            if found is None or found[1]["step"] > step:
                high = middle
            else:
                low = found[0]
        for _, row in _step_rows_after(path, file, low):
            if row["step"] >= step:
                return row if row["step"] == step else None
    return None


def _step_rows_after(path: Path, file: BinaryIO, start: int) -> Iterator[tuple[int, Row]]:
    """Yields step rows that begin at byte `start` or later, each with its first byte."""
    file.seek(max(start - 1, 0))
    if start:
        file.readline()  # the rest of a row, or the line end before one
    while True:
        place, line = file.tell(), file.readline()
        if not line.endswith(b"\n"):
            return  # the end, or torn
        row = _parse(path, line, f"byte {place}")
        if row["kind"] == "step":
            yield place, row


def last_step_row(path: Path, end: int | None = None) -> Row | None:
    """Returns the first of `step_rows_backwards`, or None if there is none."""
    return next(step_rows_backwards(path, end), None)


def _parse(path: Path, line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or "kind" not in row:
        raise FormatError(
            f"{path} {where} is damaged: expected a JSON object with a kind, found "
            f"{line[:40]!r}; restore the file, or delete that line"
        )
    return row


def _check_row_end(path: Path, position: int) -> None:
    if not path.exists() or path.stat().st_size < position:
        return  # AppendFile has the message
    with open(path, "rb") as file:
        file.seek(position - 1)
        if file.read(1) != b"\n":
            raise FormatError(
                f"{path} has no row ending at byte {position}, where one was committed: it was "
                "changed or replaced; restore it from a copy of the run"
            )


def _count_dropped(tail: bytes) -> DroppedRows:
    rows = list(_whole_rows(tail))
    steps = [row["step"] for row in rows if row["kind"] == "step"]
    evaluations = sum(row["kind"] == "evaluation" for row in rows)
    return DroppedRows(len(steps), evaluations, max(steps, default=0))


def _whole_rows(tail: bytes) -> Iterator[Row]:
    """Yields the readable rows of a dropped tail, which may end in garbage after a power loss."""
    for line in tail.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            return
        if isinstance(row, dict) and {"kind", "step"} <= row.keys():
            yield row
