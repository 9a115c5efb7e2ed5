"""Fig. 5: accuracy of the hybrid layer against its final capacity, over growth thresholds τ."""

from collections.abc import Sequence

from ..experiment import Cell, Experiment, Figure, Means, Paper, Size, merged
from ..network import measure_images
from .learners import BATCH, at_width, evaluated, hybrid, narrowed, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size(
        "small", 4_000, 2_500, 2, "the first 4,000 training images at width 512; 2,500 test images; two seeds"
    ),
    "smoke": Size("smoke", 160, 64, 1),
}
_THRESHOLDS = (35, 40, 45, 50, 55, 60)
_CAPS = (10, 25, 50, 75)


def _cells(size: Size) -> Sequence[Cell]:
    n = size.train
    base = {**evaluated(size), **narrowed(size)}
    blocks = 3 if size.name != "smoke" else 1
    cells = [
        Cell(
            f"tau-{threshold}",
            f"hybrid, τ = {threshold}",
            {**base, "learner": hybrid(n, at_width(size, threshold), at_width(size, 5), blocks)},
            paper=_published(size) if threshold == 50 else None,
            group="hybrid",
            x=threshold,
            cost=3 - threshold / 50,
        )
        for threshold in _THRESHOLDS
    ]
    plain = {**base, "learner": softmax(n, at_width(size, 6), blocks=blocks)}
    for share in _CAPS:
        memory = {
            "capacity": share * n // 100 + BATCH,
            "initial_capacity": min(4096, share * n // 100 + BATCH),
        }
        settings = merged(plain, {"learner": {"memory": {**memory, "eviction": "random"}}})
        cells.append(Cell(f"plain-{share}", f"plain softmax, cap {share} %", settings, group="plain", cost=1))
    cells.append(Cell("plain-100", "plain softmax, every example", plain, group="plain", cost=1.5))
    return cells


def _published(size: Size) -> Paper | None:
    log = "authors' published log"
    if size.name == "small":
        return Paper(38.7, None, f"{log} at width 3072, after 4,000 examples")
    return Paper(56.3, None, f"{log}, 46 % of the capacity")


def bend(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The point of a rising curve farthest above the line between its ends; None below three points.

    Args:
      points: (entries, accuracy).

    >>> bend([(0, 0.0), (1, 8.0), (10, 10.0)])
    (1, 8.0)
    """
    ordered = sorted(points)
    if len(ordered) < 3:
        return None
    (x0, y0), (x1, y1) = ordered[0], ordered[-1]
    slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
    best = max(ordered, key=lambda point: point[1] - y0 - slope * (point[0] - x0))
    return best


def _remarks(means: Means) -> list[str]:
    sentences = []
    points = {
        (mean.figures[0]["entries"], mean.mean): name
        for name, mean in means.items()
        if name.startswith("tau-")
    }
    if len(points) >= 5 and (found := bend(list(points))) is not None:
        most = max(entries for entries, _ in points)
        sentences.append(
            f"The hybrid's curve bends at `{points[found]}`: {found[0]:,} entries "
            f"({found[0] / most:.0%} of the "
            f"most it stored) reach {found[1]:.1f} %; fewer cost more accuracy than the straight line would."
        )
    best = max((mean.mean, name) for name, mean in means.items()) if means else None
    if best is not None and len(points) >= 5:
        sentences.append(f"The highest accuracy is that of `{best[1]}`, {best[0]:.1f} %.")
    return sentences


EXPERIMENT = Experiment(
    name="capacity",
    title="Hybrid layers: accuracy against final capacity",
    paper="Fig. 5",
    about="Hybrid softmax layers store a query only where its nearest key is farther than τ, and train "
    "what is "
    "stored with Adam. Beside them plain softmax layers at caps, where random entries give way.",
    differs="The paper sweeps rates and temperature per τ on test; here all τ share the published setting. "
    "T and τ are named as at width 3072.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(Figure("points", "Accuracy against final capacity", x="entries"),),
    remarks=_remarks,
)
