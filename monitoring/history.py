"""A run's table, read as it grows: a million rows cost as much memory as a thousand."""

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from .rows import LAYER_COUNTS, STEP_PARTS, TEXT_COLUMNS, EvaluationRow, Row
from .stretches import Floats, Stretches
from .table import EVALUATION_START, TABLE_NAME, evaluation_rows, last_step_row

_BLOCK_BYTES = 1 << 24  # read and parsed at a time
_SAMPLED_ROWS = 1500
_COLUMNS = (
    "step",
    "prequential_accuracy",
    "window_accuracy",
    "loss",
    "examples_per_second",
    "wall_seconds",
    *(f"{part}_seconds" for part in STEP_PARTS),
)
_NEVER_NULL = ("step", "examples", "phase", "layers")
_EVALUATION_COLUMNS = {column.name for column in fields(EvaluationRow)} - set(TEXT_COLUMNS)
_LAYER_COLUMNS = ("entries", "capacity", "bytes", *LAYER_COUNTS)


class History:
    """What a table's rows say, kept up to date with `update`.

    Attributes:
      lines: the columns of step rows over the examples seen; those of a layer are `LAYER/COLUMN`, `entries`
        is their sum over the layers, `steps` the steps a row stands for.
      layers: the layers' names in the order of their first row.
      last: the last step row, whole; None without one.
      evaluations: the rows of kind "evaluation" in order.
      phases: where each phase begins, in examples seen, and its name.
      drifts: where drift was signalled, in examples seen at the end of a row's interval.
      problems: one line for each line of the file that is no row.
      coarse: whether the rows are a sample, whose sums say nothing, with the latest evaluations alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Begins before the first row.

        Args:
          path: the table; None: rows come from `take_rows` only.
        """
        self._path = path
        self.coarse = False
        self.last: Row | None = None
        self._inode = -1
        self._start_over()

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "History":
        """The history of rows in memory."""
        history = cls()
        history.take_rows(rows)
        return history

    @classmethod
    def sample(cls, path: Path, count: int = _SAMPLED_ROWS) -> "History":
        """A coarse history of a long table at once: rows at equal distances in the file, and its end.

        Args:
          path: the table.
          count: how many rows to look at.
        """
        history = cls()
        history.take_rows(list(_sampled(path, count)))
        history.last = last_step_row(path)
        history.coarse = True
        history.evaluations = evaluation_rows(path, _BLOCK_BYTES)
        return history

    def update(self, most_bytes: int | None = None) -> bool:
        """Reads what was appended since the last call; a file that was replaced or cut is read anew.

        Args:
          most_bytes: about how much to read now; None: all.

        Returns:
          Whether the end was reached.
        """
        assert self._path is not None
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._start_over()
            return True
        if found.st_ino != self._inode or found.st_size < self._position:
            self._start_over()
            self._inode = found.st_ino
        stop = math.inf if most_bytes is None else self._position + most_bytes
        with open(self._path, "rb") as file:
            while self._position < stop:
                file.seek(self._position)
                block = file.read(_BLOCK_BYTES)
                end = block.rfind(b"\n") + 1
                if end == 0:
                    return True  # what follows has no end yet
                self._take_block(block[:end])
        return False

    @property
    def unread_bytes(self) -> int:
        """Bytes of the file that no call of `update` has read."""
        assert self._path is not None
        return self._path.stat().st_size - self._position if self._path.exists() else 0

    def take_rows(self, rows: Sequence[Row]) -> None:
        """Adds rows that are in memory."""
        steps = [row for row in rows if row["kind"] == "step"]
        self.evaluations += [row for row in rows if row["kind"] == "evaluation"]
        if not steps:
            return
        columns = {name: _column(steps, name) for name in _COLUMNS}
        for layer in dict.fromkeys(name for row in steps for name in row["layers"]):
            of_layer = [row["layers"].get(layer, {}) for row in steps]
            columns |= {f"{layer}/{name}": _column(of_layer, name) for name in _LAYER_COLUMNS}
        self._note_drifts(_column(steps, "examples"), _column(steps, "drifts"))
        self._take(_column(steps, "examples"), columns, [row["phase"] for row in steps])
        self.last = dict(steps[-1])

    def _start_over(self) -> None:
        self._position, self._lines_read = 0, 0
        self.lines = Stretches()
        self.layers: list[str] = []
        self.last = None
        self.evaluations: list[Row] = []
        self.phases: list[tuple[float, str]] = []
        self.drifts: list[float] = []  # examples seen at the rows by which drift was signalled
        self.problems: list[str] = []
        self._examples, self._drifts = 0.0, 0.0
        self._step: float | None = None

    def _take_block(self, block: bytes) -> None:
        try:
            evaluations, last = list(_evaluations(block)), _last_step(block)
            self._take_table(pa.json.read_json(io.BytesIO(block), _reading(len(block))))
            self.evaluations += evaluations
            self.last = last or self.last
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError):
            self.take_rows(list(self._readable(block)))  # slower, and tells the damaged lines
        self._position += len(block)
        self._lines_read += block.count(b"\n")

    def _take_table(self, table: pa.Table) -> None:
        if table.column("kind").null_count:
            raise ValueError("a row without its kind")
        table = table.filter(pa.compute.equal(table.column("kind"), "step"))
        if not table.num_rows:
            return
        if any(table.column(name).null_count for name in _NEVER_NULL):
            raise ValueError("a row without what tells its place")
        columns = {name: _floats(table.column(name)) for name in _COLUMNS}
        layers = table.column("layers").combine_chunks()
        for field in layers.type:
            of_layer = layers.field(field.name)
            known = {each.name for each in of_layer.type}
            for name in _LAYER_COLUMNS:
                if name in known:
                    columns[f"{field.name}/{name}"] = _floats(of_layer.field(name))
        if "drifts" in table.column_names:  # older versions do not write it
            self._note_drifts(_floats(table.column("examples")), _floats(table.column("drifts")))
        self._take(_floats(table.column("examples")), columns, table.column("phase"))

    def _take(self, examples: Floats, columns: Mapping[str, Floats], phases: Any) -> None:
        for name in columns:
            layer = name.rpartition("/")[0]
            if layer and layer not in self.layers:
                self.layers.append(layer)
        self._note_phases(examples, np.asarray(phases, object))
        entries = [column for name, column in columns.items() if name.endswith("/entries")]
        derived = {"steps": self._intervals(columns["step"])}
        if entries:
            derived["entries"] = np.nansum(entries, axis=0)
        self.lines.take(examples, {**columns, **derived})
        self._examples = float(examples[-1])

    def _intervals(self, steps: Floats) -> Floats:
        """Returns how many steps each row stands for; the first, which may be a fork's, as many as usual."""
        spans = np.diff(steps)
        if self._step is None:
            first = min(float(np.median(spans)), steps[0]) if len(spans) else steps[0]
        else:
            first = steps[0] - self._step
        self._step = float(steps[-1])
        return np.concatenate([[first], spans])

    def _note_phases(self, examples: Floats, phases: Any) -> None:
        changed = np.flatnonzero(phases[1:] != phases[:-1]) + 1
        before = np.concatenate([[self._examples], examples[:-1]])
        for place in (0, *changed.tolist()):
            if not self.phases or self.phases[-1][1] != phases[place]:
                self.phases.append((float(before[place]) if self.phases else 0.0, str(phases[place])))

    def _note_drifts(self, examples: Floats, drifts: Floats) -> None:
        known = np.nan_to_num(drifts)
        self.drifts += examples[np.diff(known, prepend=self._drifts) > 0].tolist()
        self._drifts = float(known[-1])

    def _readable(self, block: bytes) -> Iterator[Row]:
        for number, line in enumerate(block.split(b"\n")[:-1], start=self._lines_read + 1):
            row = _row(line)
            if row is None:
                self.problems.append(f"{TABLE_NAME} line {number} is damaged: expected a row as JSON")
            else:
                yield row


def _reading(size: int) -> pa.json.ReadOptions:
    long = size > _BLOCK_BYTES // 8
    return pa.json.ReadOptions(use_threads=long, block_size=_BLOCK_BYTES // 8 if long else max(size, 1))


def _floats(column: Any) -> Floats:
    if column.type == pa.null():
        return np.full(len(column), np.nan)
    values: Floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _column(rows: Iterable[Mapping[str, Any]], name: str) -> Floats:
    return np.array([row.get(name) for row in rows], dtype=np.float64)  # None becomes NaN


def _row(line: bytes) -> Row | None:
    """Returns a line's row if it is one that can be shown."""
    try:
        row = json.loads(line)
        if row["kind"] == "evaluation":
            return row if row.keys() >= _EVALUATION_COLUMNS else None
        if row["kind"] == "step":
            numbers = [row[name] for name in (*_COLUMNS, "examples")]
            numbers += [layer[name] for layer in row["layers"].values() for name in _LAYER_COLUMNS]
            np.array(numbers, np.float64)
            return row if all(row[name] is not None for name in _NEVER_NULL) else None
        return dict(row)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _evaluations(block: bytes) -> Iterator[Row]:
    place = block.find(EVALUATION_START)
    while place >= 0:
        end = block.find(b"\n", place)
        if place == 0 or block[place - 1 : place] == b"\n":
            row = _row(block[place:end])
            if row is None:
                raise ValueError("an evaluation without all its columns")
            yield row
        place = block.find(EVALUATION_START, end)


def _last_step(block: bytes) -> Row | None:
    end = len(block) - 1
    while end > 0:
        start = block.rfind(b"\n", 0, end) + 1
        row: Row = json.loads(block[start:end])
        if row["kind"] == "step":
            return row
        end = start - 1
    return None


def _sampled(path: Path, count: int) -> Iterator[Row]:
    size = path.stat().st_size
    end = 0
    with open(path, "rb") as file:
        for place in np.linspace(0, size, count, endpoint=False, dtype=np.int64).tolist():
            if place < end:
                continue
            file.seek(place)
            if place:
                file.readline()  # the rest of a row
            line = file.readline()
            end = file.tell()
            if line.endswith(b"\n") and (row := _row(line)) is not None and row["kind"] == "step":
                yield row
