"""Sec. 5 and F.11: Vision Transformers whose feed-forward parts grow."""

from collections.abc import Sequence
from typing import Any

from ..experiment import Cell, Experiment, Figure, Means, Paper, Size
from ..network import measure_images
from .learners import evaluated, room

_SIZES = {
    "full": Size("full", 50_000, 10_000, 5),
    "small": Size("small", 2_000, 1_000, 2, "the first 2,000 training images; 1,000 test images; two seeds"),
    "smoke": Size("smoke", 160, 64, 1),
}


def _cells(size: Size) -> Sequence[Cell]:
    smoke = size.name == "smoke"
    tokens = 5 if smoke else 65  # patches and the class token
    base = {**evaluated(size), "batch_size": 64 if size.name == "full" else 16}
    growing: dict[str, Any] = {
        "kind": "softmax",
        "temperature": 1,
        "value_rate": 10,
        "weight_rate": 0.3,
        "momentum_on": "values",
        "memory": room(size.train * tokens),
    }
    trained: dict[str, Any] = {"kind": "mlp", "width": 512}
    rates = {
        f"rate-{rate:g}": {"learner": {"optimiser": {"learning_rate": rate}}} for rate in (3e-4, 1e-3, 3e-3)
    }
    rules = {
        f"t-{t:g}-beta-{beta:g}-momentum-{momentum:g}": {
            "learner": {"ffn": {"temperature": t, "value_rate": beta, "momentum": momentum}}
        }
        for t in (0.3, 1.0)
        for beta, momentum in ((10, 0.0), (30, 0.0), (10, 0.999))
    }
    paper = size.name == "full"
    return [
        Cell(
            "mlp",
            "ViT, trained feed-forward parts",
            {**base, "learner": _vit(smoke, trained)},
            {} if smoke else rates,
            Paper(48.4, None, "Sec. 5") if paper else None,
        ),
        Cell(
            "softmax",
            "ViT, growing weighted softmax in their place",
            {**base, "learner": _vit(smoke, growing)},
            {} if smoke else rules,
            Paper(54.4, None, "Sec. 5") if paper else None,
            cost=10,
        ),
    ]


def _vit(smoke: bool, ffn: dict[str, Any]) -> dict[str, Any]:
    shape = {"width": 32, "heads": 4} if smoke else {"width": 128, "heads": 8}
    optimiser = {"kind": "adam", "learning_rate": 1e-3}
    return {"kind": "vit", "patch": 4, "blocks": 2, **shape, "ffn": ffn, "optimiser": optimiser}


def _remarks(means: Means) -> list[str]:
    if not {"mlp", "softmax"} <= set(means):
        return []
    gap = means["softmax"].mean - means["mlp"].mean
    return [f"Growing parts change accuracy by {gap:+.1f} points (paper: +6.0 after 50,000 images)."]


EXPERIMENT = Experiment(
    name="vit",
    title="Vision Transformers with growing feed-forward parts",
    paper="Sec. 5, F.11",
    about="Two blocks of attention over 4 × 4 patches, trained by Adam. Their feed-forward parts are "
    "perceptrons, or "
    "growing weighted softmax layers that store every token.",
    differs="Growing parts store 65 tokens an image, so that the full size is for an accelerator. Fewer "
    "rates are "
    "tried than in the paper's Tables 15 and 16, and on validation.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(Figure("curves", "Accuracy on test images", "accuracy"),),
    remarks=_remarks,
)
