"""Pictures of an experiment's results, drawn with matplotlib (extra `plots`) the same way every time."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from lamina.errors import not_installed

from .experiment import Cell, Figure, Mean

_SIZE = (7.2, 4.2)  # inches
_SETTINGS = {"svg.hashsalt": "lamina", "svg.fonttype": "none", "font.size": 10}
_WORDS = {
    "accuracy": "test accuracy, %",
    "train_accuracy": "training accuracy, %",
    "loss": "test loss",
    "before_learning_loss": "loss before learning",
    "attribute_loss": "attribute loss, nats a value",
    "attribute_accuracy": "attribute accuracy, %",
    "level": "no-knowledge level",
    "old": "attribute accuracy on the first people, %",
    "old_before": "attribute accuracy on the first people, %",
    "new": "attribute accuracy on the new people, %",
    "plateau_end": "step at which the plateau ends",
}


def draw(figure: Figure, cells: Sequence[Cell], means: Mapping[str, Mean]) -> bytes | None:
    """An SVG; None if no cell has anything to draw.

    Args:
      figure: what to draw.
      cells: the cells in their order, which gives each its colour.
      means: the results there are, by cell.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise not_installed("matplotlib", "to draw with", "plots") from None
    with mpl.rc_context(_SETTINGS):
        canvas = Canvas(figsize=_SIZE, layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.subplots()
        lines = _curves if figure.kind == "curves" else _points
        if not lines(axes, figure, [cell for cell in cells if cell.name in means], means):
            return None
        axes.set_title(figure.title, loc="left", fontsize=11)
        axes.set_xlabel(figure.x)
        axes.set_ylabel(_WORDS[figure.y])
        axes.grid(alpha=0.3)
        if figure.log_x:
            axes.set_xscale("log")
        if figure.log_y:
            axes.set_yscale("log")
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)
        out = io.BytesIO()
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _curves(axes: Any, figure: Figure, cells: Sequence[Cell], means: Mapping[str, Mean]) -> bool:
    """One curve per cell over the examples seen: the mean, and a band of ± a standard deviation."""
    drawn, levels = 0, []
    for cell in cells:
        if figure.groups and cell.group not in figure.groups:
            continue
        curves = [f[f"{figure.y}_curve"] for f in means[cell.name].figures if f.get(f"{figure.y}_curve")]
        if not curves:
            continue
        length = min(len(curve) for curve in curves)
        xs = [point[0] for point in curves[0][:length]]
        columns = [[curve[i][1] for curve in curves] for i in range(length)]
        middles = [Mean(tuple(column), ()) for column in columns]
        style = {"color": f"C{drawn % 10}", "linestyle": ("-", "--", ":")[drawn // 10 % 3]}
        ys = [middle.mean for middle in middles]
        axes.plot(xs, ys, label=cell.label, linewidth=1.5, **style)
        if len(curves) > 1:
            spread = [middle.deviation or 0.0 for middle in middles]
            low = [y - s for y, s in zip(ys, spread, strict=True)]
            high = [y + s for y, s in zip(ys, spread, strict=True)]
            axes.fill_between(xs, low, high, alpha=0.15, linewidth=0, color=style["color"])
        drawn += 1
        levels += [f[figure.level] for f in means[cell.name].figures if figure.level]
    if levels:
        axes.axhline(
            sum(levels) / len(levels), color="0.4", linestyle="-.", linewidth=1, label=_WORDS[figure.level]
        )
    return drawn > 0


def _points(axes: Any, figure: Figure, cells: Sequence[Cell], means: Mapping[str, Mean]) -> bool:
    """One point per cell, joined within groups; x is the cell's own, or its entries."""
    groups: dict[str, list[tuple[float, float, float]]] = {}
    for cell in cells:
        if figure.groups and cell.group not in figure.groups:
            continue
        mean = means[cell.name]
        x = mean.figures[0].get("entries") if figure.x == "entries" else cell.x
        if x is not None:
            known = tuple(f[figure.y] for f in mean.figures if f.get(figure.y) is not None)
            shown = Mean(known, ())
            if known:
                groups.setdefault(cell.group, []).append((x, shown.mean, shown.deviation or 0.0))
    for number, (group, points) in enumerate(groups.items()):
        xs, ys, spread = zip(*sorted(points), strict=True)
        axes.errorbar(xs, ys, yerr=spread, label=group, marker="o", capsize=3, color=f"C{number % 10}")
    return bool(groups)
