"""One pass at width 512: Muon and Mesa beside the others, at a price that a CPU can pay."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Paper, Size
from ..reference import measure
from ..remarks import leads
from .learners import evaluated, gauge, mlp, rates, rbf, softmax

WIDTH = 512
_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size("small", 10_000, 5_000, 3, "the first 10,000 training images; 5,000 test images"),
    "smoke": Size("smoke", 160, 64, 1),
}
_OPTIMISERS: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "sgd": ("SGD, momentum 0.85", {"kind": "sgd", "momentum": 0.85}, (1e-3, 3e-3, 1e-2)),
    "adam": ("Adam", {"kind": "adam"}, (3e-4, 1e-3, 3e-3)),
    "adamw": ("AdamW", {"kind": "adamw"}, (3e-4, 1e-3, 3e-3)),
    "rmsprop": ("RMSProp", {"kind": "rmsprop"}, (1e-4, 3e-4, 1e-3)),
    "delta": ("Delta rule", {"kind": "delta", "decay": 1e-5}, (3e-3, 1e-2, 3e-2)),
    "muon": ("Muon", {"kind": "muon"}, (1e-3, 3e-3, 1e-2)),
    "mesa": ("Mesa, exact", {"kind": "mesa", "on_top": "adam", "momentum": 0.85}, (1e-4, 3e-4, 1e-3)),
}


def _cells(size: Size) -> Sequence[Cell]:
    width = WIDTH if size.name != "smoke" else 32
    base = {**evaluated(size), "project": width}
    n = size.train
    growing: dict[str, tuple[str, dict[str, Any]]] = {
        "softmax": ("weighted softmax, T = 6, η = 0.003, β = 3", softmax(n)),
        "rbf": ("RBF, η = 10", rbf(n)),
        "gauge": ("gauge-invariant softmax, T = 5", gauge(n)),
    }
    cells = [
        Cell(
            name,
            label,
            {**base, "learner": learner},
            candidates={f"t-{t}": {"learner": {"temperature": t}} for t in (5, 10)} if name == "rbf" else {},
            group="growing",
            cost=1.5 if name == "rbf" else 1,
        )
        for name, (label, learner) in growing.items()
    ]
    for name, (label, optimiser, tried) in _OPTIMISERS.items():
        settings = {**base, "learner": mlp(optimiser, 2)}
        paper = Paper(57.2, 0.4, "authors' published log, width 3072") if name == "muon" else None
        cost = {"muon": 20.0, "mesa": 8.0}.get(name, 2.0)
        cells.append(
            Cell(f"mlp-{name}", f"MLP, {label}", settings, rates(*tried), paper, "parametric", cost=cost)
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
