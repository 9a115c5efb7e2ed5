"""How a table lies on disk: columns, chunk geometry, and the zarr documents that describe them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer
from zarr.codecs import BytesCodec, Crc32cCodec

from ..errors import DataError
from .chunks import CHECKSUM_BYTES

ALIVE = "alive"
"""The column every table has: uint8 [rows], 1 while the row counts."""

_WIDE_CHUNK_BYTES = 8 << 20
_NARROW_CHUNK_BYTES = 4 << 20
_MANY_ROWS = 16384
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True)
class Column:
    """One column: its element type (little-endian) and the shape of a row's value."""

    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's value."""
        return self.dtype.itemsize * int(np.prod(self.row_shape, dtype=np.int64))


@dataclass(frozen=True)
class Layout:
    """The columns of a table, `alive` included, and the row count all their chunks share."""

    columns: Mapping[str, Column]
    rows_per_chunk: int

    @classmethod
    def of(cls, table: str, appended: Mapping[str, NDArray[Any]]) -> "Layout":
        """Fixes a table's layout from the first rows it is given.

        Args:
          table: the table's name, for messages.
          appended: column name → rows `[m, ...]`.

        Raises:
          DataError: no column, a name that is no file name, or elements that are not numbers.
        """
        if not appended or not all(map(valid_name, appended)) or ALIVE in appended:
            raise DataError(
                f"table {table}: expected columns named in letters, digits, '_', '-' and '.', "
                f"none of them '{ALIVE}'; found {sorted(appended)}"
            )
        columns = {name: _column(table, name, rows) for name, rows in appended.items()}
        columns[ALIVE] = Column(np.dtype(np.uint8), ())
        layout = cls(columns, 1)
        return cls(columns, layout.usual_rows_per_chunk)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Layout":
        """The layout that `record` described."""
        columns = {
            name: Column(np.dtype(dtype), tuple(shape)) for name, (dtype, shape) in record["columns"].items()
        }
        return cls(columns, int(record["rows_per_chunk"]))

    def record(self) -> dict[str, Any]:
        """The layout as JSON, for a generation's inventory."""
        columns = {n: [c.dtype.str, list(c.row_shape)] for n, c in self.columns.items()}
        return {"rows_per_chunk": self.rows_per_chunk, "columns": columns}

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row over all columns."""
        return sum(column.row_bytes for column in self.columns.values())

    @property
    def usual_rows_per_chunk(self) -> int:
        """The row count that makes neither too many nor too large chunks of these columns."""
        return _rows_per_chunk(max(column.row_bytes for column in self.columns.values()))

    def chunk_bytes(self, column: str) -> int:
        """Bytes of one of the column's chunks, without its checksum."""
        return self.rows_per_chunk * self.columns[column].row_bytes

    def chunk_count(self, rows: int) -> int:
        """Chunks that `rows` rows take in each column."""
        return -(-rows // self.rows_per_chunk)

    def chunk_name(self, column: str, index: int) -> str:
        """The file name of a chunk: zarr's default keys with '.', so that no folder holds one file."""
        return f"c.{index}" + ".0" * len(self.columns[column].row_shape)

    def files(self, column: str, rows: int) -> Iterator[tuple[str, int]]:
        """Names and exact sizes of the chunk files that the column must have."""
        size = self.chunk_bytes(column) + CHECKSUM_BYTES
        for index in range(self.chunk_count(rows)):
            yield self.chunk_name(column, index), size

    def zarr_array(self, column: str, rows: int) -> dict[str, Any]:
        """The column's `zarr.json` at a given row count."""
        spec = self.columns[column]
        document = _zarr_array(column, spec.dtype.str, spec.row_shape, self.rows_per_chunk)
        return {**json.loads(document), "shape": [rows, *spec.row_shape]}


def valid_name(name: str) -> bool:
    """Whether a table, column or blob of that name can be a file everywhere."""
    return _NAME.fullmatch(name) is not None


def zarr_group() -> bytes:
    """The `zarr.json` of a group."""
    store: dict[str, Buffer] = {}
    zarr.create_group(store)
    return store["zarr.json"].to_bytes()


@lru_cache(maxsize=1024)
def _zarr_array(name: str, dtype: str, row_shape: tuple[int, ...], rows_per_chunk: int) -> bytes:
    # zarr itself describes the array, once per column and process: it takes ~4 ms.
    store: dict[str, Buffer] = {}
    zarr.create_array(
        store,
        shape=(0, *row_shape),
        chunks=(rows_per_chunk, *row_shape),
        dtype=dtype,
        serializer=BytesCodec(endian="little"),
        filters=None,
        compressors=(Crc32cCodec(),),
        fill_value=0,
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=("row", *(f"{name}_{axis}" for axis in range(1, len(row_shape) + 1))),
    )
    return store["zarr.json"].to_bytes()


def _column(table: str, name: str, rows: NDArray[Any]) -> Column:
    if rows.ndim == 0 or rows.dtype.kind not in "biufc" or 0 in rows.shape[1:]:
        raise DataError(
            f"table {table}, column {name}: expected rows of numbers of a non-empty shape, "
            f"found {rows.dtype} {list(rows.shape)}"
        )
    return Column(rows.dtype.newbyteorder("<"), rows.shape[1:])


def _rows_per_chunk(widest_row_bytes: int) -> int:
    # Few rows a chunk make many files, and every commit links all files; many rows a chunk are
    # rewritten whole while the last chunk fills. So wide rows get 8 MiB, narrow ones 4.
    rows = max(1, _WIDE_CHUNK_BYTES // widest_row_bytes)
    if rows > _MANY_ROWS:
        rows = max(_MANY_ROWS, _NARROW_CHUNK_BYTES // widest_row_bytes)
    return rows
