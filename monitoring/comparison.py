"""A page that compares runs over phases: one table, accuracy matrices, forgetting curves, entries over time.

It is one file of HTML and SVG without scripts, so that it can be mailed, archived and printed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from .rows import Row
from .text import ratio_text

_COLORS = ("#2b6c99", "#c0722b", "#4a8a68", "#9b5375", "#6b66ad", "#8a7a3d", "#8b929c")
_WIDTH, _HEIGHT = 520, 220  # of a chart, pixels
_CELL = 46  # side of a matrix's cell, pixels
_STYLE = """
body { margin: 0 auto; max-width: 1160px; padding: 32px 24px; background: #fcfbf9; color: #20242b;
  font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 26px; } h2 { font-size: 18px; margin-top: 40px; }
table { border-collapse: collapse; font-size: 14px; } .scroll { overflow-x: auto; }
th, td { padding: 6px 14px; text-align: right; border-bottom: 1px solid #e4e1da; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; }
.row { display: flex; flex-wrap: wrap; gap: 28px; } figure { margin: 0; } figcaption { font-weight: 600; }
svg text { font: 11px system-ui, sans-serif; fill: #5d6572; } .legend { color: #5d6572; font-size: 13px; }
.legend b { display: inline-block; width: 16px; height: 3px; margin: 0 6px 3px 14px; vertical-align: middle; }
"""


@dataclass(frozen=True)
class ComparedRun:
    """One run as it is compared with others."""

    path: str
    name: str
    seed: int
    finished: bool
    rows: Sequence[Row]  # its table
    phases: Sequence[str]  # those that have ended
    tasks: Sequence[str]  # columns of `accuracy`
    accuracy: Sequence[Sequence[float | None]]  # a row per phase
    metrics: Mapping[str, float | None]  # transfer and forgetting, by name
    prequential_accuracy: float | None
    entries: int  # of all layers

    def figure(self, name: str) -> float | None:
        """One of the figures that are compared, by name."""
        found: float | None = self.metrics[name] if name in self.metrics else getattr(self, name)
        return found


def comparison_page(head: Sequence[str], body: Sequence[Sequence[str]], runs: Sequence[ComparedRun]) -> str:
    """Draws up the page.

    Args:
      head: the table's columns.
      body: its rows.
      runs: the runs whose matrices and curves are shown, in the order of their colours.

    Returns:
      HTML.
    """
    labels = _labels(runs)
    matrices = "".join(_matrix(label, run) for label, run in zip(labels, runs, strict=True))
    curves = [
        ("Accuracy on the first task", _first_task, True),
        ("Mean accuracy on the tasks so far", _tasks_so_far, True),
        ("Entries of all layers", _entries, False),
    ]
    charts = "".join(_chart(title, [read(run) for run in runs], unit=unit) for title, read, unit in curves)
    legend = "".join(
        f'<b style="background:{_color(place)}"></b>{escape(label)}' for place, label in enumerate(labels)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Comparison · Lamina</title>'
        f"<style>{_STYLE}</style></head><body><h1>Comparison of {len(runs)} runs</h1>"
        f'<div class="scroll">{_table(head, body)}</div>'
        f'<h2>Accuracy after each phase (rows) on each task (columns)</h2><div class="row">{matrices}</div>'
        f'<h2>Over the examples learnt from</h2><p class="legend">{legend}</p>'
        f'<div class="row">{charts}</div></body></html>\n'
    )


def _labels(runs: Sequence[ComparedRun]) -> list[str]:
    """Names that tell the runs apart."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else f"{run.name} (seed {run.seed})" for run in runs]


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = ""
    for name, *cells in body:
        rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines += f'<tr><th scope="row">{escape(name)}</th>{rest}</tr>'
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def _matrix(label: str, run: ComparedRun) -> str:
    """A heat map: the darker a cell, the higher the accuracy."""
    cells = []
    for i, row in enumerate(run.accuracy):
        for j, value in enumerate(row):
            x, y, shown = j * _CELL, i * _CELL, 0.0 if value is None else value
            dark = "#ffffff" if shown > 0.6 else "#20242b"
            title = escape(f"after {run.phases[i]} on {run.tasks[j]}: {ratio_text(value)}")
            cells.append(
                f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_CELL - 2}" '
                f'fill="#2b6c99" fill-opacity="{0.06 + 0.94 * shown:.3f}"/><text x="{x + _CELL / 2 - 1}" '
                f'y="{y + _CELL / 2 + 3}" text-anchor="middle" style="fill:{dark}">'
                f"{'–' if value is None else f'{value:.2f}'}</text></g>"
            )
    width, height = max(1, len(run.tasks)) * _CELL, max(1, len(run.phases)) * _CELL
    picture = f'<svg width="{width}" height="{height}" role="img">{"".join(cells)}</svg>'
    return f"<figure><figcaption>{escape(label)}</figcaption>{picture}</figure>"


_Curve = list[tuple[float, float]]


def _first_task(run: ComparedRun) -> _Curve:
    first = run.tasks[0] if run.tasks else None
    rows = [row for row in run.rows if row["kind"] == "evaluation" and row["task"] == first]
    return [(row["examples"], row["accuracy"]) for row in rows if row["accuracy"] is not None]


def _tasks_so_far(run: ComparedRun) -> _Curve:
    """Mean over the tasks of the phases begun, at every point where all of them were evaluated."""
    begun: list[str] = []
    points: dict[int, dict[str, float]] = {}
    curve: _Curve = []
    for row in run.rows:
        if row["kind"] != "evaluation" or row["accuracy"] is None or row["step"] == 0:
            continue
        if row["phase"] not in begun:
            begun.append(row["phase"])
        point = points.setdefault(row["examples"], {})
        point[row["task"]] = row["accuracy"]
        taught = run.tasks[: len(begun)]
        if taught and all(task in point for task in taught):
            mean = sum(point[task] for task in taught) / len(taught)
            if curve and curve[-1][0] == row["examples"]:
                curve.pop()
            curve.append((row["examples"], mean))
    return curve


def _entries(run: ComparedRun) -> _Curve:
    return [
        (row["examples"], sum(layer["entries"] for layer in row["layers"].values()))
        for row in run.rows
        if row["kind"] == "step"
    ]


def _chart(title: str, curves: Sequence[_Curve], *, unit: bool) -> str:
    """Lines over the examples seen; the vertical axis begins at 0, and ends at 1 for ratios."""
    points = [point for curve in curves for point in curve]
    right = max((x for x, _ in points), default=1) or 1
    top = 1.0 if unit else max((y for _, y in points), default=1) or 1

    def place(point: tuple[float, float]) -> str:
        x, y = point
        return f"{44 + (_WIDTH - 54) * x / right:.1f},{8 + (_HEIGHT - 32) * (1 - y / top):.1f}"

    lines = "".join(
        f'<polyline points="{" ".join(map(place, curve))}" fill="none" stroke="{_color(number)}" '
        f'stroke-width="2"/>'
        for number, curve in enumerate(curves)
        if curve
    )
    ticks = "".join(_tick(share, top, unit=unit) for share in (0, 0.5, 1))
    end = f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 6}" text-anchor="end">{right:,.0f} examples</text>'
    picture = f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">{ticks}{lines}{end}</svg>'
    return f"<figure><figcaption>{title}</figcaption>{picture}</figure>"


def _tick(share: float, top: float, *, unit: bool) -> str:
    y = 8 + (_HEIGHT - 32) * (1 - share)
    text = f"{share * top:.1f}" if unit else f"{share * top:,.0f}"
    return (
        f'<line x1="44" x2="{_WIDTH - 10}" y1="{y}" y2="{y}" stroke="#eeece6"/>'
        f'<text x="40" y="{y + 4}" text-anchor="end">{text}</text>'
    )


def _color(place: int) -> str:
    return _COLORS[place % len(_COLORS)]
