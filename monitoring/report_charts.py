"""The report's charts as data: series taken from a run's table, thinned to what a screen can show."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .rows import Row

_BUCKETS = 1000  # a thinned line has at most two points a bucket: its smallest and its largest
_AREA_BUCKETS = 120  # means over a stretch: rare long steps would be spikes nobody can compare
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SPLIT_CUT = 4.0  # times the median, where the axis of the step time ends
_STACKED_PARTS = ("compute", "append", "maintain", "wait", "evaluate", "commit")  # from below
_CAPACITY_LAYERS = 6  # with more layers, the dotted lines of their capacities hide the entries

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One line, or set of points, of a chart."""

    name: str
    x: list[float]  # examples seen
    y: list[float | None]  # None: a gap
    style: Literal["line", "faint", "dotted", "stairs", "ceiling", "stacked", "points"]
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


@dataclass(frozen=True)
class _Layer:
    x: Floats  # examples seen
    entries: Floats
    capacity: Floats  # rows
    bytes: Floats


_Marks = list[tuple[float, str]]


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Draws up the report's charts.

    Args:
      rows: a run's table.

    Returns:
      The charts that have something to show.
    """
    steps = [row for row in rows if row["kind"] == "step"]
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    layers, marks = _layers(steps), _phases(steps)
    drawn = (
        _accuracy(steps, evaluations, marks),
        _loss(steps, evaluations, marks),
        _entries(layers, marks),
        _bytes(layers, marks),
        _throughput(steps, marks),
        _split(steps, marks),
    )
    return [chart for chart in drawn if chart.series]


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
    size = -(-len(x) // buckets)
    places = np.arange(buckets * size).reshape(buckets, size)
    stretches = np.full(places.shape, np.nan)
    stretches.flat[: len(y)] = y
    low = np.where(np.isnan(stretches), np.inf, stretches).argmin(axis=1)
    high = np.where(np.isnan(stretches), -np.inf, stretches).argmax(axis=1)
    rows = np.arange(buckets)
    index = np.concatenate([places[rows, low], places[rows, high], [0, len(x) - 1]])
    index = np.unique(index[index < len(x)])  # the last stretches may be short, or empty
    return x[index], y[index]


def _accuracy(steps: Sequence[Row], evaluations: Sequence[Row], marks: _Marks) -> Chart:
    series = _line(steps, "window", "window_accuracy", "faint", 0)
    series += _line(steps, "prequential", "prequential_accuracy", "line", 0)
    series += _points(evaluations, "accuracy", first_color=1)
    return Chart(
        "accuracy",
        "Accuracy over the stream",
        "Every example is predicted before it is learnt from: over the phase so far, and over the "
        "window since the previous point. Points: held-out data.",
        "accuracy",
        series,
        ".4f",
        (0.0, 1.0),
        marks,
    )


def _loss(steps: Sequence[Row], evaluations: Sequence[Row], marks: _Marks) -> Chart:
    series = _line(steps, "prequential", "loss", "line", 0)
    series += _points(evaluations, "loss", first_color=1)
    note = "Mean loss before learning, since the previous point. Points: held-out data."
    return Chart("loss", "Loss", note, "mean loss", series, ".4g", None, marks)


def _entries(layers: Mapping[str, _Layer], marks: _Marks) -> Chart:
    few = len(layers) <= _CAPACITY_LAYERS
    series = []
    for color, (name, layer) in enumerate(layers.items()):
        series += _series(name, layer.x, layer.entries, "line", color)
        if few:
            series += _series(f"{name}, allocated", layer.x, layer.capacity, "ceiling", color)
    note = "Entries each layer holds" + (", and the rows allocated for them (dotted)." if few else ".")
    return Chart("entries", "Entries per layer", note, "entries", series, ",d", None, marks)


def _bytes(layers: Mapping[str, _Layer], marks: _Marks) -> Chart:
    few = len(layers) <= _CAPACITY_LAYERS
    top = max((np.nanmax(layer.bytes, initial=1.0) for layer in layers.values()), default=1.0)
    power = min(int(np.log2(top) // 10), len(_BYTE_UNITS) - 1)
    series = []
    for color, (name, layer) in enumerate(layers.items()):
        allocated = layer.bytes / 1024.0**power
        series += _series(name, layer.x, allocated, "stairs", color)
        if few:
            used = allocated * layer.entries / np.maximum(layer.capacity, 1)
            series += _series(f"{name}, in use", layer.x, used, "dotted", color)
    note = "Allocated for each layer's rows" + (", and the part in use (dotted)." if few else ".")
    unit = f"memory, {_BYTE_UNITS[power]}"
    return Chart("bytes", "Memory per layer", note, unit, series, ",.4~g", None, marks)


def _throughput(steps: Sequence[Row], marks: _Marks) -> Chart:
    series = _line(steps, "examples per second", "examples_per_second", "line", 0)
    note = "Examples per second of the loop, evaluation and commits included."
    return Chart("throughput", "Throughput", note, "examples/s", series, ",.4~g", None, marks)


def _split(steps: Sequence[Row], marks: _Marks) -> Chart:
    parts = _step_parts(steps) if steps else {}
    used = {part: curve for part, curve in parts.items() if curve[1].any()}
    series = [
        Series(part, x.tolist(), mean.tolist(), "stacked", color)
        for color, (part, (x, mean)) in enumerate(used.items())
    ]
    note, y_range = "Where the time of a step goes, as means over stretches of the stream.", None
    if used:
        total = np.sum([mean for _, mean in used.values()], axis=0)
        cut = _SPLIT_CUT * float(np.median(total))
        if total.max() > cut > 0:  # compiling and full evaluations would flatten all else
            note += f" Cut: the longest stretch has {total.max():,.0f} ms."
            y_range = (0.0, cut)
    return Chart("split", "Step time", note, "ms per step", series, ",.3~g", y_range, marks)


def _step_parts(steps: Sequence[Row]) -> dict[str, tuple[Floats, Floats]]:
    """Returns each part's x and mean milliseconds a step, over the same stretches for all parts."""
    ends, x = _column(steps, "step"), _column(steps, "examples")
    spans = np.diff(ends)
    first = min(float(np.median(spans)), ends[0]) if len(spans) else ends[0]  # a fork begins later
    parts = {part: _column(steps, f"{part}_seconds") for part in _STACKED_PARTS}
    parts["other"] = np.maximum(_column(steps, "wall_seconds") - sum(parts.values()), 0.0)
    # Stacked areas need the same x: means over stretches, not each line's own extremes.
    borders = np.unique(np.linspace(0, len(x), min(len(x), _AREA_BUCKETS) + 1).astype(np.int64))[:-1]
    last = np.append(borders[1:], len(x)) - 1
    counts = np.maximum(np.add.reduceat(np.insert(spans, 0, first), borders), 1.0)
    return {
        part: (x[last], 1e3 * np.add.reduceat(np.nan_to_num(seconds), borders) / counts)
        for part, seconds in parts.items()
    }


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
    return np.array([row[name] for row in rows], dtype=np.float64)  # None becomes NaN


def _layers(steps: Sequence[Row]) -> dict[str, _Layer]:
    """Returns each layer's columns, in the order of the layers."""
    names = dict.fromkeys(name for row in steps for name in row["layers"])
    return {name: _layer([row for row in steps if name in row["layers"]], name) for name in names}


def _layer(steps: Sequence[Row], name: str) -> _Layer:
    rows = [row["layers"][name] for row in steps]
    columns = (_column(rows, column) for column in ("entries", "capacity", "bytes"))
    return _Layer(_column(steps, "examples"), *columns)


def _phases(steps: Sequence[Row]) -> _Marks:
    """Returns where each phase begins, if there is more than one."""
    begins = [(0.0, steps[0]["phase"])] if steps else []
    for before, row in pairwise(steps):
        if row["phase"] != before["phase"]:
            begins.append((float(before["examples"]), row["phase"]))
    return begins if len(begins) > 1 else []
