"""The report's charts as data: series taken from a run's table, thinned to what a screen can show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .rows import STEP_PARTS, Row

_BUCKETS = 1000  # a thinned line has at most two points a bucket: its smallest and its largest
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_CAPACITY_LAYERS = 6  # with more layers, the dotted lines of their capacities hide the entries

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One line, or set of points, of a chart."""

    name: str
    x: list[float]  # examples seen
    y: list[float | None]  # None: a gap
    style: Literal["line", "faint", "dotted", "stairs", "stacked", "points"]
    color: int  # place in the palette


@dataclass(frozen=True)
class Chart:
    """One chart of the report; x is examples seen."""

    key: str  # names its place in the page
    title: str
    note: str  # one line that says what the lines mean
    y_title: str  # with the unit
    series: list[Series]
    y_format: str  # d3 format of values
    y_range: tuple[float, float] | None = None
    marks: list[tuple[float, str]] = field(default_factory=list)  # where a phase begins

    def document(self) -> dict[str, Any]:
        """Returns the chart as JSON can hold it."""
        return asdict(self)


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Draws up the report's charts.

    Args:
      rows: a run's table.

    Returns:
      The charts that have something to show.
    """
    steps = [row for row in rows if row["kind"] == "step"]
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    makers: tuple[Callable[[], Chart], ...] = (
        lambda: _accuracy(steps, evaluations),
        lambda: _loss(steps, evaluations),
        lambda: _entries(steps),
        lambda: _bytes(steps),
        lambda: _throughput(steps),
        lambda: _split(steps),
    )
    return [chart for chart in (make() for make in makers) if chart.series]


def thin(x: Floats, y: Floats, buckets: int = _BUCKETS) -> tuple[Floats, Floats]:
    """Thins a line so that it looks the same: first, last and the extremes of each bucket stay.

    Args:
      x: `[n]` ascending.
      y: `[n]`; NaN is a gap.
      buckets: cut `x` into this many stretches of equally many points.

    Returns:
      At most `2 * buckets + 2` of the points, in order.
    """
    if len(x) <= 2 * buckets:
        return x, y
    borders = np.linspace(0, len(x), buckets + 1).astype(np.int64)
    keep = {0, len(x) - 1}
    for start, stop in pairwise(borders.tolist()):
        stretch = y[start:stop]
        if np.isnan(stretch).all():
            keep.add(start)
        else:
            keep |= {start + int(np.nanargmin(stretch)), start + int(np.nanargmax(stretch))}
    index = np.array(sorted(keep))
    return x[index], y[index]


def _accuracy(steps: Sequence[Row], evaluations: Sequence[Row]) -> Chart:
    series = _line(steps, "since the last point", "window_accuracy", "faint", 0)
    series += _line(steps, "prequential", "prequential_accuracy", "line", 0)
    series += _points(evaluations, "accuracy", first_color=1)
    return Chart(
        "accuracy",
        "Accuracy over the stream",
        "Prequential: every example is predicted before it is learnt from. Points: held-out data.",
        "accuracy",
        series,
        ".4f",
        (0.0, 1.0),
        _phases(steps),
    )


def _loss(steps: Sequence[Row], evaluations: Sequence[Row]) -> Chart:
    series = _line(steps, "prequential", "loss", "line", 0)
    series += _points(evaluations, "loss", first_color=1)
    note = "Mean loss before learning, since the last point. Points: held-out data."
    return Chart("loss", "Loss", note, "mean loss", series, ".4g", None, _phases(steps))


def _entries(steps: Sequence[Row]) -> Chart:
    layers = _layer_names(steps)
    series = []
    for color, layer in enumerate(layers):
        x, entries = _layer_values(steps, layer, "entries")
        series += _series(layer, x, entries, "line", color)
        if len(layers) <= _CAPACITY_LAYERS:
            x, capacity = _layer_values(steps, layer, "capacity")
            series += _series(f"{layer}, allocated", x, capacity, "dotted", color)
    note = "Entries each layer holds, and the rows allocated for them (dotted)."
    if len(layers) > _CAPACITY_LAYERS:
        note = "Entries each layer holds."
    return Chart("entries", "Entries per layer", note, "entries", series, ",d", None, _phases(steps))


def _bytes(steps: Sequence[Row]) -> Chart:
    layers = _layer_names(steps)
    values = {layer: _layer_values(steps, layer, "bytes") for layer in layers}
    top = max((np.nanmax(y) for _, y in values.values() if len(y)), default=0.0)
    power = min(int(np.log2(top) // 10), len(_BYTE_UNITS) - 1) if top >= 1 else 0
    series = []
    for color, (layer, (x, allocated)) in enumerate(values.items()):
        _, entries = _layer_values(steps, layer, "entries")
        _, capacity = _layer_values(steps, layer, "capacity")
        scaled = allocated / 1024.0**power
        series += _series(layer, x, scaled, "stairs", color)
        if len(layers) <= _CAPACITY_LAYERS:
            used = scaled * entries / np.maximum(capacity, 1)
            series += _series(f"{layer}, in use", x, used, "dotted", color)
    note = "Bytes allocated for each layer's rows"
    note += ", and the part in use (dotted)." if len(layers) <= _CAPACITY_LAYERS else "."
    unit = _BYTE_UNITS[power]
    return Chart("bytes", "Memory per layer", note, unit, series, ",.4~g", None, _phases(steps))


def _throughput(steps: Sequence[Row]) -> Chart:
    series = _line(steps, "examples per second", "examples_per_second", "line", 0)
    note = "Examples per second of the loop, evaluation and commits included."
    return Chart("throughput", "Throughput", note, "examples/s", series, ",.4~g", None, _phases(steps))


def _split(steps: Sequence[Row]) -> Chart:
    note = "Where the time of a step goes, in the order of a step."
    chart = Chart("split", "Step time", note, "ms per step", [], ",.3~g", None, _phases(steps))
    if not steps:
        return chart
    ends = _column(steps, "step")
    spans = np.diff(ends, prepend=0.0)
    parts = {part: _column(steps, f"{part}_seconds") for part in STEP_PARTS}
    parts["other"] = np.maximum(_column(steps, "wall_seconds") - sum(parts.values()), 0.0)
    x = _column(steps, "examples")
    # Stacked areas need the same x: means over buckets, not each line's own extremes.
    borders = np.unique(np.linspace(0, len(x), min(len(x), _BUCKETS) + 1).astype(np.int64))[:-1]
    last = np.append(borders[1:], len(x)) - 1
    counts = np.maximum(np.add.reduceat(spans, borders), 1.0)
    for color, (part, seconds) in enumerate(parts.items()):
        if np.nansum(seconds) > 0:
            mean = 1e3 * np.add.reduceat(np.nan_to_num(seconds), borders) / counts
            chart.series.append(Series(part, x[last].tolist(), mean.tolist(), "stacked", color))
    return chart


def _line(steps: Sequence[Row], name: str, column: str, style: Any, color: int) -> list[Series]:
    return _series(name, _column(steps, "examples"), _column(steps, column), style, color)


def _points(evaluations: Sequence[Row], column: str, first_color: int) -> list[Series]:
    tasks = list(dict.fromkeys(row["task"] for row in evaluations))
    series = []
    for color, task in enumerate(tasks, start=first_color):
        rows = [row for row in evaluations if row["task"] == task]
        x, y = _column(rows, "examples"), _column(rows, column)
        series += _series(f"held out: {task}", x, y, "points", color)
    return series


def _series(name: str, x: Floats, y: Floats, style: Any, color: int) -> list[Series]:
    """Returns the series thinned, or nothing if it has no value."""
    if np.isnan(y).all():
        return []
    x, y = thin(x, y)
    values = [None if np.isnan(value) else value for value in y.tolist()]
    return [Series(name, x.tolist(), values, style, color)]


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Floats:
    values = (row[name] for row in rows)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _layer_names(steps: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in steps for name in row["layers"]))


def _layer_values(steps: Sequence[Row], layer: str, name: str) -> tuple[Floats, Floats]:
    rows = [row for row in steps if layer in row["layers"]]
    return _column(rows, "examples"), _column([row["layers"][layer] for row in rows], name)


def _phases(steps: Sequence[Row]) -> list[tuple[float, str]]:
    """Returns where each phase begins, if there is more than one."""
    begins = [(0.0, steps[0]["phase"])] if steps else []
    for before, row in pairwise(steps):
        if row["phase"] != before["phase"]:
            begins.append((float(before["examples"]), row["phase"]))
    return begins if len(begins) > 1 else []
