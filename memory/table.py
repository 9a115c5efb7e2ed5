"""A table of a generation, read-only: columns of equal row count, rows in append order."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, FormatError
from .chunks import read_chunk
from .inventory import TableCounts
from .layout import ALIVE, Layout
from .lease import Lease


class Table:
    """One table of a generation: columns of equal row count, rows in append order.

    Attributes:
      rows: rows, dead ones included.
      alive_rows: rows that are alive.
      columns: name → (dtype, shape of a row's value).
      layout: columns and chunk geometry.
      nbytes: bytes of all rows of all columns, the liveness map included.
    """

    def __init__(self, folder: Path, layout: Layout, counts: TableCounts, lease: Lease) -> None:
        self._folder, self.layout, self._lease = folder, layout, lease
        self.rows = counts.rows
        self.alive_rows = counts.alive
        self.columns: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            name: (c.dtype, c.row_shape) for name, c in layout.columns.items() if name != ALIVE
        }
        self.nbytes = counts.rows * layout.row_bytes

    def read(
        self,
        column: str,
        start: int = 0,
        stop: int | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Reads consecutive rows of a column, checking every chunk it touches.

        Args:
          column: the column's name.
          start: first row.
          stop: row after the last; None: all that follow.
          out: array `[stop - start, ...]` of the column's dtype, C-contiguous, to be filled without
            a second copy; None: a new one.

        Returns:
          `out`.

        Raises:
          DataError: no such column or rows, or an unfit `out`.
          FormatError: a chunk is missing or damaged.
        """
        stop = self.rows if stop is None else stop
        if column not in self.layout.columns or not 0 <= start <= stop <= self.rows:
            raise DataError(
                f"{self._folder}: expected a column of {sorted(self.columns)} and rows within "
                f"0:{self.rows}, found {column!r} and {start}:{stop}"
            )
        spec = self.layout.columns[column]
        shape = (stop - start, *spec.row_shape)
        out = np.empty(shape, spec.dtype) if out is None else out
        if out.shape != shape or out.dtype != spec.dtype or not out.flags.c_contiguous:
            raise DataError(
                f"{self._folder / column}: expected a C-contiguous array {spec.dtype} "
                f"{list(shape)} to read into, found {out.dtype} {list(out.shape)}"
            )
        self._read_chunks(column, start, stop, out)
        return out

    def alive(self) -> NDArray[np.bool_]:
        """The liveness map: bool `[rows]`."""
        return self.read(ALIVE).view(np.bool_)

    def chunk_file(self, column: str, index: int) -> Path:
        """The file of one of a column's chunks."""
        return self._folder / column / self.layout.chunk_name(column, index)

    def damaged_chunks(self) -> Iterator[tuple[Path, str]]:
        """Reads every chunk, yielding (file, what is wrong) for those that are not whole."""
        per_chunk = self.layout.rows_per_chunk
        for column in self.layout.columns:
            for start in range(0, self.rows, per_chunk):
                try:
                    self.read(column, start, min(start + per_chunk, self.rows))
                except FormatError:
                    yield self.chunk_file(column, start // per_chunk), "fails its checksum"

    def _read_chunks(self, column: str, start: int, stop: int, out: NDArray[Any]) -> None:
        per_chunk = self.layout.rows_per_chunk
        row_bytes = self.layout.columns[column].row_bytes
        nbytes = self.layout.chunk_bytes(column)
        row = start
        while row < stop:
            index, first = divmod(row, per_chunk)
            end = min(stop, (index + 1) * per_chunk)
            path = self.chunk_file(column, index)
            read_chunk(path, out[row - start : end - start], first * row_bytes, nbytes)
            row = end
