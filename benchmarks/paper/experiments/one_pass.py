"""The headline: one pass over CIFAR-10 without augmentation (Fig. 2 right, Fig. 9, Appendix G.2)."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Paper, Size
from ..reference import measure
from ..remarks import leads, paired
from .learners import evaluated, falling, gauge, hybrid, mlp, rates, rbf, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 5, tried_on=12_500),
    "small": Size("small", 4_000, 2_500, 3, "the first 4,000 training images; 2,500 test images"),
    "smoke": Size("smoke", 160, 64, 1),
}
_GROWING = ("softmax-t6", "softmax-t20", "rbf-t10", "rbf-t20", "rbf-t20-chosen", "gauge", "hybrid")
_BEYOND = ("softmax-t6-falling", "rbf-t10-falling")
_LOG = "authors' published log"
_FEWER_SEEDS = 3  # at full size, of all but the two learners whose numbers are the headline
_RATES_AT_20 = {f"eta-{rate:g}": {"learner": {"value_rate": rate}} for rate in (0.3, 1.0, 3.0)}
_AT_4000 = {"softmax-t6": 39.9, "rbf-t10": 42.2, "gauge": 40.0, "hybrid": 38.7}


def _cells(size: Size) -> Sequence[Cell]:
    return [*_growing(size), *_parametric(size), *_references(size)]


def _growing(size: Size) -> list[Cell]:
    n, full = size.train, size.name == "full"
    fallen = [falling(first, n) for first in (3, 0.003, 20)]  # as validation chose on the page `beyond`
    rbf_paper = Paper(58.8, 0.2, "G.2")
    lines: list[tuple[str, str, dict[str, Any], Paper | None, float]] = [
        ("softmax-t6", "weighted softmax, T = 6, η = 0.003, β = 3", softmax(n), Paper(59.4, 0.4, "G.2"), 3),
        ("softmax-t20", "weighted softmax, T = 20, η = 0.003, β = 3", softmax(n, 20), None, 3.2),
        ("rbf-t10", "RBF, T = 10, η = 10", rbf(n), Paper(58.9, None, _LOG), 3),
        ("rbf-t20", "RBF, T = 20, η = 10", rbf(n, 20), rbf_paper, 3.2),
        ("rbf-t20-chosen", "RBF, T = 20, η chosen", rbf(n, 20), rbf_paper, 3.3),
        ("softmax-t6-falling", "softmax, T = 6, falling rates", softmax(n, 6, *fallen[:2]), None, 3.4),
        ("rbf-t10-falling", "RBF, T = 10, a rate that falls from 20", rbf(n, 10, fallen[2]), None, 3.4),
        ("gauge", "gauge-invariant softmax, T = 5", gauge(n), Paper(58.4, 0.4, "G.2"), 3.1),
        ("hybrid", "hybrid softmax, T = 5, τ = 50", hybrid(n, 50), Paper(56.3, None, _LOG), 9),
    ]
    return [
        Cell(
            name,
            label,
            {**evaluated(size), "learner": learner},
            candidates=_RATES_AT_20 if name == "rbf-t20-chosen" else {},
            paper=paper if full else _after_4000(name),
            group="beyond the paper" if name in _BEYOND else "growing",
            seeds=None if name.startswith(("softmax", "rbf")) or not full else _FEWER_SEEDS,
            cost=cost,
        )
        for name, label, learner, paper, cost in lines
        if not (full and name == "softmax-t20")  # not the paper's; the small size says what it is worth
    ]


def _after_4000(name: str) -> Paper | None:
    """What the authors' log says after as many examples as the small size has."""
    value = _AT_4000.get(name)
    return None if value is None else Paper(value, None, f"{_LOG}, after 4,000 examples")


def _parametric(size: Size) -> list[Cell]:
    blocks = 8 if size.name == "full" else 2
    lines: list[tuple[str, str, dict[str, Any], tuple[float, ...], Paper | None]] = [
        (
            "mlp-sgd",
            "MLP, SGD",
            {"kind": "sgd", "momentum": 0.85},
            (1e-4, 3e-4, 1e-3, 3e-3),
            Paper(46.3, 2.0, _LOG),
        ),
        ("mlp-adam", "MLP, Adam", {"kind": "adam"}, (1e-5, 3e-5, 1e-4, 3e-4), Paper(48.2, 1.0, _LOG)),
        (
            "mlp-adamw",
            "MLP, AdamW, decay 0.01",
            {"kind": "adamw", "weight_decay": 0.01},
            (1e-5, 3e-5, 1e-4, 3e-4),
            Paper(48.3, 1.0, _LOG),
        ),
        (
            "mlp-rmsprop",
            "MLP, RMSProp",
            {"kind": "rmsprop"},
            (1e-5, 3e-5, 1e-4, 3e-4),
            Paper(49.9, 0.7, _LOG),
        ),
        ("mlp-delta", "MLP, Delta rule", {"kind": "delta", "decay": 1e-5}, (1e-3, 3e-3, 1e-2), None),
    ]
    cells = [
        Cell(
            name,
            label,
            {**evaluated(size), "learner": mlp(optimiser, blocks)},
            candidates=rates(*tried),
            paper=paper if size.name == "full" else None,
            group="parametric",
            seeds=_FEWER_SEEDS if size.name == "full" else None,
            cost=5,
        )
        for name, label, optimiser, tried, paper in lines
    ]
    if size.name == "full":  # thousands of products of 3072 × 3072 matrices a step: for an accelerator
        for name, label, optimiser, paper in (
            ("mlp-muon", "MLP, Muon", {"kind": "muon"}, Paper(57.2, 0.4, _LOG)),
            ("mlp-mesa", "MLP, Mesa", {"kind": "mesa", "newton_schulz": 10, "on_top": "adam"}, None),
        ):
            settings = {**evaluated(size), "learner": mlp(optimiser, blocks)}
            tried = rates(3e-4, 1e-3, 3e-3)
            cells.append(Cell(name, label, settings, tried, paper, "parametric", cost=100))
    return cells


def _references(size: Size) -> list[Cell]:
    knn: dict[str, Any] = {"kind": "knn", "neighbours": 10}
    ways = {"euclidean": {"similarity": "euclidean"}, "dot": {"similarity": "dot"}}
    candidates = {
        f"{way}-{'weighted' if weighted else 'uniform'}-{count}": {
            "reference": {**options, "weighted": weighted, "neighbours": count}
        }
        for way, options in ways.items()
        for weighted in (False, True)
        for count in (5, 10, 25)
    }
    ridge: dict[str, Any] = {"kind": "ridge"}
    fits = {
        f"bandwidth-{bandwidth:g}-ridge-{strength:g}": {
            "reference": {"bandwidth": bandwidth, "regularisation": strength}
        }
        for bandwidth in (1.0, 2.0, 5.0)
        for strength in (0.1, 1.0)
    }
    return [
        Cell(
            "knn",
            "k nearest neighbours *",
            {"reference": knn},
            candidates,
            group="reference",
            seeds=1,
            cost=1,
        ),
        Cell("ridge", "kernel ridge *", {"reference": ridge}, fits, group="reference", seeds=1, cost=1.5),
    ]


def _remarks(means: Means) -> list[str]:
    parametric = [name for name in means if name.startswith("mlp-")]
    sentences = leads(means, _GROWING, parametric, "growing layer", "parametric network")
    for name in _BEYOND:
        sentences += paired(means, name, name.removesuffix("-falling"))
    if {"mlp-adam", "mlp-adamw"} <= set(means):
        sentences.append(
            "A decay of 0.01 takes less than a hundredth of a weight in one pass at these rates, so AdamW is "
            "nearly Adam."
        )
    if {"rbf-t10", "rbf-t20"} <= set(means):
        cooler, warmer = means["rbf-t10"].mean, means["rbf-t20"].mean
        sentences.append(
            f"RBF with the rate of the paper's text, η = 10, reaches {warmer:.1f} % at T = 20 and "
            f"{cooler:.1f} % at T = 10 (paper, after all images: 58.8 at T = 20): a rate belongs to its "
            "temperature."
        )
    if {"rbf-t10", "rbf-t20-chosen"} <= set(means):
        behind = means["rbf-t10"].mean - means["rbf-t20-chosen"].mean
        sentences.append(
            f"A rate chosen on validation brings T = 20 to {means['rbf-t20-chosen'].mean:.1f} %, which is "
            f"{abs(behind):.1f} points {'below' if behind > 0 else 'above'} T = 10."
        )
    return sentences


EXPERIMENT = Experiment(
    name="one_pass",
    title="One pass over CIFAR-10",
    paper="Fig. 2 right, Fig. 9, G.2",
    about="Every image is seen once, without augmentation, in batches of 16. Growing networks of two "
    "blocks and "
    "a readout against residual MLPs by optimiser; nearest neighbours and kernel ridge regression (*) see "
    "all images at once.",
    differs="The paper reports the setting that is best on test; here the growing layers run at the paper's "
    "settings, and rates of MLPs, k and the ridge are chosen on validation (at full size by shorter passes). "
    "RBF at T = 20 runs at the rate of the paper's text, 10, and at one chosen on validation; the kernel of "
    "its Algorithm 5, and ours, is exp(−‖q − k‖² / (2T√d)): were the text's 20 all that stands before √d, it "
    "would be the cell at T = 10, which the authors' published log has; we do not know. At small size MLPs "
    "have 2 blocks (full: 8, as in the authors' logs). Falling rates are not the paper's: page "
    "`beyond` takes them apart. Muon and Mesa are compared at width 512 (page `narrow`).",
    sizes=_SIZES,
    cells=_cells,
    measure=measure,
    figures=(
        Figure("curves", "Accuracy on test images", "accuracy"),
        Figure("curves", "Growing layers (Fig. 9)", "accuracy", groups=("growing",)),
    ),
    remarks=_remarks,
)
