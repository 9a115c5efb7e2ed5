"""Learning in phases: what is forgotten by growing and by parametric networks, with and without replay."""

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.continual import parse_config
from lamina.monitoring import read_summary

from ..data import image_stream
from ..experiment import Cell, Column, Experiment, Figure, Job, Means, Measured, Size
from ..network import execute, sizes_of
from .learners import BATCH, at_width, evaluated, hybrid, narrowed, rbf, room, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 3),
    "small": Size(
        "small", 4_000, 2_500, 3, "the first 4,000 training images at width 512; 2,500 test images"
    ),
    "smoke": Size("smoke", 160, 64, 1),
}
_PHASES = 5
_REPLAYED = {"replay": {"kind": "reservoir", "examples": BATCH, "size": 500}}
_SCENARIOS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "split": ("two classes a phase", {"kind": "split_classes", "class_order": list(range(10))}),
    "permuted": ("numbers in another order every phase", {"kind": "permuted", "phases": _PHASES}),
}
_FIGURES = {
    "average_accuracy": "accuracy",
    "anytime_accuracy": "anytime accuracy",
    "forgetting_max": "forgetting",
    "bwt_gem": "backward transfer",
    "fwt_gem": "forward transfer",
}


def _learners(size: Size) -> dict[str, tuple[str, dict[str, Any], dict[str, Any], float]]:
    """Name → label, learner, changes of the scenario, cost."""
    n = size.train
    growing = rbf(n, at_width(size, 10), blocks=1)
    soft = softmax(n, at_width(size, 6), blocks=1)
    both = hybrid(n, at_width(size, 45), at_width(size, 5), blocks=1)
    for learner in (growing, soft, both):
        learner["memory"] = {**learner["memory"], **room(_PHASES * 2 * n)}
    mlp = {"kind": "mlp", "blocks": 1, "optimiser": {"kind": "adam", "learning_rate": 3e-4}}
    exemplars = {"kind": "knn", "temperature": 0.05, "memory": room(_PHASES * 2 * n)}
    return {
        "rbf": ("growing RBF", growing, {}, 1),
        "rbf-replay": ("growing RBF, replay", growing, _REPLAYED, 3),
        "softmax": ("growing softmax", soft, {}, 1),
        "softmax-replay": ("growing softmax, replay", soft, _REPLAYED, 3),
        "hybrid": ("hybrid softmax", both, {}, 4),
        "hybrid-replay": ("hybrid softmax, replay", both, _REPLAYED, 8),
        "mlp": ("MLP, Adam", mlp, {}, 1),
        "mlp-replay": ("MLP, Adam, replay", mlp, _REPLAYED, 2),
        "mlp-ewc": ("MLP, Adam, EWC", {**mlp, "ewc": 1000.0}, {}, 1),
        "knn": ("soft nearest neighbours", exemplars, {}, 1),
    }


def _cells(size: Size) -> Sequence[Cell]:
    return [
        Cell(
            f"{scenario}-{name}",
            f"{words}: {label}",
            {**evaluated(size), **narrowed(size), "learner": learner, "scenario": {**options, **changes}},
            group=scenario,
            cost=cost * (1 if scenario == "split" else _PHASES),
        )
        for scenario, (words, options) in _SCENARIOS.items()
        for name, (label, learner, changes, cost) in _learners(size).items()
    ]


def _measure(job: Job) -> Measured:
    settings = {name: value for name, value in job.settings.items() if name != "project"}
    stream = image_stream(job.data, job.size, job.held_out, job.shared, job.settings.get("project"))
    folder = job.work / "run"
    config = parse_config({**settings, "name": "cell", "seed": job.seed, "stream": stream})
    failed = execute(config, folder)
    if failed is not None:
        return failed
    summary = read_summary(folder)
    found = summary.continual or {}
    figures = {
        title: None if found[name] is None else round(100 * found[name], 3)
        for name, title in _FIGURES.items()
    }
    return {**figures, "matrix": found["accuracy"], **sizes_of(summary)}


def _remarks(means: Means) -> list[str]:
    sentences = []
    for scenario in _SCENARIOS:
        found = {name: mean for name, mean in means.items() if name.startswith(scenario)}
        if len(found) < 2:
            continue
        best = max(found, key=lambda name: found[name].mean)
        sentences.append(f"{scenario}: `{best}` is best in the end, {found[best].mean:.1f} %.")
        for learner in ("rbf", "softmax", "hybrid", "mlp"):
            plain, replayed = found.get(f"{scenario}-{learner}"), found.get(f"{scenario}-{learner}-replay")
            if plain and replayed:
                sentences.append(
                    f"{scenario}, {learner}: {replayed.mean:.1f} % with replay of a reservoir of 500, "
                    f"{plain.mean:.1f} without."
                )
    return sentences


EXPERIMENT = Experiment(
    name="scenarios",
    title="Learning in phases: what is kept, what is forgotten",
    paper="Lamina's own; the paper has no such scenario",
    about="Five phases of two classes each, or five phases with the numbers of every example in another "
    "fixed order. The accuracy is the mean over all phases' test images in the end; forgetting and transfer "
    "are those of docs/continual.md.",
    differs="T and τ are named as at width 3072. With replay every batch has as many old examples as new "
    "ones, from a reservoir of 500.",
    sizes=_SIZES,
    cells=_cells,
    measure=_measure,
    columns=(Column("anytime accuracy"), Column("forgetting"), Column("backward transfer")),
    figures=(Figure("points", "Accuracy in the end against entries", x="entries", groups=tuple(_SCENARIOS)),),
    remarks=_remarks,
)
