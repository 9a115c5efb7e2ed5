"""A run's charts as data, of as many points as a screen can show."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from .history import History
from .matrix import task_curves
from .rows import Row
from .stretches import Floats, Stretches

_AREA_BUCKETS = 120  # means over a stretch: rare long steps would be spikes nobody can compare
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SPLIT_CUT = 4.0  # times the median, where the axis of the step time ends
_STACKED_PARTS = ("compute", "append", "maintain", "wait", "evaluate", "commit")  # from below
_CAPACITY_LAYERS = 6  # with more layers, the dotted lines of their capacities hide the entries


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


_Marks = list[tuple[float, str]]


def charts(history: History) -> list[Chart]:
    """Draws up a run's charts.

    Args:
      history: the run's table.

    Returns:
      The charts that have something to show.
    """
    marks = history.phases if len(history.phases) > 1 else []
    marks = marks + [(examples, "drift") for examples in history.drifts]
    drawn = (
        _accuracy(history, marks),
        _loss(history, marks),
        _attribute_loss(history, marks),
        _entries(history, marks),
        _bytes(history, marks),
        _throughput(history, marks),
        _split(history, marks),
    )
    return [chart for chart in drawn if chart.series]


def comparison(history: History) -> dict[str, dict[str, list[Any]]]:
    """Returns the lines by which runs are compared: by name, x and y of each.

    Args:
      history: a run's table.
    """
    names = {
        "prequential accuracy": "prequential_accuracy",
        "window accuracy": "window_accuracy",
        "loss": "loss",
        "entries": "entries",
        "examples per second": "examples_per_second",
    }
    lines = {name: _line(history, name, column, "line", 0) for name, column in names.items()}
    lines |= {series.name: [series] for series in _points(history.evaluations, "accuracy", 0)}
    drawn: dict[str, dict[str, list[Any]]] = {
        name: {"x": found[0].x, "y": found[0].y} for name, found in lines.items() if found
    }
    if history.coarse:  # not all tasks are known yet
        return drawn
    return drawn | {name: curve for name, curve in task_curves(history.evaluations).items() if curve["x"]}


def _accuracy(history: History, marks: _Marks) -> Chart:
    series = _line(history, "window", "window_accuracy", "faint", 0)
    series += _line(history, "prequential", "prequential_accuracy", "line", 0)
    series += _points(history.evaluations, "accuracy", first_color=1)
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


def _loss(history: History, marks: _Marks) -> Chart:
    series = _line(history, "prequential", "loss", "line", 0)
    series += _points(history.evaluations, "loss", first_color=1)
    note = "Mean loss before learning, since the previous point. Points: held-out data."
    return Chart("loss", "Loss", note, "mean loss", series, ".4g", None, marks)


def _attribute_loss(history: History, marks: _Marks) -> Chart:
    series = _points(history.evaluations, "attribute_loss", first_color=1)
    series += [
        replace(each, name=each.name.replace("held out", "nobody known"), style="dotted")
        for each in _points(history.evaluations, "no_knowledge_level", first_color=1)
    ]
    note = (
        "Points: loss of a value in held-out texts, summed over its words. Dotted: what it is for somebody "
        "who knows how often values occur, and nobody; a plateau there ends where facts become known."
    )
    return Chart("attribute_loss", "Loss of values", note, "nats", series, ".4g", None, marks)


def _entries(history: History, marks: _Marks) -> Chart:
    few = len(history.layers) <= _CAPACITY_LAYERS
    series = []
    for color, name in enumerate(history.layers):
        series += _line(history, name, f"{name}/entries", "line", color)
        if few:
            series += _line(history, f"{name}, allocated", f"{name}/capacity", "ceiling", color)
    note = "Entries each layer holds" + (", and the rows allocated for them (dotted)." if few else ".")
    return Chart("entries", "Entries per layer", note, "entries", series, ",d", None, marks)


def _bytes(history: History, marks: _Marks) -> Chart:
    lines = {name: history.lines.line(f"{name}/bytes") for name in history.layers}
    top = max((np.nanmax(y, initial=1.0) for _, y in lines.values()), default=1.0)
    power = min(int(np.log2(top) // 10), len(_BYTE_UNITS) - 1)
    series = []
    for color, (name, (x, y)) in enumerate(lines.items()):
        series += _series(name, x, y / 1024.0**power, "stairs", color)
    unit = f"memory, {_BYTE_UNITS[power]}"
    return Chart(
        "bytes", "Memory per layer", "Allocated for each layer's rows.", unit, series, ",.4~g", None, marks
    )


def _throughput(history: History, marks: _Marks) -> Chart:
    series = _line(history, "examples per second", "examples_per_second", "line", 0)
    note = "Examples per second of the loop, evaluation and commits included."
    return Chart("throughput", "Throughput", note, "examples/s", series, ",.4~g", None, marks)


def _split(history: History, marks: _Marks) -> Chart:
    parts = {} if history.coarse or not history.lines.rows else _step_parts(history)
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


def _step_parts(history: History) -> dict[str, tuple[Floats, Floats]]:
    """Returns each part's x and mean milliseconds a step, over the same stretches for all parts."""
    x, steps = history.lines.ends(), history.lines.totals("steps")
    parts = {part: history.lines.totals(f"{part}_seconds") for part in _STACKED_PARTS}
    parts["other"] = np.maximum(history.lines.totals("wall_seconds") - sum(parts.values()), 0.0)
    # Stacked areas need the same x: means over stretches, not each line's own extremes.
    borders = np.unique(np.linspace(0, len(x), min(len(x), _AREA_BUCKETS) + 1).astype(np.int64))[:-1]
    last = np.append(borders[1:], len(x)) - 1
    counts = np.maximum(np.add.reduceat(steps, borders), 1.0)
    return {part: (x[last], 1e3 * np.add.reduceat(s, borders) / counts) for part, s in parts.items()}


def _line(history: History, name: str, column: str, style: Any, color: int) -> list[Series]:
    if column not in history.lines.names:
        return []
    return _series(name, *history.lines.line(column), style, color)


def _points(evaluations: Sequence[Row], column: str, first_color: int) -> list[Series]:
    tasks = list(dict.fromkeys(row["task"] for row in evaluations))
    series = []
    for color, task in enumerate(tasks, start=first_color):
        rows = [row for row in evaluations if row["task"] == task]
        lines = Stretches()
        x, y = (np.array([row.get(name) for row in rows], np.float64) for name in ("examples", column))
        lines.take(x, {"y": y})
        series += _series(f"held out: {task}", *lines.line("y"), "points", color)
    return series


def _series(name: str, x: Floats, y: Floats, style: Any, color: int) -> list[Series]:
    """Returns the series, or nothing if it has no value."""
    if np.isnan(y).all():
        return []
    values = [None if np.isnan(value) else value for value in y.tolist()]
    return [Series(name, x.tolist(), values, style, color)]
