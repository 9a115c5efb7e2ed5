"""`files:GLOB`: CSV, JSONL and Parquet files with named feature and target columns."""

import glob
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, DataError, MissingDataError
from ..checks import BAD_LABEL, BAD_SHAPE, GOOD, UNREADABLE
from ..config import StreamConfig
from ..schema import Array, Field, Schema
from .registry import register
from .row_index import Record, open_rows
from .table import Table, merge_classes


@register("files:GLOB", "CSV, JSONL or Parquet files in the order (name, row); set features and target")
def open_record_files(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens the files whose names match; they form one split, "train"."""
    if split not in (None, "train"):
        raise ConfigError(
            f"{config.source} has one split, train, not {split!r}; give held-out files as another stream"
        )
    if config.target is None:
        raise ConfigError(f"{config.source} needs target: the name of the column that holds y")
    paths = sorted(Path(name) for name in glob.glob(str(Path(argument).expanduser()), recursive=True))
    if not paths:
        raise MissingDataError(f"files: no file matches {argument}; check the pattern")
    return RecordTable(paths, config.features, config.target, merge_classes(config.classes, None))


class RecordTable:
    """The rows of several files, one after another.

    Args:
      paths: the files, in order.
      features: columns that form x, each a number or a list of numbers; None: all but the target.
      target: column of y: with `classes` a name or a number among them, else a number or a list.
      classes: the labels; None: regression.

    Raises:
      DataError: a file is damaged, or its first row lacks a column or cannot be read.
    """

    def __init__(
        self,
        paths: list[Path],
        features: tuple[str, ...] | None,
        target: str,
        classes: tuple[str, ...] | None,
    ) -> None:
        self._files = [open_rows(path) for path in paths]
        self._borders = np.cumsum([0, *(file.rows for file in self._files)])
        self.rows: int | None = int(self._borders[-1])
        self._labels = {name: label for label, name in enumerate(classes or ())}
        self._target = target
        self._features = features or ()
        for path, file in zip(paths, self._files, strict=True):
            if file.rows:
                first = next(file.read(np.zeros(1, np.int64)))
                self._check_columns(path, first, features)
        self.schema = self._infer_schema(classes)

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        x = np.zeros((len(rows), *self.schema.x.shape), np.float32)
        y = np.zeros((len(rows), *self.schema.y.shape), self.schema.y.dtype)
        problems = np.zeros(len(rows), np.uint8)
        files = np.searchsorted(self._borders, rows, side="right") - 1
        for number in np.unique(files):
            places = np.flatnonzero(files == number)
            records = self._files[number].read(rows[places] - self._borders[number])
            for place, record in zip(places, records, strict=True):
                problems[place] = self._fill(record, x[place : place + 1], y[place : place + 1])
        return x, y, problems

    def _fill(self, record: Record, x: Array, y: Array) -> int:
        """Converts one record into x [1, D] and y [1] or [1, F]; returns its code."""
        names = (*self._features, self._target)
        if record is None or any(name not in record for name in names):
            return BAD_SHAPE
        try:
            values = np.concatenate([_numbers(record[name]) for name in self._features])
            targets = _numbers(record[self._target]) if self.schema.classes is None else None
        except (TypeError, ValueError, OverflowError):
            return UNREADABLE
        if values.size != x.size or (targets is not None and targets.size != y.size):
            return BAD_SHAPE
        with np.errstate(over="ignore"):  # beyond float32: found as not finite
            x[0] = values
            if targets is not None:
                y[0] = targets
                return GOOD
        label = _label(record[self._target], self._labels)
        y[0] = -1 if label is None else label
        return BAD_LABEL if label is None else GOOD

    def _check_columns(self, path: Path, first: Record, features: tuple[str, ...] | None) -> None:
        if first is None:
            raise DataError(f"{path}: its first row cannot be read; expected one value per column")
        if not self._features:
            self._features = features or tuple(name for name in first if name != self._target)
        missing = [name for name in (*self._features, self._target) if name not in first]
        if missing:
            raise DataError(
                f"{path}: expected the columns {', '.join(missing)}, found {', '.join(first)}; "
                f"correct features and target"
            )

    def _infer_schema(self, classes: tuple[str, ...] | None) -> Schema:
        """Sizes from the first row that can be read."""
        for file in self._files:
            for record in file.read(np.arange(file.rows)):
                try:
                    assert record is not None
                    x = sum(_numbers(record[name]).size for name in self._features)
                    y = 1 if classes is not None else _numbers(record[self._target]).size
                except (AssertionError, KeyError, TypeError, ValueError, OverflowError):
                    continue
                target = Field((y,), "float32") if classes is None else Field((), "int32")
                return Schema(Field((x,), "float32"), target, classes)
        if self.rows:
            raise DataError(
                f"no row holds numbers in the columns {', '.join(self._features)} and {self._target}; "
                f"for text labels declare classes"
            )
        return Schema(Field((0,), "float32"), Field((1,), "float32"), classes)


def _numbers(value: Any) -> Array:
    """A number, or a list of numbers, as float64 [n]."""
    if value is None or isinstance(value, bytes) or (isinstance(value, str) and not value.strip()):
        raise ValueError("missing")
    return np.asarray(value, np.float64).reshape(-1)


def _label(value: Any, labels: dict[str, int]) -> int | None:
    """The label of a class's name, or of its number."""
    text = str(value).strip()
    if text in labels:
        return labels[text]
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and 0 <= number < len(labels) else None
