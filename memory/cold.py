"""The cold part of a memory: its oldest entries, in chunk files on disk, read as they are needed.

A chunk is a run of R rows that never changes: per column one file in zarr's own format, which a commit links
into its generation as it is. Which of a chunk's rows still count is kept in memory (one byte a row), so that
pruning and evicting write nothing.
"""

import mmap
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from .chunks import CHECKSUM_BYTES
from .layout import Layout
from .lease import Lease
from .table import Table

COLUMNS = ("keys", "values", "weights", "created", "origin", "key_norms", "value_norms")
_PAGE = 4096


class ColdChunk:
    """R rows on disk; the files stay at least as long as this object.

    Args:
      files: column → its chunk file.
      owned: whether the files belong to this object alone and go with it.
      keeper: whatever else keeps them on disk (the lease on their generation).
    """

    def __init__(self, files: Mapping[str, Path], *, owned: bool = False, keeper: object = None) -> None:
        self.files = dict(files)
        self._keeper = keeper
        self._verified: set[str] = set()
        if owned:
            weakref.finalize(self, _remove, tuple(self.files.values()))

    def read(self, layout: Layout, columns: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Maps columns, [R, …] each, into memory and makes their pages present.

        The checksum is compared when a column is first read in a process.

        Raises:
          FormatError: a file is missing, of another size, or fails its checksum.
        """
        # All files are asked for before the first is waited for.
        mapped = {name: _mapped(self.files[name], layout.chunk_bytes(name)) for name in columns}
        found = {}
        for name, content in mapped.items():
            content[::_PAGE].max()  # touches every page, here and not in the thread that computes
            spec, rows = layout.columns[name], content[:-CHECKSUM_BYTES]
            if name not in self._verified:
                if google_crc32c.value(rows) != int.from_bytes(content[len(rows) :].tobytes(), "little"):
                    raise FormatError(
                        f"{self.files[name]} is damaged: its checksum does not match; restore it from a copy"
                    )
                self._verified.add(name)
            found[name] = rows.view(spec.dtype).reshape(layout.rows_per_chunk, *spec.row_shape)
        return found


@dataclass(frozen=True)
class ColdPart:
    """All chunks of a memory, oldest entries first. Changes make a new one."""

    layout: Layout
    chunks: tuple[ColdChunk, ...]
    live: tuple[NDArray[np.bool_], ...]  # [R] each: the rows that still count

    @cached_property
    def entries(self) -> int:
        """Live rows."""
        return sum(int(np.count_nonzero(live)) for live in self.live)

    @property
    def rows(self) -> int:
        """Rows on disk, live or dead."""
        return len(self.chunks) * self.layout.rows_per_chunk

    @property
    def nbytes(self) -> int:
        """Bytes of all rows on disk."""
        return self.rows * self.layout.row_bytes

    def added(self, chunk: ColdChunk, live: NDArray[np.bool_]) -> "ColdPart":
        """With one more chunk, of younger entries than all before."""
        return ColdPart(self.layout, (*self.chunks, chunk), (*self.live, live))

    def with_live(self, live: Sequence[NDArray[np.bool_]]) -> "ColdPart":
        """With other rows that count; chunks without any are let go."""
        kept = [(chunk, rows) for chunk, rows in zip(self.chunks, live, strict=True) if rows.any()]
        return ColdPart(self.layout, tuple(c for c, _ in kept), tuple(rows for _, rows in kept))


def cold_layout(
    rows_per_chunk: int, key_features: int, value_features: int, *, weighted: bool, dtype: Any
) -> Layout:
    """The columns of a cold part's chunks.

    Args:
      rows_per_chunk: R.
      key_features: D.
      value_features: F.
      weighted: whether entries carry weights.
      dtype: of keys, values, weights and norms.
    """
    floats, integers = np.empty(0, dtype), np.empty(0, np.int32)
    columns = {
        "keys": np.empty((0, key_features), dtype),
        "values": np.empty((0, value_features), dtype),
        **({"weights": floats} if weighted else {}),
        "created": integers,
        "origin": integers,
        "key_norms": floats,
        "value_norms": floats,
    }
    return Layout(Layout.of("cold", columns).columns, rows_per_chunk)


def committed_cold(table: Table, generation: Path) -> ColdPart:
    """The cold part that a commit holds; its files stay where they are, and are kept there.

    Args:
      table: the commit's table of it.
      generation: the folder of the commit.

    Raises:
      FormatError: the liveness map is damaged.
    """
    layout, lease, alive = table.layout, Lease(generation), table.alive()
    per_chunk = layout.rows_per_chunk
    chunks, live = [], []
    for index in range(layout.chunk_count(table.rows)):
        files = {column: table.chunk_file(column, index) for column in table.columns}
        chunks.append(ColdChunk(files, keeper=lease))
        live.append(alive[index * per_chunk : (index + 1) * per_chunk])
    return ColdPart(layout, tuple(chunks), tuple(live))


def _mapped(path: Path, rows_bytes: int) -> NDArray[np.uint8]:
    nbytes = rows_bytes + CHECKSUM_BYTES
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != nbytes:
                raise FormatError(
                    f"{path} has {found} bytes, expected {nbytes}; restore the store from a copy"
                )
            mapping = mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ)
    except FileNotFoundError:
        raise FormatError(f"{path} is missing; restore the store from a copy") from None
    mapping.madvise(mmap.MADV_WILLNEED)  # the whole file is asked for at once, not page by page
    return np.frombuffer(mapping, np.uint8)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
