"""One pass at width 512: Muon and Mesa beside the others, at a price that a CPU can pay."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Paper, Size
from ..reference import measure
from ..remarks import leads
from .learners import NARROW, NARROW_OPTIMISERS, at_narrow, evaluated, gauge, hybrid, mlp, rates, rbf, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size("small", 8_000, 2_500, 3, "the first 8,000 training images; 2,500 test images"),
    "smoke": Size("smoke", 160, 64, 1),
}


def _cells(size: Size) -> Sequence[Cell]:
    base = {**evaluated(size), "project": 32 if size.name == "smoke" else NARROW}
    n = size.train
    lines: list[tuple[str, str, dict[str, Any], float, float]] = [
        ("softmax", "weighted softmax, T = 6", softmax(n, at_narrow(6)), 47.6, 1),
        ("rbf", "RBF, T = 10", rbf(n, at_narrow(10)), 47.9, 1.5),
        ("gauge", "gauge-invariant softmax, T = 5", gauge(n, at_narrow(5)), 47.3, 1.6),
        ("hybrid", "hybrid, T = 5, τ = 50", hybrid(n, at_narrow(50), at_narrow(5)), 44.3, 6),
    ]
    where = "authors' published log, width 3072, after 8,000 examples"
    cells = [
        Cell(
            name,
            label,
            {**base, "learner": learner},
            paper=Paper(value, None, where) if size.name == "small" else None,
            group="growing",
            cost=cost,
        )
        for name, label, learner, value, cost in lines
    ]
    for name, (label, optimiser, tried) in NARROW_OPTIMISERS.items():
        settings = {**base, "learner": mlp(optimiser, 2)}
        cost = {"muon": 20.0, "mesa": 8.0}.get(name, 2.0)
        cells.append(
            Cell(f"mlp-{name}", f"MLP, {label}", settings, rates(*tried), None, "parametric", cost=cost)
        )
    return cells


def _remarks(means: Means) -> list[str]:
    growing = [name for name in means if not name.startswith("mlp-")]
    return leads(means, growing, set(means) - set(growing), "growing layer", "parametric network")


EXPERIMENT = Experiment(
    name="narrow",
    title="One pass at width 512, with Muon and Mesa",
    paper="Fig. 2 right, at a smaller width",
    about="Muon and Mesa multiply matrices of 3072 × 3072 thousands of times in a pass. Here all images "
    "are first "
    "projected to 512 numbers (the leading principal directions of the training images, found "
    "without labels), "
    "and all methods see the same.",
    differs="Width 512 instead of 3072, and the projection looks at the training images before the pass. "
    "Growing "
    "layers keep the rates of width 3072; RBF's temperature and all learning rates are chosen on validation. "
    "The settings at full width are in `one_pass`.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure,
    figures=(Figure("curves", "Accuracy on test images at width 512", "accuracy"),),
    remarks=_remarks,
)
