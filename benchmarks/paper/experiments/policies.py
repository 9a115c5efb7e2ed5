"""Accuracy against entries in one pass: thresholds, caps and what gives way at them."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Mean, Means, Size, merged
from ..network import measure_images
from .learners import BATCH, at_width, evaluated, hybrid, narrowed, rbf, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 3),
    "small": Size(
        "small", 4_000, 2_500, 1, "the first 4,000 training images at width 512; 2,500 test images; one seed"
    ),
    "smoke": Size("smoke", 160, 64, 1),
}
_SHARES = (25, 50, 75)
_EVICTIONS = ("none", "oldest", "smallest", "random", "reservoir", "merge_nearest")
_THRESHOLDS = {"rbf": (30, 35, 40, 45), "softmax": (30, 35, 40, 45), "hybrid": (35, 40, 45, 50, 55)}
_WORDS = {
    "none": "nothing more is stored",
    "oldest": "the oldest give way",
    "smallest": "the smallest give way",
    "random": "random ones give way",
    "reservoir": "a uniform sample stays",
    "merge_nearest": "the nearest are merged",
}


def _cells(size: Size) -> Sequence[Cell]:
    n = size.train
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "rbf": ("RBF", rbf(n, at_width(size, 10))),
        "softmax": ("softmax", softmax(n, at_width(size, 6))),
        "hybrid": ("hybrid", hybrid(n, 0.0, at_width(size, 5), blocks=1)),
    }
    cells = []
    for kind, (label, learner) in kinds.items():
        base = {**evaluated(size), **narrowed(size), "learner": learner}
        cost = 4.0 if kind == "hybrid" else 1.0
        cells.append(
            Cell(f"{kind}-all", f"{label}: every example is stored", base, group=kind, cost=0.5 * cost)
        )
        for threshold in _THRESHOLDS[kind]:
            memory = {"admission": "novelty", "novelty_threshold": at_width(size, threshold)}
            cells.append(
                _cell(base, f"{kind}-tau-{threshold}", f"{label}: τ = {threshold}", memory, kind, 1.2 * cost)
            )
        for eviction in _EVICTIONS:
            for share in _SHARES:
                memory = {"capacity": share * n // 100 + BATCH, "eviction": eviction}
                memory["initial_capacity"] = min(4096, memory["capacity"])
                name = f"{kind}-{eviction.replace('_', '-')}-{share}"
                words = f"{label}: cap {share} %, {_WORDS[eviction]}"
                slow = 3 if eviction == "merge_nearest" else 1 + share / 100
                cells.append(_cell(base, name, words, memory, f"{kind}, {eviction}", slow * cost))
    return cells


def _cell(
    base: dict[str, Any], name: str, label: str, memory: dict[str, Any], line: str, cost: float
) -> Cell:
    settings = merged(base, {"learner": {"memory": memory}})
    return Cell(name, label, settings, group=line if "," in line else f"{line}, τ", cost=cost)


def _remarks(means: Means) -> list[str]:
    """What to choose: by how much entries can be saved, and what gives way best at half of them."""
    sentences = []
    for kind in ("rbf", "softmax", "hybrid"):
        whole = means.get(f"{kind}-all")
        if whole is not None:
            sentences += [*_savings(kind, whole, means), *_half(kind, whole, means)]
    return sentences


def _savings(kind: str, whole: Mean, means: Means) -> list[str]:
    """The fewest entries that keep accuracy within a few points, and the bounds measured for that."""
    bounded = {n: m for n, m in means.items() if n.startswith(f"{kind}-") and n != f"{kind}-all"}
    shares = {
        name: mean.figures[0]["entries"] / whole.figures[0]["entries"] for name, mean in bounded.items()
    }
    sentences = []
    for points in (1, 3):
        near = [name for name, mean in bounded.items() if mean.mean > whole.mean - points]
        if near:
            least = min(near, key=lambda name: shares[name])
            sentences.append(
                f"{kind}: of {len(bounded)} bounds measured, `{least}` keeps fewest entries "
                f"({shares[least]:.0%}) "
                f"within {points} point{'s' if points > 1 else ''} of storing every example "
                f"({bounded[least].mean:.1f} against {whole.mean:.1f} %)."
            )
    return sentences


def _half(kind: str, whole: Mean, means: Means) -> list[str]:
    """The evictions in their order at a cap of half of the examples."""
    names = [name for eviction in _EVICTIONS if (name := f"{kind}-{eviction.replace('_', '-')}-50") in means]
    if len(names) < 2:
        return []
    order = sorted(names, key=lambda name: -means[name].mean)
    numbers = ", ".join(f"`{name}` {means[name].mean:.1f} %" for name in order)
    sentence = f"{kind} at a cap of 50 %, best first: {numbers} (every example: {whole.mean:.1f} %)."
    if order[0] == f"{kind}-none-50":
        sentence += (
            " Here storing no more costs less than letting entries go, as it would if later entries correct "
            "what earlier ones say."
        )
    return [sentence]


EXPERIMENT = Experiment(
    name="policies",
    title="Bounded memories: accuracy against entries",
    paper="Sec. 3.3, Fig. 5 for the hybrid; the rest is Lamina's",
    about="One pass with a memory that stores only what is novel (τ, the distance to the nearest key), or "
    "that "
    "is capped at 25, 50 or 75 % of the examples a layer, with every eviction policy.",
    differs="The paper bounds its hybrid layers alone, by τ. The hybrid has one block here (three in the "
    "paper), so that its steps, which train all entries, stay affordable. T and τ are named as at "
    "width 3072, "
    "where a query's length is 55.4, and multiplied by √(512/3072) at small size.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=tuple(
        Figure(
            "points",
            f"{title}: accuracy against entries",
            x="entries",
            groups=(kind, *(f"{kind}, {line}" for line in ("τ", *_EVICTIONS))),
        )
        for kind, title in (("rbf", "RBF"), ("softmax", "Weighted softmax"), ("hybrid", "Hybrid softmax"))
    ),
    remarks=_remarks,
)
