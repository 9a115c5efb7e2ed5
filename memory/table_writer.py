"""The writer's memory of one table, so that a commit writes whole chunks and reads nothing back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .draft import Draft
from .inventory import TableCounts
from .layout import ALIVE, Layout
from .table import Table


@dataclass(frozen=True)
class TableChange:
    """What a commit does to one table.

    Attributes:
      appended: column → rows `[m, ...]`, all of one length m (0 is allowed; for a table that exists,
        so is an empty mapping). A table's columns, dtypes and row shapes are fixed by its first
        commit.
      died: int64 `[k]`, numbers of rows that are no longer alive, counted in append order from the
        table's first row, the rows appended by this change included.
      replace: the appended rows become the whole table (after compaction or training).
    """

    appended: Mapping[str, NDArray[Any]]
    died: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    replace: bool = False


@dataclass(frozen=True)
class TableState:
    """A table as the writer knows it; a change makes a new state and leaves this one as it was.

    Attributes:
      name: the table's name.
      layout: columns and chunk geometry.
      rows: row count.
      alive: the liveness map, uint8 `[rows]`.
      tail: column → the rows of the last chunk if it is partly filled, else none; without `alive`.
    """

    name: str
    layout: Layout
    rows: int
    alive: NDArray[np.uint8]
    tail: Mapping[str, NDArray[Any]]

    @classmethod
    def empty(cls, name: str, layout: Layout) -> "TableState":
        """A table without rows."""
        tail = {n: np.empty((0, *c.row_shape), c.dtype) for n, c in layout.columns.items()}
        del tail[ALIVE]
        return cls(name, layout, 0, np.zeros(0, np.uint8), tail)

    @classmethod
    def load(cls, name: str, layout: Layout, table: Table) -> "TableState":
        """The state of a committed table.

        Raises:
          FormatError: a chunk that is needed is damaged.
        """
        start = table.rows - table.rows % layout.rows_per_chunk
        tail = {column: table.read(column, start) for column in table.columns}
        return cls(name, layout, table.rows, table.read(ALIVE), tail)

    @property
    def counts(self) -> TableCounts:
        """Rows, and those alive."""
        return TableCounts(self.rows, int(np.count_nonzero(self.alive)))


@dataclass(frozen=True)
class TableUpdate:
    """A checked change of one table, ready to be written.

    Attributes:
      before: the state on disk whose chunks are shared; no rows if the table is new or replaced.
      after: the state to be reached.
      appended: column → rows `[m, ...]`, C-contiguous, of the layout's dtypes; without `alive`.
    """

    before: TableState
    after: TableState
    appended: Mapping[str, NDArray[Any]]

    @classmethod
    def plan(cls, name: str, state: TableState | None, change: TableChange) -> "TableUpdate":
        """Checks a change and works out the state after it, without touching the disk.

        Args:
          name: the table's name.
          state: the committed state; None: the table is new.
          change: what to do.

        Raises:
          DataError: columns, dtypes, shapes, lengths or row numbers that do not fit.
        """
        given = {column: np.asarray(rows) for column, rows in change.appended.items()}
        layout = Layout.of(name, given) if state is None else state.layout
        shares = state is not None and not change.replace
        before = state if state is not None and shares else TableState.empty(name, layout)
        if shares and not given:
            given = {column: rows[:0] for column, rows in before.tail.items()}
        appended = _check_rows(name, layout, given)
        count = len(next(iter(appended.values())))
        alive = np.concatenate([before.alive, np.ones(count, np.uint8)])
        alive[_check_died(name, change.died, len(alive))] = 0
        rows = before.rows + count
        tail = {c: _tail(before.tail[c], appended[c], rows % layout.rows_per_chunk) for c in appended}
        return cls(before, TableState(name, layout, rows, alive, tail), appended)

    def write(self, draft: Draft) -> None:
        """Writes the table into a generation: changed chunks anew, all others shared.

        Args:
          draft: the generation being written, with the one before as its source.

        Raises:
          OSError: the file system refused.
        """
        layout, name = self.after.layout, self.after.name
        draft.add_table(name)
        first = self.before.rows // layout.rows_per_chunk
        grown = range(first, layout.chunk_count(self.after.rows)) if self._count else range(0)
        for column in layout.columns:
            folder = draft.add_column(name, column)
            fresh = self._changed_alive() if column == ALIVE else set(grown)
            kept = set(range(layout.chunk_count(self.after.rows))) - fresh
            draft.share(folder, [layout.chunk_name(column, index) for index in sorted(kept)])
            for index in sorted(fresh):
                file = folder / layout.chunk_name(column, index)
                draft.write_chunk(file, self._chunk(column, index), layout.chunk_bytes(column))
            draft.write_zarr(folder, layout.zarr_array(column, self.after.rows))

    @property
    def _count(self) -> int:
        return self.after.rows - self.before.rows

    def _changed_alive(self) -> set[int]:
        per_chunk, old = self.after.layout.rows_per_chunk, self.before.alive
        died = np.flatnonzero(self.after.alive[: len(old)] != old)
        new = np.arange(len(old), self.after.rows)
        return set(np.unique(np.concatenate([died, new]) // per_chunk).tolist())

    def _chunk(self, column: str, index: int) -> list[NDArray[Any]]:
        per_chunk = self.after.layout.rows_per_chunk
        start, stop = index * per_chunk, min((index + 1) * per_chunk, self.after.rows)
        if column == ALIVE:
            return [self.after.alive[start:stop]]
        new = self.appended[column]
        part = new[max(0, start - self.before.rows) : stop - self.before.rows]
        return [self.before.tail[column], part] if start < self.before.rows else [part]


def _check_rows(name: str, layout: Layout, given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    columns = {column: spec for column, spec in layout.columns.items() if column != ALIVE}
    if set(given) != set(columns):
        raise DataError(f"table {name}: expected the columns {sorted(columns)}, found {sorted(given)}")
    for column, spec in columns.items():
        rows = given[column]
        if rows.dtype.newbyteorder("<") != spec.dtype or rows.shape[1:] != spec.row_shape or rows.ndim == 0:
            raise DataError(
                f"table {name}, column {column}: expected {spec.dtype} rows of shape "
                f"{list(spec.row_shape)}, found {rows.dtype} {list(rows.shape)}"
            )
    lengths = {column: len(rows) for column, rows in given.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"table {name}: expected columns of one length, found {lengths}")
    return {c: np.ascontiguousarray(given[c], dtype=s.dtype) for c, s in columns.items()}


def _check_died(name: str, died: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    died = np.asarray(died)
    fits = died.ndim == 1 and (died.size == 0 or died.dtype.kind in "iu")
    if not fits or (died.size and not 0 <= died.min() <= died.max() < rows):
        raise DataError(
            f"table {name}: expected row numbers in 0..{rows - 1} of rows that died, found "
            f"{died.dtype} {list(died.shape)} {died.ravel()[:5].tolist()}"
        )
    return died.astype(np.int64)


def _tail(tail: NDArray[Any], appended: NDArray[Any], rows: int) -> NDArray[Any]:
    # Copies: the caller may reuse its arrays, and a view would keep all appended rows alive.
    if not len(appended):
        return tail
    if rows <= len(appended):
        return appended[len(appended) - rows :].copy()
    return np.concatenate([tail, appended])
