"""When a cap, the disk or the machine's memory will be reached if a run goes on growing as it does."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .history import History

_RECENT = 0.25  # the part of the examples seen so far whose growth is carried on
_FEWEST_POINTS = 3


@dataclass(frozen=True)
class Forecast:
    """One limit and when it is met."""

    what: str  # the limit, in words
    left: float  # until it, in `unit`
    unit: str  # "entries" or "bytes"
    examples: float | None  # more examples until it is met; None: it is not, at the present growth
    seconds: float | None  # the time these take at the present rate


def forecasts(found: Mapping[str, Any], history: History) -> list[Forecast]:
    """Foretells each limit from the growth over the latest quarter of the examples.

    Args:
      found: what `inspect_run` returned.
      history: the run's table.
    """
    if history.last is None or history.lines.rows < _FEWEST_POINTS:
        return []
    rate = history.last["examples_per_second"]
    growth = {layer: _slope(history, f"{layer}/entries") for layer in history.layers}
    return [
        Forecast(what, left, unit, *_until(left, speed, rate))
        for what, left, unit, speed in (
            *_caps(found, history, growth),
            *_disk(found, history, growth),
            *_memory(history),
        )
    ]


_Limits = Iterator[tuple[str, float, str, float]]  # what, left, unit, growth per example


def _caps(found: Mapping[str, Any], history: History, growth: Mapping[str, float]) -> _Limits:
    cap = (found["config"].get("learner") or {}).get("memory", {}).get("capacity")
    if not isinstance(cap, int) or history.last is None:
        return
    for layer, speed in growth.items():
        held = history.last["layers"].get(layer, {}).get("entries")
        if held is not None:
            yield f"cap of {layer}, {cap:,} entries", float(max(cap - held, 0)), "entries", speed


def _disk(found: Mapping[str, Any], history: History, growth: Mapping[str, float]) -> _Limits:
    path = Path(found["path"])
    examples = history.last["examples"] if history.last else 0
    if not path.is_dir() or not examples:
        return
    entry_bytes = {
        name: layer["disk_bytes"] / layer["entries"]
        for name, layer in found["layers"].items()
        if layer["entries"]
    }
    files = (path / name for name in ("metrics.jsonl", "predictions.bin"))
    per_example = sum(file.stat().st_size for file in files if file.is_file()) / examples
    speed = per_example + sum(growth.get(name, 0.0) * size for name, size in entry_bytes.items())
    yield "free disk", float(shutil.disk_usage(path).free), "bytes", speed


def _memory(history: History) -> _Limits:
    available = _available_bytes()
    if available is not None:
        speed = sum(_slope(history, f"{layer}/bytes") for layer in history.layers)
        yield "free memory of this machine", float(available), "bytes", speed


def _slope(history: History, column: str) -> float:
    """Growth per example by least squares."""
    if column not in history.lines.names:
        return 0.0
    x, y = history.lines.line(column)
    recent = ~np.isnan(y) & (x >= x[-1] - _RECENT * (x[-1] - x[0]))
    if recent.sum() < _FEWEST_POINTS:
        recent = ~np.isnan(y)
    if recent.sum() < 2 or np.ptp(x[recent]) == 0 or np.ptp(y[recent]) == 0:
        return 0.0  # what stands still has no slope, where least squares finds one of rounding
    return float(np.polyfit(x[recent], y[recent], 1)[0])


def _until(left: float, speed: float, rate: float | None) -> tuple[float | None, float | None]:
    if left == 0:
        return 0.0, 0.0
    if speed <= 0:
        return None, None
    examples = left / speed
    return examples, examples / rate if rate else None


def _available_bytes() -> int | None:
    """Memory that this machine can still give; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
