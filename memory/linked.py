"""Tables of finished chunks: a commit links their files into its generation, and writes only who is alive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .draft import Draft
from .layout import ALIVE, Layout
from .table_writer import TableState


@dataclass(frozen=True)
class ChunksChange:
    """What a commit makes of a table that consists of whole chunks.

    Attributes:
      layout: columns and chunk geometry.
      chunks: all chunks of the table, as column → chunk file, never to change.
      alive: uint8 `[rows]`, the liveness map of all rows.
      kept: how many of the first chunks are those of the last commit in their order, and need no link.
    """

    layout: Layout
    chunks: Sequence[Mapping[str, Path]]
    alive: NDArray[np.uint8]
    kept: int = 0


@dataclass(frozen=True)
class ChunksUpdate:
    """A checked change, ready to be written.

    Attributes:
      before: the committed state; None: the table is new.
      after: the state to be reached.
      change: the change.
    """

    before: TableState | None
    after: TableState
    change: ChunksChange

    @classmethod
    def plan(cls, name: str, state: TableState | None, change: ChunksChange) -> "ChunksUpdate":
        """Checks a change, without touching the disk.

        Args:
          name: the table's name.
          state: the committed state; None: the table is new.
          change: what to do.

        Raises:
          DataError: columns, row counts or kept chunks that do not fit.
        """
        layout, alive = change.layout, np.ascontiguousarray(change.alive, np.uint8)
        columns = set(layout.columns) - {ALIVE}
        rows = len(change.chunks) * layout.rows_per_chunk
        known = 0 if state is None or state.layout != layout else layout.chunk_count(state.rows)
        wrong = [set(files) for files in change.chunks if set(files) != columns]
        if wrong or len(alive) != rows or not 0 <= change.kept <= min(known, len(change.chunks)):
            raise DataError(
                f"table {name}: expected chunks of the columns {sorted(columns)}, a liveness of {rows} rows "
                f"and at most {known} kept chunks; found columns {sorted(wrong[0] if wrong else columns)}, "
                f"{len(alive)} rows and {change.kept} kept"
            )
        empty: dict[str, NDArray[Any]] = dict(TableState.empty(name, layout).tail)
        return cls(state, TableState(name, layout, rows, alive, empty), change)

    def write(self, draft: Draft) -> None:
        """Writes the table into a generation: kept chunks are shared, the others linked or copied.

        Args:
          draft: the generation being written, with the one before as its source.

        Raises:
          OSError: the file system refused.
        """
        layout, name, kept = self.after.layout, self.after.name, self.change.kept
        draft.add_table(name)
        for column in layout.columns:
            folder = draft.add_column(name, column)
            names = [layout.chunk_name(column, index) for index in range(len(self.change.chunks))]
            if column == ALIVE:
                self._write_alive(draft, folder, names)
            else:
                draft.share(folder, names[:kept])
                for files, file in zip(self.change.chunks[kept:], names[kept:], strict=True):
                    draft.take(folder / file, files[column])
            draft.write_zarr(folder, layout.zarr_array(column, self.after.rows))

    def _write_alive(self, draft: Draft, folder: Path, names: list[str]) -> None:
        rows, same = self.after.layout.rows_per_chunk, []
        for index, file in enumerate(names):
            part = slice(index * rows, (index + 1) * rows)
            now = self.after.alive[part]
            if index < self.change.kept and self.before and np.array_equal(now, self.before.alive[part]):
                same.append(file)
            else:
                draft.write_chunk(folder / file, [now], rows)
        draft.share(folder, same)
