"""Settings that several experiments share: the paper's learners, and how they are evaluated on the way."""

from collections.abc import Mapping
from typing import Any

from ..experiment import Size

BATCH = 16
WIDTH, NARROW = 3072, 512
Settings = dict[str, Any]

# For MLPs of width 512: label, optimiser, and the rates of which validation chooses.
NARROW_OPTIMISERS: dict[str, tuple[str, Settings, tuple[float, ...]]] = {
    "sgd": ("SGD, momentum 0.85", {"kind": "sgd", "momentum": 0.85}, (1e-3, 3e-3, 1e-2)),
    "adam": ("Adam", {"kind": "adam"}, (3e-4, 1e-3, 3e-3)),
    "adamw": ("AdamW", {"kind": "adamw"}, (3e-4, 1e-3, 3e-3)),
    "rmsprop": ("RMSProp", {"kind": "rmsprop"}, (1e-4, 3e-4, 1e-3)),
    "delta": ("Delta rule", {"kind": "delta", "decay": 1e-5}, (3e-3, 1e-2, 3e-2)),
    "muon": ("Muon", {"kind": "muon"}, (1e-3, 3e-3, 1e-2)),
    "mesa": ("Mesa, exact", {"kind": "mesa", "on_top": "adam", "momentum": 0.85}, (1e-4, 3e-4, 1e-3)),
}


def narrowed(size: Size) -> Settings:
    """At small size images are projected to 512 numbers, which makes a pass six times cheaper."""
    return {"project": NARROW} if size.name == "small" else {}


def augmented(size: Size) -> Settings:
    """Images cropped and flipped (F.1.1), but for the smoke size: 4 pixels leave nothing of a digit of 8."""
    return {"augment": size.name != "smoke"}


def at_width(size: Size, value: float) -> float:
    """A temperature or a distance of width 3072 at the width that the size has (see `narrowed`)."""
    return at_narrow(value) if size.name == "small" else float(value)


def at_narrow(value: float) -> float:
    """A temperature or a distance of width 3072 at width 512.

    The projection keeps nearly all of an image, and every query's length is made √width: distances shrink by
    √(512 / 3072), and so must T for T·√width to keep its proportion to squared distances. With that a
    narrow growing network is nearly the same function of the images as the wide one, at the same rates.
    """
    return float(f"{value * (NARROW / WIDTH) ** 0.5:.4g}")


def evaluated(size: Size) -> Settings:
    """Batches, rows of the table and evaluations on the way, for a pass of that size."""
    every = {"full": 4000, "small": 1000}.get(size.name, max(1, size.train // 2))
    return {
        "batch_size": BATCH if size.train >= 1000 else 8,
        "record_every": max(1, size.train // (BATCH * 125)),
        "evaluation": {
            "every_examples": every,
            "examples": min(1000 if size.name == "full" else 500, size.held_out),
        },
    }


def room(examples: int) -> Settings:
    """A memory with room for every example and the initial entries, and none to spare."""
    return {"initial_capacity": min(4096, examples + BATCH), "capacity": examples + BATCH}


def rbf(examples: int, temperature: float = 10, value_rate: Any = 10, blocks: int = 2) -> Settings:
    """The rate belongs to images of 3072 numbers; the digits of the smoke size, with 64, want a tenth."""
    if examples < 1000 and not isinstance(value_rate, dict):
        value_rate = value_rate / 10
    return {
        "kind": "rbf",
        "blocks": blocks,
        "temperature": temperature,
        "value_rate": value_rate,
        "memory": room(examples),
    }


def softmax(
    examples: int,
    temperature: float = 6,
    value_rate: Any = 3,
    weight_rate: Any = 0.003,
    blocks: int = 2,
) -> Settings:
    return {
        "kind": "softmax",
        "blocks": blocks,
        "temperature": temperature,
        "value_rate": value_rate,
        "weight_rate": weight_rate,
        "memory": room(examples),
    }


def falling(first: float, examples: int) -> Settings:
    """A rate that falls to a twentieth over one pass."""
    return {"kind": "cosine", "first": first, "last": 0.05 * first, "steps": max(examples // BATCH, 1)}


def gauge(examples: int, temperature: float = 5) -> Settings:
    """The paper's β = 100 and η = 0.03 are of batch means (batch 16), ours of each example's own gradient."""
    return {
        "kind": "gauge",
        "blocks": 2,
        "temperature": temperature,
        "gauge": 10,
        "value_rate": 100 / BATCH,
        "weight_rate": 0.03 / BATCH,
        "memory": room(examples),
    }


def hybrid(examples: int, threshold: float, temperature: float = 5, blocks: int = 3) -> Settings:
    """Algorithm 4 at the setting of the authors' published run.

    It begins with random entries, as the algorithm's head says. The text below it says keys and values of
    zeros: with them it stayed at 15 % after 4,000 images at width 512 (one block, τ = 45), where random ones
    reach 37 %.
    """
    return {
        "kind": "softmax",
        "blocks": blocks,
        "temperature": temperature,
        "value_rate": 30,
        "weight_rate": 1,
        "train": {"optimiser": {"kind": "adam", "learning_rate": 1e-3}},
        "memory": {**room(examples), "admission": "novelty", "novelty_threshold": threshold},
    }


def mlp(optimiser: Mapping[str, Any], blocks: int, **changes: Any) -> Settings:
    """The parametric network of the paper: blocks of one dense matrix with GELU (F.2, F.9)."""
    return {"kind": "mlp", "blocks": blocks, "matrices": 1, "optimiser": dict(optimiser), **changes}


def rates(*values: float) -> dict[str, Settings]:
    """Candidates for an optimiser's learning rate."""
    return {f"rate-{value:g}": {"learner": {"optimiser": {"learning_rate": value}}} for value in values}
