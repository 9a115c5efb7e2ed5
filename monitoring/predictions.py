"""A run's predictions, one fixed-width record per example seen: `predictions.bin`.

The record's layout stands beside it in `predictions.json`, so the file opens with numpy alone:
`np.memmap("predictions.bin", dtype=[tuple(field) for field in layout["dtype"]])`.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..durable import write_durably
from ..errors import DataError, FormatError, MissingDataError
from .append_file import AppendFile

PREDICTIONS_NAME = "predictions.bin"
LAYOUT_NAME = "predictions.json"
Task = Literal["classification", "regression", "language"]

_FORMAT_VERSION = 1
_MOST_HELD = 256  # batches between two writes
_WRITE_SECONDS = 0.5  # between two writes where steps are recorded more often
_NAMES = ("origin", "label", "prediction", "loss")
_Field = tuple[str, str] | tuple[str, str, tuple[int, ...]]


def record_fields(task: Task, outputs: int = 1) -> list[_Field]:
    """Returns the fields of one record as numpy's structured dtype takes them, little-endian.

    Args:
      task: classification records hold class indices (int32), regression records values (float32), and
        language records how many values a text tells and how many of them were predicted right (int32).
      outputs: values per example in regression; more than one make the two fields arrays.

    Example:
      >>> record_fields("classification")
      [('origin', '<i8'), ('label', '<i4'), ('prediction', '<i4'), ('loss', '<f4')]
      >>> np.dtype(record_fields("regression", outputs=3)).itemsize
      36
    """
    if task in ("classification", "language"):
        return [("origin", "<i8"), ("label", "<i4"), ("prediction", "<i4"), ("loss", "<f4")]
    if outputs == 1:
        return [("origin", "<i8"), ("label", "<f4"), ("prediction", "<f4"), ("loss", "<f4")]
    shape = (outputs,)
    return [
        ("origin", "<i8"),
        ("label", "<f4", shape),
        ("prediction", "<f4", shape),
        ("loss", "<f4"),
    ]


class PredictionLog:
    """Appends predictions to a folder's `predictions.bin`.

    Batches are held until `flush`, since a write after every small step would cost a share of it. What a
    killed process held came after its last commit, and is predicted again.

    Attributes:
      dtype: the record's numpy dtype.
      dropped: records dropped when the log was opened at a position, a torn last one not counted.
    """

    def __init__(self, folder: Path, task: Task, outputs: int = 1, position: int | None = None) -> None:
        """Opens the log and, for a new one, writes its layout.

        Args:
          folder: the run's folder.
          task: what is predicted.
          outputs: values per example (regression).
          position: bytes to keep, from `position()` at the last commit; None: a new log.

        Raises:
          ConfigError: the log holds records already, and no position was given.
          FormatError: the file ends before the position, the position is not the end of a record, or
            the log's layout is another one.
          StorageError: the file system refused.
        """
        path = folder / PREDICTIONS_NAME
        fields = record_fields(task, outputs)
        self.dtype = np.dtype(fields)
        self._held: list[tuple[ArrayLike, ...]] = []  # batches that are not yet in the file
        self._written_at = time.monotonic()
        if position:
            _check_layout(folder, self.dtype, position)
        self._file = AppendFile(path, position)
        if not position:
            layout = {"format": _FORMAT_VERSION, "task": task, "dtype": fields}
            write_durably(folder / LAYOUT_NAME, json.dumps(layout).encode() + b"\n")
        self.dropped = len(self._file.tail) // self.dtype.itemsize

    def append(
        self, origins: ArrayLike, labels: ArrayLike, predictions: ArrayLike, losses: ArrayLike
    ) -> None:
        """Appends one record per example. The arrays may not change before `flush`, which checks them.

        Args:
          origins: `[B]` int, stream offsets.
          labels: `[B]` int class indices or counts of values, or `[B]` / `[B, F]` float targets.
          predictions: like `labels`, made before learning from the batch.
          losses: `[B]` float, each example's own loss before learning.

        Raises:
          DataError, StorageError: as `flush`, which is called where much is held.
        """
        self._held.append((origins, labels, predictions, losses))
        if len(self._held) >= _MOST_HELD:
            self.flush()

    def flush_if_due(self) -> None:
        """Writes what is held if the last write was some time ago; otherwise as cheap as nothing.

        Raises:
          DataError, StorageError: as `flush`.
        """
        if time.monotonic() - self._written_at > _WRITE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes what is held: afterwards it has left this process.

        Raises:
          DataError: the arrays of a batch do not match each other or the log's layout; nothing is written.
          StorageError: the file system refused; the file is as it was before, and all is still held.
        """
        if not self._held:
            return
        try:
            records = _joined(self._held, self.dtype)
        except (TypeError, ValueError):
            for batch in self._held:
                _check(batch, self.dtype)
            raise
        self._file.append(records.tobytes())
        self._held.clear()
        self._written_at = time.monotonic()

    def position(self) -> int:
        """Returns the bytes written so far; every one has left this process."""
        return self._file.position()

    def sync(self) -> None:
        """Writes what is held and makes every appended record survive a power loss."""
        self.flush()
        self._file.sync()

    def close(self) -> None:
        """Writes what is held and closes the log; closing twice is harmless.

        Raises:
          DataError, StorageError: as `flush`; the log is closed all the same.
        """
        try:
            self.flush()
        finally:
            self._held.clear()
            self._file.close()


def read_predictions(folder: Path) -> NDArray[Any]:
    """Opens a run's predictions, also while they are being written.

    Args:
      folder: the run's folder.

    Returns:
      A read-only structured array with the fields `origin`, `label`, `prediction` and `loss`, mapped
      from the file; a record that is not whole yet is left out.

    Raises:
      MissingDataError: the run recorded no predictions.
      FormatError: the layout is damaged or of a newer version.
    """
    dtype = _read_layout(folder)
    path = folder / PREDICTIONS_NAME
    count = path.stat().st_size // dtype.itemsize if path.exists() else 0
    if count == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,))


def _joined(batches: Sequence[tuple[Any, ...]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The records of batches; raises TypeError or ValueError where one does not match."""
    columns = tuple(zip(*batches, strict=True))
    counts = [tuple(map(len, column)) for column in columns]
    if counts.count(counts[0]) < len(counts):
        raise ValueError("columns of different lengths")
    records = np.zeros(sum(counts[0]), dtype)
    for name, column in zip(_NAMES, columns, strict=True):
        np.concatenate(column, out=records[name], casting="same_kind")
    return records


def _check(batch: tuple[ArrayLike, ...], dtype: np.dtype[Any]) -> None:
    """Says which array of a batch does not match."""
    arrays = tuple(map(np.asarray, batch))
    fields = np.zeros(len(arrays[0]) if arrays[0].ndim == 1 else 0, dtype)
    for name, array in zip(_NAMES, arrays, strict=True):
        field = fields[name]
        if array.shape != field.shape or not np.can_cast(array.dtype, field.dtype, "same_kind"):
            raise DataError(
                f"{name} of the predictions: expected {field.dtype} {field.shape}, "
                f"found {array.dtype} {array.shape}"
            )


def _read_layout(folder: Path) -> np.dtype[Any]:
    path = folder / LAYOUT_NAME
    try:
        layout = json.loads(path.read_bytes())
        version = layout["format"]
        fields = [(name, code, *(tuple(shape) for shape in rest)) for name, code, *rest in layout["dtype"]]
        dtype = np.dtype(fields)
    except FileNotFoundError:
        raise MissingDataError(f"no predictions in {folder}: {LAYOUT_NAME} is missing") from None
    except (ValueError, KeyError, TypeError):
        raise FormatError(
            f"{path} is damaged: expected a format and a dtype; restore it from a copy of the run"
        ) from None
    if version != _FORMAT_VERSION:
        raise FormatError(f"{path} has format {version}, this version reads {_FORMAT_VERSION}; update Lamina")
    return dtype


def _check_layout(folder: Path, dtype: np.dtype[Any], position: int) -> None:
    found = _read_layout(folder)
    if found != dtype:
        raise FormatError(
            f"{folder / LAYOUT_NAME} describes records {found}, this run writes {dtype}; "
            "resume with the run's own configuration"
        )
    if position % dtype.itemsize:
        raise FormatError(
            f"position {position} of {folder / PREDICTIONS_NAME} is not a multiple of the record's "
            f"{dtype.itemsize} bytes; the commit and the file do not belong together"
        )
