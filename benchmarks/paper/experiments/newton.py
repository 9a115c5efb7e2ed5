"""Table 8: how many Newton–Schulz iterations Mesa's inverse needs."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Paper, Size
from ..network import measure_images
from .learners import evaluated, mlp, rates

_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size(
        "small", 4000, 2500, 2, "one pass over 4,000 images at width 512; 2,500 test images; two seeds"
    ),
    "smoke": Size("smoke", 160, 64, 1),
}
_PAPER = {"5": 69.14, "10": 71.30, "exact": 71.24}


def _cells(size: Size) -> Sequence[Cell]:
    base: dict[str, Any] = evaluated(size)
    if size.name == "full":
        base |= {"batch_size": 64, "epochs": 50, "augment": True}
    else:
        base["project"] = 512 if size.name == "small" else 32
    cells = []
    for name, iterations in (("exact", None), ("5", 5), ("10", 10)):
        optimiser = {"kind": "mesa", "newton_schulz": iterations, "on_top": "adam", "momentum": 0.85}
        label = "exact inverse" if iterations is None else f"{iterations} iterations"
        candidates = {} if size.name == "smoke" else rates(3e-4, 1e-3)
        settings = {**base, "learner": mlp({**optimiser, "learning_rate": 1e-3}, 2)}
        paper = Paper(_PAPER[name], None, "Table 8, 50 epochs at width 3072")
        cells.append(Cell(f"newton-{name}", label, settings, candidates, paper, cost=1 + (iterations or 0)))
    return cells


def _remarks(means: Means) -> list[str]:
    if not {"newton-exact", "newton-5", "newton-10"} <= set(means):
        return []
    exact = means["newton-exact"].mean
    gaps = {count: means[f"newton-{count}"].mean - exact for count in (5, 10)}
    return [
        f"Against the exact inverse, 5 iterations cost {-gaps[5]:.1f} points and 10 iterations "
        f"{-gaps[10]:.1f} "
        f"(paper: 2.1 and −0.1)."
    ]


EXPERIMENT = Experiment(
    name="newton",
    title="Newton–Schulz iterations of Mesa",
    paper="Table 8",
    about="Mesa's whitening by an exact solve, and by 5 and 10 Newton–Schulz iterations.",
    differs="One pass at width 512 instead of 50 epochs with augmentation at 3072.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(Figure("curves", "Accuracy on test images", "accuracy"),),
    remarks=_remarks,
)
