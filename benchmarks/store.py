"""What a commit of the store costs beside the floor and beside plain zarr.

    python -m benchmarks.store [--quick] [--json FILE]

Two tables of growing entries are appended to in many commits: narrow rows (D = 64, 6400 rows a
commit) and three layers of wide ones (D = 3072, 1600 rows a commit). Each commit is timed three ways in the
same run, one right after the other: `floor` appends the same bytes to one raw file and fsyncs it,
`peer` appends to plain zarr arrays of the same chunks and codecs (no generations, no fsync: neither
atomic nor durable), `ours` is `Store.commit`.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from lamina.memory.layout import Layout
from lamina.memory.store import Store, TableChange
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec

from ._harness import command_line, measure_cases, side_by_side

Rows = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """A number of equal tables that grow by `rows` entries of width `width` a commit."""

    name: str
    tables: int
    width: int  # D = F
    rows: int  # a commit
    commits: int


CASES = {
    "full": (
        Case("narrow", tables=1, width=64, rows=6400, commits=156),
        Case("wide", tables=3, width=3072, rows=1600, commits=16),
    ),
    "quick": (
        Case("narrow", tables=1, width=64, rows=6400, commits=40),
        Case("wide", tables=3, width=3072, rows=1600, commits=6),
    ),
    "tiny": (
        Case("narrow", tables=1, width=8, rows=64, commits=3),
        Case("wide", tables=3, width=96, rows=16, commits=2),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases, prints a line for each way, and optionally writes JSON."""
    return measure_cases(command_line("store", __doc__), CASES, measure, _print, arguments)


def measure(case: Case) -> dict[str, Any]:
    """Times every commit of a case in the three ways, then opening and reading the store.

    Returns:
      The case's name and size, `commit_seconds` (median, by way), `megabytes_per_second` (by way, over
      the whole run), and `open_seconds`, `read_seconds` of our store.
    """
    folder = Path(tempfile.mkdtemp(prefix="lamina-store-", dir=os.environ.get("TMPDIR")))
    rows = entries(case.width, case.rows)
    ways = {
        "floor": raw_file(folder / "raw", case, rows),
        "peer": plain_zarr(folder / "zarr", case, rows),
        "ours": generations(folder / "store", case, rows),
    }
    try:
        seconds = side_by_side(ways, case.commits)
        megabytes = case.tables * sum(column.nbytes for column in rows.values()) / 1e6
        return {
            "case": case.name,
            "entries": case.tables * case.rows * case.commits,
            "megabytes_per_commit": megabytes,
            "commit_seconds": {w: float(np.median(s)) for w, s in seconds.items()},
            "megabytes_per_second": {w: megabytes * case.commits / sum(s) for w, s in seconds.items()},
            **read_back(folder / "store", case),
        }
    finally:
        ways.clear()
        shutil.rmtree(folder)


def entries(width: int, rows: int) -> Rows:
    """A commit's worth of a database's columns."""
    draw = np.random.default_rng(0)
    columns: Rows = {name: draw.standard_normal((rows, width), np.float32) for name in ("keys", "values")}
    for name in ("weights", "key_norms", "value_norms"):
        columns[name] = draw.standard_normal(rows, np.float32)
    for name in ("created", "origin", "changed"):
        columns[name] = np.arange(rows, dtype=np.int32)
    return columns


def raw_file(path: Path, case: Case, rows: Rows) -> Callable[[int], None]:
    """The floor: the same bytes appended to one file, and an fsync."""

    def commit(step: int) -> None:
        with open(path, "ab", buffering=0) as file:
            for _ in range(case.tables):
                for column in rows.values():
                    file.write(column.data)
            os.fsync(file.fileno())

    return commit


def plain_zarr(path: Path, case: Case, rows: Rows) -> Callable[[int], None]:
    """The peer: `Array.append`, which can tear and is not durable."""
    layout = Layout.of("peer", rows)
    group = zarr.open_group(path, mode="w")
    arrays = [
        (
            group.create_array(
                f"{table}/{name}",
                shape=(0, *column.shape[1:]),
                chunks=(layout.rows_per_chunk, *column.shape[1:]),
                dtype=column.dtype,
                filters=None,
                compressors=(Crc32cCodec(),),
            ),
            column,
        )
        for table in range(case.tables)
        for name, column in rows.items()
    ]

    def commit(step: int) -> None:
        for array, column in arrays:
            array.append(column)

    return commit


def generations(path: Path, case: Case, rows: Rows) -> Callable[[int], None]:
    """Ours: one atomic, durable commit of all tables."""
    store = Store.create(path)

    def commit(step: int) -> None:
        changes = {f"layer{table}": TableChange(rows) for table in range(case.tables)}
        store.commit(step=step, tables=changes, blobs={}, meta={})

    return commit


def read_back(path: Path, case: Case) -> dict[str, float]:
    """Opens our store and reads every column into arrays made beforehand."""
    start = time.perf_counter()
    with Store.open(path) as store, store.generation() as generation:
        opened = time.perf_counter()
        out = {
            (name, column): np.empty((table.rows, *shape), dtype)
            for name, table in generation.tables.items()
            for column, (dtype, shape) in table.columns.items()
        }
        for array in out.values():
            array.fill(1)  # touch the pages: their first use is not reading
        ready = time.perf_counter()
        for (name, column), array in out.items():
            generation.tables[name].read(column, out=array)
    read = time.perf_counter() - ready
    megabytes = sum(array.nbytes for array in out.values()) / 1e6
    return {
        "open_seconds": opened - start,
        "read_seconds": read,
        "read_megabytes_per_second": megabytes / read,
    }


def _print(result: dict[str, Any]) -> None:
    print(
        f"{result['case']}: {result['entries']:,} entries, {result['megabytes_per_commit']:.1f} MB a commit"
    )
    for way, seconds in result["commit_seconds"].items():
        rate = result["megabytes_per_second"][way]
        print(f"  {way:5}  {seconds * 1e3:8.1f} ms a commit (median)  {rate:7.0f} MB/s")
    print(
        f"  ours opens in {result['open_seconds'] * 1e3:.0f} ms and reads all in "
        f"{result['read_seconds']:.2f} s ({result['read_megabytes_per_second']:.0f} MB/s)"
    )


if __name__ == "__main__":
    sys.exit(main())
