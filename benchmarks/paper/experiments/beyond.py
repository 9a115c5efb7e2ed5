"""Beyond the paper: what raises one-pass accuracy at equal entries, one change at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Size, merged
from ..network import measure_images
from .learners import at_width, evaluated, falling, narrowed, rbf, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size(
        "small", 4_000, 2_500, 2, "the first 4,000 training images at width 512; 2,500 test images"
    ),
    "smoke": Size("smoke", 160, 64, 1),
}
Changes = Mapping[str, Any]


def _cells(size: Size) -> Sequence[Cell]:
    base = {**evaluated(size), **narrowed(size)}
    rbf_base = {**base, "learner": rbf(size.train, at_width(size, 10))}
    softmax_base = {**base, "learner": softmax(size.train, at_width(size, 6))}
    return [
        *_family("rbf", "RBF", rbf_base, _rbf_changes(size)),
        *_family("softmax", "softmax", softmax_base, _softmax_changes(size)),
    ]


def _family(
    name: str, label: str, base: dict[str, Any], changes: Mapping[str, tuple[str, Mapping[str, Changes]]]
) -> list[Cell]:
    """The paper's setting, and a cell for each change, of which validation chooses how much."""
    cells = [Cell(name, f"{label}, the paper's setting", base, group=name, cost=1)]
    for change, (words, candidates) in changes.items():
        wrapped = {candidate: {"learner": values} for candidate, values in candidates.items()}
        cells.append(
            Cell(f"{name}-{change}", f"{label}: {words}", base, wrapped, group=name, cost=1 + len(wrapped))
        )
    return cells


def _rbf_changes(size: Size) -> dict[str, tuple[str, Mapping[str, Changes]]]:
    rate = {f"rate-{value:g}": {"value_rate": value} for value in (5, 20)}
    fallen = {f"from-{value:g}": {"value_rate": falling(value, size.train)} for value in (10, 20, 40)}
    tempered = {f"t-{t:g}": {"temperature": at_width(size, t)} for t in (5, 7, 15)}
    kernels = {
        f"{kind.replace('_', '-')}": {**rbf(size.train, at_width(size, 10)), "kind": kind}
        for kind in ("laplace", "matern32", "matern52", "rational_quadratic")
    }
    momentum = {f"momentum-{m:g}": {"momentum": m, "value_rate": 10 * (1 - m)} for m in (0.5, 0.9)}
    both = {
        f"t-{t:g}-from-{value:g}": {
            "temperature": at_width(size, t),
            "value_rate": falling(value, size.train),
        }
        for t, value in ((5, 20), (7, 20), (7, 40))
    }
    return {
        "rate": ("another rate", rate),
        "falling": ("a rate that falls to a twentieth", fallen),
        "temperature": ("another temperature", tempered),
        "kernel": ("another kernel", kernels),
        "momentum": ("momentum", momentum),
        "all": ("temperature and falling rate together", both),
    }


def _softmax_changes(size: Size) -> dict[str, tuple[str, Mapping[str, Changes]]]:
    fallen = {
        f"from-{value:g}": {
            "value_rate": falling(value, size.train),
            "weight_rate": falling(0.001 * value, size.train),
        }
        for value in (3, 6, 12)
    }
    return {
        "zero": ("initial entries of zeros", {"zero": {"initial": "zero"}}),
        "centred": ("initial values that sum to zero", {"centred": {"initial": "centred"}}),
        "rate": ("another rate", {f"rate-{v:g}": {"value_rate": v} for v in (1.5, 6)}),
        "falling": ("rates that fall to a twentieth", fallen),
        "temperature": (
            "another temperature",
            {f"t-{t:g}": {"temperature": at_width(size, t)} for t in (4, 10)},
        ),
        "all": (
            "centred, with rates that fall to a twentieth",
            {name: merged(changes, {"initial": "centred"}) for name, changes in fallen.items()},
        ),
    }


def _remarks(means: Means) -> list[str]:
    sentences = []
    for family in ("rbf", "softmax"):
        changed = [name for name in means if name.startswith(f"{family}-")]
        if family not in means or not changed:
            continue
        best = max(changed, key=lambda name: means[name].mean)
        gain = means[best].mean - means[family].mean
        sentences.append(
            f"{family}: of {len(changed)} change{'s' if len(changed) > 1 else ''} measured so far "
            f"`{best}` does best, "
            f"{gain:+.1f} points from the paper's setting ({means[family].mean:.1f} → "
            f"{means[best].mean:.1f} %, "
            f"seeds: {len(means[best].values)})."
        )
    return sentences


EXPERIMENT = Experiment(
    name="beyond",
    title="Beyond the paper: one-pass accuracy at equal entries",
    paper="none; starts from the settings of Fig. 2 right",
    about="Every line changes one thing of the paper's setting, `all` combines the two that promise most; "
    "the "
    "number of entries stays the same. How much of a change is best was chosen on validation, with one seed.",
    differs="Not in the paper.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(
        Figure("curves", "RBF", "accuracy", groups=("rbf",)),
        Figure("curves", "Weighted softmax", "accuracy", groups=("softmax",)),
    ),
    remarks=_remarks,
)
