"""The chart of how entries are weighted, drawn with matplotlib (extra `plots`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..durable import storage_errors
from ..errors import ConfigError, not_installed

_WIDTH, _ROW = 8.0, 1.25  # inches


def draw_weights(relative: Mapping[str, NDArray[np.float64]], path: Path) -> None:
    """Draws a row per rule: its entries' weights over their creation step, shaded where they differ from 1.

    Args:
      relative: by name, [steps] weights relative to plain gradient descent's.
      path: the file to write; its ending names the format.

    Raises:
      ConfigError: the file's ending names no format of pictures, or its folder does not exist.
      MissingDataError: matplotlib is not installed.
      StorageError: the file system refused.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import TwoSlopeNorm
        from matplotlib.figure import Figure
    except ImportError:
        raise not_installed("matplotlib", "to draw with", "plots") from None
    figure = Figure(figsize=(_WIDTH, _ROW * len(relative) + 0.8), layout="constrained", dpi=120)
    canvas = FigureCanvasAgg(figure)
    most = max(2.0, *(float(row.max()) for row in relative.values()))
    least = min(0.0, *(float(row.min()) for row in relative.values()))
    norm = TwoSlopeNorm(1.0, least, most)
    rows = figure.subplots(len(relative), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, weights) in zip(rows, relative.items(), strict=True):
        shades = _draw_row(axes, name, weights, norm)
    rows[-1].set_xlabel("step that added the entry, oldest first")
    ticks = sorted({*np.linspace(least, 1, 5).round(2), *np.linspace(1, most, 4).round(1)})
    label = "weight; 1 as in plain gradient descent"
    figure.colorbar(shades, ax=list(rows), label=label, ticks=ticks, aspect=30)
    if path.suffix[1:].lower() not in canvas.get_supported_filetypes() or not path.parent.is_dir():
        raise ConfigError(f"{path}: expected a picture's name, as weights.png, in a folder that exists")
    with storage_errors(path):
        figure.savefig(path)


def _draw_row(axes: Any, name: str, weights: NDArray[np.float64], norm: Any) -> Any:
    """Shades one rule's entries and draws their weights over the shades."""
    top, bottom = max(1.0, float(weights.max())) * 1.15, min(0.0, float(weights.min()) * 1.15)
    steps = np.arange(1, len(weights) + 1)
    extent = (0.5, len(weights) + 0.5, bottom, top)
    shades = axes.imshow(
        weights[None, :],
        cmap="RdBu_r",
        norm=norm,
        extent=extent,
        aspect="auto",
        interpolation="nearest",
        alpha=0.8,
    )
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle="dotted")
    axes.plot(steps, weights, color="white", linewidth=4)  # a rim, so that the line shows on every shade
    axes.plot(steps, weights, color="black", linewidth=1.6)
    axes.set_title(name, loc="left", fontsize=10)
    axes.set_ylim(bottom, top)
    return shades
