"""What it costs that a memory grows: time per append, resident memory, compilations, and starting again.

    python -m benchmarks.growth [--quick] [--json FILE]

Three parts, each in a process of its own. `appends`: a million entries of D = F = 64 in batches of 64; an
append should take the same time whatever is stored. `memory`: a network of two growing layers of 3072 numbers
trains while its memories grow past 3 GiB. The floor is the bytes of the databases; what is above it, beside
the process without any, is what growing costs (a copied block would show as much as the block). The training
step is compiled once per growth: twice per doubling. `start`: the same run twice; the second finds every
program in the persistent compilation cache.
"""

import json
import os
import subprocess
import sys
import tempfile
from math import log2
from pathlib import Path
from typing import Any

from ._growth import SIZES
from ._harness import command_line, save

Figures = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Measures all parts, prints them, and optionally writes JSON."""
    options = command_line("growth", __doc__).parse_args(arguments)
    figures = {
        "batch": SIZES[options.size].batch,
        "appends": _of_appends(_measure("appends", options.size)),
        "memory": _of_memory(_measure("memory", options.size)),
        "start": _started_twice(options.size),
    }
    _print(figures)
    save(figures, options.json)
    return 0


def _measure(part: str, *settings: str, **environment: str) -> Figures:
    command = [sys.executable, "-m", "benchmarks._growth", part, *settings]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    if process.returncode != 0:
        sys.exit(f"measuring {part} ended with exit code {process.returncode} (−9: out of memory)")
    figures: Figures = json.loads(process.stdout.splitlines()[-1])
    return figures


def _of_appends(measured: Figures) -> Figures:
    """Adds how many times the append of the smallest memory one of the largest takes."""
    first, last = measured["by_capacity"][0], measured["by_capacity"][-1]
    slowdown = {name: last[f"{name}_seconds"] / first[f"{name}_seconds"] for name in ("least", "median")}
    return {**measured, "slowdown": slowdown}


def _of_memory(measured: Figures) -> Figures:
    """Adds the memory above the empty process per byte of database, and compilations per doubling."""
    points = [
        {**p, "ratio": (p["peak_rss_bytes"] - measured["empty_bytes"]) / p["database_bytes"]}
        for p in measured["points"]
    ]
    doublings = log2(points[-1]["capacity"] / points[0]["capacity"])
    # The first point's program is not of a growth.
    per_doubling = (measured["compilations"] - 1) / doublings
    return {**measured, "points": points, "compilations_per_doubling": per_doubling}


def _started_twice(size: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="lamina-growth-") as folder:
        runs = [
            _measure("start", size, str(Path(folder, name)), XDG_CACHE_HOME=str(Path(folder, "cache")))
            for name in ("first", "second")
        ]
    return dict(zip(("first", "second"), runs, strict=True))


def _print(figures: Figures) -> None:
    appends, memory, start = figures["appends"], figures["memory"], figures["start"]
    print(
        f"appends of {figures['batch']}: {appends['entries']:,} entries\n      slots   least ms   median ms"
    )
    for point in appends["by_capacity"]:
        print(
            f"  {point['capacity']:9,}  {point['least_seconds'] * 1e3:9.3f}"
            f"  {point['median_seconds'] * 1e3:10.3f}"
        )
    slowdown = appends["slowdown"]
    print(f"  largest / smallest: {slowdown['least']:.2f} (least), {slowdown['median']:.2f} (median)")
    print(f"  an append that grows: {max(appends['growth_seconds']) * 1e3:.0f} ms at most")
    print(f"memory (the empty process: {memory['empty_bytes'] / 2**30:.2f} GiB)")
    print("      slots   databases GiB   peak above empty GiB   ratio")
    for point in memory["points"]:
        above = point["peak_rss_bytes"] - memory["empty_bytes"]
        print(
            f"  {point['capacity']:9,}  {point['database_bytes'] / 2**30:14.2f}"
            f"  {above / 2**30:21.2f}  {point['ratio']:6.2f}"
        )
    print(f"  compilations of the training step per doubling: {memory['compilations_per_doubling']:.1f}")
    for name, run in start.items():
        print(f"{name} start: {run['misses']} programs compiled, {run['hits']} found, {run['seconds']:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
