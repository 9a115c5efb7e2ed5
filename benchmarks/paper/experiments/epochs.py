"""Fig. 2, left and middle, and G.1: several epochs with augmentation."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Size
from ..network import measure_images
from ..remarks import leads
from .learners import NARROW_OPTIMISERS, at_width, augmented, gauge, mlp, narrowed, rates, rbf, room, softmax

_EPOCHS = {"full": 50, "small": 5, "smoke": 2}
_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size(
        "small", 4000, 2500, 3, "4,000 training images at width 512 for 5 epochs; 2,500 test images"
    ),
    "smoke": Size("smoke", 96, 64, 1),
}

_OPTIMISERS: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "sgd": ("SGD, momentum 0.85", {"kind": "sgd", "momentum": 0.85}, (1e-3, 3e-3)),
    "adam": ("Adam", {"kind": "adam"}, (1e-4, 3e-4)),
    "adamw": ("AdamW", {"kind": "adamw"}, (1e-4, 3e-4)),
    "rmsprop": ("RMSProp", {"kind": "rmsprop"}, (3e-5, 1e-4)),
    "delta": ("Delta rule", {"kind": "delta", "decay": 1e-5}, (3e-3, 1e-2)),
    "muon": ("Muon", {"kind": "muon"}, (1e-3, 3e-3)),
    "mesa": (
        "Mesa, 10 Newton–Schulz iterations",
        {"kind": "mesa", "newton_schulz": 10, "on_top": "adam", "momentum": 0.85},
        (3e-4, 1e-3),
    ),
}
_COSTS = {"muon": 20.0, "mesa": 10.0}


def _cells(size: Size) -> Sequence[Cell]:
    epochs = _EPOCHS[size.name]
    base = {
        "batch_size": 64 if size.name == "full" else 16,
        "record_every": 10,
        "epochs": epochs,
        **augmented(size),
        **narrowed(size),
    }
    n, memory = size.train, room((size.train + 64) * epochs)
    growing = (
        ("rbf", "RBF, T = 10", rbf(n, at_width(size, 10)), 1),
        ("softmax", "weighted softmax, T = 6", softmax(n, at_width(size, 6)), 2),
        ("gauge", "gauge-invariant softmax, T = 5", gauge(n, at_width(size, 5)), 2),
    )
    cells = [
        Cell(name, label, {**base, "learner": {**learner, "memory": memory}}, cost=cost)
        for name, label, learner, cost in growing
    ]
    optimisers, blocks = (_OPTIMISERS, 4) if size.name == "full" else (NARROW_OPTIMISERS, 2)
    for name, (label, optimiser, tried) in optimisers.items():
        settings = {**base, "learner": mlp(optimiser, blocks)}
        cost = _COSTS.get(name, 5.0)
        cells.append(Cell(f"mlp-{name}", f"MLP, {label}", settings, rates(*tried), cost=cost))
    return cells


def _remarks(means: Means) -> list[str]:
    growing = [name for name in ("rbf", "softmax", "gauge") if name in means]
    sentences = leads(means, growing, set(means) - set(growing), "growing layer", "parametric network")
    losses = {name: mean.figures[0]["before_learning_loss_curve"][-1][1] for name, mean in means.items()}
    if growing and len(losses) > len(growing):
        lowest = min(losses, key=lambda name: losses[name])
        sentences.append(f"The lowest training loss at the end is that of `{lowest}`, {losses[lowest]:.3g}.")
    return sentences


EXPERIMENT = Experiment(
    name="epochs",
    title="Several epochs with augmentation",
    paper="Fig. 2 left and middle, G.1",
    about="Test accuracy and training loss (of each example before it is learnt from) over epochs of "
    "augmented images, in another order each.",
    differs="Small: five epochs over 4,000 images instead of 50 over 50,000, each augmented and then "
    "projected to 512 numbers. CIFAR-100 runs with `--data tfds:cifar100` (or `npz:FILE`) where it lies; "
    "it was not here.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(
        Figure("curves", "Accuracy on test images", "accuracy"),
        Figure("curves", "Training loss before learning", "before_learning_loss", log_y=True),
    ),
    remarks=_remarks,
)
