"""Fig. 4: train and test accuracy of the growing and the parametric softmax layer."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Size
from ..network import measure_with_training
from .learners import at_width, augmented, narrowed, room

_EPOCHS = {"full": 50, "small": 8, "smoke": 2}
_SIZES = {
    "full": Size("full", 50_000, 10_000, 3),
    "small": Size(
        "small", 2000, 2500, 2, "2,000 training images at width 512, 8 epochs; 2,500 test images; two seeds"
    ),
    "smoke": Size("smoke", 96, 64, 1),
}


def _cells(size: Size) -> Sequence[Cell]:
    epochs = _EPOCHS[size.name]
    base = {
        "batch_size": 64 if size.name != "smoke" else 16,
        "record_every": 10,
        "epochs": epochs,
        **augmented(size),
        **narrowed(size),
    }
    growing: dict[str, Any] = {
        "kind": "softmax",
        "blocks": 0,
        "temperature": at_width(size, 10),
        "value_rate": 30,
        "weight_rate": 1,
        "memory": room((size.train + 64) * epochs),
    }
    parametric: dict[str, Any] = {
        "kind": "parametric_softmax",
        "entries": min(size.train * epochs, 2_560_000),
        "temperature": at_width(size, 1),
        "optimiser": {"kind": "adam", "learning_rate": 0.003},
    }
    grown = {
        f"t-{t:g}-beta-{beta:g}-eta-{eta:g}": {
            "learner": {"temperature": at_width(size, t), "value_rate": beta, "weight_rate": eta}
        }
        for t, beta, eta in ((10, 30, 1), (6, 3, 0.003), (10, 10, 0.1))
    }
    trained = {
        f"t-{t:g}-rate-{rate:g}": {
            "learner": {"temperature": at_width(size, t), "optimiser": {"learning_rate": rate}}
        }
        for t, rate in ((1, 0.003), (3, 0.001), (3, 0.01))
    }
    few = size.name == "smoke"
    return [
        Cell(
            "growing", "growing weighted softmax", {**base, "learner": growing}, {} if few else grown, cost=1
        ),
        Cell("parametric", "parametric softmax, Adam", {**base, "learner": parametric}, trained, cost=3),
    ]


def _remarks(means: Means) -> list[str]:
    sentences = []
    for name, mean in means.items():
        train = sum(figures["train_accuracy"] for figures in mean.figures) / len(mean.figures)
        sentences.append(
            f"{name}: {train:.1f} % on training images, {mean.mean:.1f} % on test images, a gap of "
            f"{train - mean.mean:.1f} points."
        )
    return sentences


EXPERIMENT = Experiment(
    name="gap",
    title="Train and test accuracy of growing and parametric softmax layers",
    paper="Fig. 4",
    about="One layer without blocks: weighted softmax entries that are added and never "
    "trained, "
    "against as many entries that are all trained.",
    differs="The paper trains the parametric layer for 2,000 epochs and the growing one for 50, on all "
    "images. T is named as at width 3072.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_with_training,
    figures=(
        Figure("curves", "Accuracy on test images", "accuracy"),
        Figure("curves", "Accuracy on training images", "train_accuracy"),
    ),
    remarks=_remarks,
)
