"""Random access to the rows of text and Parquet files, ordered by (file, row)."""

import csv
import io
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import DataError
from ..schema import Array

Record = dict[str, Any] | None  # column → value; None for a row that cannot be read

_BLOCK = 1 << 24  # bytes scanned at once
_ROW_GROUPS_KEPT = 4


class RowFile(Protocol):
    """One file of rows."""

    rows: int

    def read(self, rows: Array) -> Iterator[Record]:
        """Yields the rows of these numbers [n], in this order."""
        ...


def open_rows(path: Path) -> RowFile:
    """Indexes one file, by its ending.

    Raises:
      DataError: the ending is unknown, or the file is damaged.
    """
    openers: dict[str, type[CsvRows | JsonRows | ParquetRows]] = {
        ".csv": CsvRows,
        ".jsonl": JsonRows,
        ".ndjson": JsonRows,
        ".parquet": ParquetRows,
    }
    if path.suffix.lower() not in openers:
        raise DataError(f"{path}: expected a file ending in {', '.join(openers)}")
    return openers[path.suffix.lower()](path)


class CsvRows:
    """A CSV file with a header; quoted fields may hold commas and line ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts, self._ends = _index_lines(path, quoted=True)
        if not len(self._starts):
            raise DataError(f"{path}: expected a header with column names, found an empty file")
        self._header = self._parse(_slice(path, self._starts[:1], self._ends[:1]))[0]
        self.rows = len(self._starts) - 1

    def read(self, rows: Array) -> Iterator[Record]:
        """See `RowFile.read`."""
        for text in _slice(self._path, self._starts[rows + 1], self._ends[rows + 1]):
            values = self._parse([text])[0]
            fits = len(values) == len(self._header)
            yield dict(zip(self._header, values, strict=True)) if fits else None

    def _parse(self, texts: list[bytes] | Iterator[bytes]) -> list[list[str]]:
        try:
            whole = b"\n".join(texts).decode("utf-8-sig")
            return list(csv.reader(io.StringIO(whole, newline="")))
        except (UnicodeDecodeError, csv.Error):
            return [[]]


class JsonRows:
    """A file with one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts, self._ends = _index_lines(path, quoted=False)
        self.rows = len(self._starts)

    def read(self, rows: Array) -> Iterator[Record]:
        """See `RowFile.read`."""
        for text in _slice(self._path, self._starts[rows], self._ends[rows]):
            try:
                value = json.loads(text)
            except ValueError:
                value = None
            yield value if isinstance(value, dict) else None


class ParquetRows:
    """A Parquet file, read by row groups, the last few of which are kept."""

    def __init__(self, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: expected a Parquet file, found a damaged or foreign one") from error
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._borders = np.cumsum([0, *sizes])
        self.rows = int(self._borders[-1])
        self._group = lru_cache(maxsize=_ROW_GROUPS_KEPT)(self._read_group)

    def read(self, rows: Array) -> Iterator[Record]:
        """See `RowFile.read`."""
        groups = np.searchsorted(self._borders, rows, side="right") - 1
        for group, row in zip(groups.tolist(), rows.tolist(), strict=True):
            columns = self._group(group)
            place = row - int(self._borders[group])
            yield {name: values[place].as_py() for name, values in columns.items()}

    def _read_group(self, group: int) -> dict[str, Any]:
        table = self._file.read_row_group(group).combine_chunks()
        return {name: table.column(name) for name in table.column_names}


def _slice(path: Path, starts: Array, ends: Array) -> Iterator[bytes]:
    with open(path, "rb") as file:
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            file.seek(start)
            yield file.read(end - start)


def _index_lines(path: Path, quoted: bool) -> tuple[Array, Array]:
    """First byte and end of every line that is not blank; quoted line ends do not count."""
    ends, position, inside = [], 0, 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            data = np.frombuffer(block, np.uint8)
            breaks = data == ord("\n")
            if quoted:
                parity = (np.cumsum(data == ord('"')) + inside) % 2
                breaks &= parity == 0
                inside = int(parity[-1])
            ends.append(np.flatnonzero(breaks) + position)
            position += len(data)
    stops = np.concatenate([*ends, [position]]).astype(np.int64)
    starts = np.concatenate([[0], stops[:-1] + 1]).astype(np.int64)
    filled = stops - starts > 1
    short = np.flatnonzero(stops - starts == 1)  # one byte: a digit, or the \r of a blank line
    filled[short] = [text.strip() != b"" for text in _slice(path, starts[short], stops[short])]
    return starts[filled], stops[filled]
