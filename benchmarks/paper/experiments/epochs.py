"""Fig. 2, left and middle, and G.1: several epochs with augmentation."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Size
from ..network import measure_images
from ..remarks import leads
from .learners import mlp, rates, rbf, room, softmax

_EPOCHS = {"full": 50, "small": 4, "smoke": 2}
_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size("small", 2000, 2500, 1, "2,000 training images for 4 epochs; 2,500 test images; one seed"),
    "smoke": Size("smoke", 96, 64, 1),
}


def _cells(size: Size) -> Sequence[Cell]:
    epochs = _EPOCHS[size.name]
    base = {
        "batch_size": 64 if size.name == "full" else 16,
        "record_every": 10,
        "epochs": epochs,
        "stream": {"augment": "cifar"},
    }
    memory = room((size.train + 64) * epochs)
    blocks = 4 if size.name == "full" else 2
    cells = [
        Cell("rbf", "RBF", {**base, "learner": {**rbf(size.train), "memory": memory}}, cost=1),
        Cell(
            "softmax",
            "weighted softmax",
            {**base, "learner": {**softmax(size.train), "memory": memory}},
            cost=2,
        ),
    ]
    optimisers: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
        "sgd": ({"kind": "sgd", "momentum": 0.85}, (1e-3, 3e-3)),
        "adam": ({"kind": "adam"}, (1e-4, 3e-4)),
        "adamw": ({"kind": "adamw"}, (1e-4, 3e-4)),
        "rmsprop": ({"kind": "rmsprop"}, (3e-5, 1e-4)),
        "delta": ({"kind": "delta", "decay": 1e-5}, (3e-3, 1e-2)),
    }
    if size.name == "full":
        optimisers |= {
            "muon": ({"kind": "muon"}, (1e-3, 3e-3)),
            "mesa": ({"kind": "mesa", "newton_schulz": 10, "on_top": "adam", "momentum": 0.85}, (3e-4, 1e-3)),
        }
    for name, (optimiser, tried) in optimisers.items():
        settings = {**base, "learner": mlp(optimiser, blocks)}
        cells.append(Cell(f"mlp-{name}", f"MLP, {name}", settings, rates(*tried), cost=5))
    return cells


def _remarks(means: Means) -> list[str]:
    growing = [name for name in ("rbf", "softmax") if name in means]
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
    "augmented "
    "images, in another order each.",
    differs="Four epochs over 2,000 images instead of 50 over 50,000; Muon and Mesa at full size only. "
    "CIFAR-100 "
    "runs with `--data tfds:cifar100` where it is prepared; it was not here.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(
        Figure("curves", "Accuracy on test images", "accuracy"),
        Figure("curves", "Training loss before learning", "before_learning_loss", log_y=True),
    ),
    remarks=_remarks,
)
