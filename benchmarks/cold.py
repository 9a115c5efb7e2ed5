"""How fast a memory that lies on disk is read through retrieval, beside what the disk can do.

    python -m benchmarks.cold [--quick] [--json FILE]

Chunks of narrow (D = F = 64) and wide entries (D = F = 3072) are written as a memory with a byte budget
writes them. Then each round reads all of them in several ways, one right after the other, and nothing is left
in the operating system's cache from one to the next: `floor` reads a raw file of as many bytes from its begin
to its end, past the cache; `read` reads it as `cat` does, through the cache, which costs pages and smaller
requests to the disk; `stream` maps the chunks one after the other and computes nothing; `forward`
retrieves with an RBF kernel; `both` retrieves and pulls a gradient back, which reads everything twice. Before
the first round, `first` is a forward pass that checks every chunk's checksum, as happens once a process.
"""

import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lamina.memory.cold import ColdPart, cold_layout
from lamina.memory.cold_stream import ANSWERING, stream
from lamina.memory.database import empty_database
from lamina.memory.kernels import RBF
from lamina.memory.layout import Layout
from lamina.memory.spill import SpillFolder
from lamina.memory.tiers import Tiers, retrieve_tiers

from ._harness import command_line, measure_cases, side_by_side

_READ_BYTES = 8 << 20


@dataclass(frozen=True)
class Case:
    """A memory on disk, and the queries to ask it."""

    name: str
    width: int  # D = F
    batch: int  # B
    chunks: int
    rows: int | None  # of a chunk; None: the usual number
    rounds: int


CASES = {
    "full": (
        Case("narrow", width=64, batch=16, chunks=256, rows=None, rounds=5),
        Case("wide", width=3072, batch=16, chunks=128, rows=None, rounds=5),
    ),
    "quick": (
        Case("narrow", width=64, batch=16, chunks=40, rows=None, rounds=3),
        Case("wide", width=3072, batch=16, chunks=20, rows=None, rounds=3),
    ),
    "tiny": (
        Case("narrow", width=8, batch=4, chunks=5, rows=64, rounds=2),
        Case("wide", width=96, batch=2, chunks=3, rows=16, rounds=2),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases, prints a line for each way, and optionally writes JSON."""
    return measure_cases(command_line("cold", __doc__), CASES, measure, _print, arguments)


def measure(case: Case) -> dict[str, Any]:
    """Writes a case's chunks and reads them in every way.

    Returns:
      The case's name, `entries`, `bytes` that one pass reads, whether the floor could go `past_cache`,
      `seconds` (median, by way), and, by way, bytes read per second over those of the floor,
      `share_of_disk`, and of plain reading, `share_of_read`.
    """
    folder = Path(tempfile.mkdtemp(prefix="lamina-cold-bench-", dir=os.environ.get("TMPDIR")))
    try:
        cold = written(case, SpillFolder(folder / "spill"))
        files = [
            chunk.files[column] for chunk in cold.chunks for column in ANSWERING if column in chunk.files
        ]
        size = sum(file.stat().st_size for file in files)
        raw = raw_file(folder / "raw", files)
        reading = ways(case, cold)
        directly = os.O_DIRECT if can_go_past_cache(raw) else 0
        uncached = {
            "floor": from_disk([raw], lambda: read_all(raw, directly)),
            "read": from_disk([raw], lambda: read_all(raw)),
        }
        uncached |= {name: from_disk(files, way) for name, way in reading.items()}
        warm_up(case)
        first = side_by_side({"first": uncached["forward"]}, 1)
        seconds = first | side_by_side(uncached, case.rounds)
    finally:
        shutil.rmtree(folder)
    median = {way: float(np.median(times)) for way, times in seconds.items()}
    rates = {way: passes(way) / taken for way, taken in median.items()}
    return {
        "case": case.name,
        "entries": cold.rows,
        "bytes": size,
        "past_cache": directly != 0,
        "seconds": median,
        "share_of_disk": {way: rate / rates["floor"] for way, rate in rates.items()},
        "share_of_read": {way: rate / rates["read"] for way, rate in rates.items()},
    }


def written(case: Case, folder: SpillFolder) -> ColdPart:
    """A memory of random entries, all of it on disk and durable."""
    layout = cold_layout(1, case.width, case.width, weighted=False, dtype=np.float32)
    layout = Layout(layout.columns, case.rows or layout.usual_rows_per_chunk)
    draw, rows = np.random.default_rng(0), layout.rows_per_chunk
    cold = ColdPart(layout, (), ())
    keys, values = (draw.standard_normal((rows, case.width), np.float32) for _ in range(2))
    columns = {
        "keys": keys,
        "values": values,
        "created": np.ones(rows, np.int32),
        "origin": np.arange(rows, dtype=np.int32),
        "key_norms": np.sum(keys * keys, axis=1),
        "value_norms": np.linalg.norm(values, axis=1),
    }
    for _ in range(case.chunks):
        chunk = folder.write("layer", layout, columns)
        for file in chunk.files.values():
            sync(file)
        cold = cold.added(chunk, np.ones(rows, bool))
    return cold


def ways(case: Case, cold: ColdPart) -> dict[str, Callable[[], object]]:
    """What reads the chunks, by name."""
    hot = empty_database(1, case.width, case.width, weighted=False)
    tiers, kernel = Tiers(hot, cold, None), RBF(5.0)
    queries = jax.random.normal(jax.random.key(1), (case.batch, case.width))

    def only_read() -> None:
        for _ in stream(cold, ANSWERING):
            pass

    def forward() -> None:
        jax.block_until_ready(retrieve_tiers(kernel, tiers, queries)[0])

    def both() -> None:
        answers, pull = jax.vjp(lambda q: retrieve_tiers(kernel, tiers, q)[0], queries)
        jax.block_until_ready(pull(jnp.ones_like(answers)))

    return {"stream": only_read, "forward": forward, "both": both}


def warm_up(case: Case) -> None:
    """Compiles what the ways call, on a memory of one chunk."""
    for way in ways(case, written(replace(case, chunks=1), SpillFolder())).values():
        way()


def passes(way: str) -> int:
    """How often a way reads everything."""
    return 2 if way == "both" else 1


def raw_file(path: Path, files: Iterable[Path]) -> Path:
    """One file of as many bytes."""
    with open(path, "wb") as out:
        for file in files:
            out.write(file.read_bytes())
    sync(path)
    return path


def read_all(path: Path, flags: int = 0) -> None:
    """Reads a file from its begin to its end into one buffer; with O_DIRECT past the system's cache."""
    buffer = mmap.mmap(-1, _READ_BYTES)  # aligned to pages, as direct reading asks
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        position, size = 0, path.stat().st_size
        while position < size:
            position += os.preadv(descriptor, [buffer], position)
    finally:
        os.close(descriptor)


def can_go_past_cache(path: Path) -> bool:
    """Whether the file system reads without the system's cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def from_disk(files: Iterable[Path], way: Callable[[], object]) -> Callable[[int], object]:
    """The way, after its files have left the operating system's cache. That takes no time to speak of."""

    def run(number: int) -> None:
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        way()

    return run


def sync(path: Path) -> None:
    """Writes a file's pages to disk: only clean ones leave the cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _print(result: dict[str, Any]) -> None:
    print(f"{result['case']}: {result['entries']:,} entries on disk, {result['bytes'] / 1e6:,.0f} MB a pass")
    if not result["past_cache"]:
        print("  this file system reads through its cache only, and so does the floor: set TMPDIR to another")
    for way, seconds in result["seconds"].items():
        rate = passes(way) * result["bytes"] / seconds / 1e6
        of_disk, of_read = result["share_of_disk"][way], result["share_of_read"][way]
        print(
            f"  {way:8} {seconds:8.3f} s (median)  {rate:7,.0f} MB/s"
            f"  {of_disk:5.2f} of the disk's speed, {of_read:5.2f} of plain reading"
        )


if __name__ == "__main__":
    sys.exit(main())
