"""Presets: runs ready to start, each with the line that `lamina list` shows."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError
from .biography_presets import LARGE, SMALL, SMALL_RBF, SMOKE


@dataclass(frozen=True)
class Preset:
    """A named configuration."""

    line: str  # what it is, in one line
    values: Mapping[str, Any]  # as `parse_config` takes them, without the name


_CIFAR: dict[str, Any] = {
    "stream": {
        "source": "tfds:cifar10",
        "standardise": {"scale": 255, "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]},
        "flatten": True,
    },
    "batch_size": 16,
    "evaluation": {"every_examples": 10_000, "examples": 1_000},
}

# Room for every example and a batch of initial entries, so that the last block is no larger than it need be.
_CIFAR_MEMORY = {"initial_capacity": 4096, "capacity": 50_016}

_DIGITS: dict[str, Any] = {
    "stream": {
        "source": "digits",
        "standardise": {"mean": 4.88, "std": 6.02},
        "flatten": True,
        "segment_length": 256,
    },
    "learner": {"kind": "rbf", "blocks": 1, "temperature": 5, "value_rate": 1},
    "batch_size": 8,
    "record_every": 5,
    "evaluation": {"every_examples": 240},
}

_FASHION: dict[str, Any] = {
    "stream": {
        "source": "fashion_mnist",
        "standardise": {"scale": 255, "mean": 0.2860, "std": 0.3530},
        "flatten": True,
    },
    "learner": {
        "kind": "rbf",
        "blocks": 1,
        "temperature": 5,
        "value_rate": 1,
        "memory": {"initial_capacity": 4096, "capacity": 60_000},
    },
    "batch_size": 16,
    "evaluation": {"every_examples": 10_000, "examples": 1_000},
}

# Scored as it passes by, watched for changes, with a bounded memory.
_TABULAR: dict[str, Any] = {
    "stream": {"standardise": "running", "shuffle": False},
    "learner": {
        "kind": "rbf",
        "blocks": 0,
        "temperature": 0.5,
        "value_rate": 0.5,
        "memory": {"initial_capacity": 1024, "capacity": 4096, "admission": "novelty",
                   "novelty_threshold": 0.1, "eviction": "reservoir"},
    },
    "batch_size": 8,
    "evaluation": {"split": None},
    "drift_detection": {"kind": "adwin"},
}  # fmt: skip

_SPLIT = {"kind": "split_classes", "class_order": list(range(10)), "classes_per_phase": 2}

PRESETS: dict[str, Preset] = {
    "digits-online": Preset(
        "1,438 handwritten digits of scikit-learn, once, through growing RBF layers; seconds", _DIGITS
    ),
    "fashion-mnist-online": Preset(
        "60,000 images of clothes, once, through growing RBF layers; minutes", _FASHION
    ),
    "digits-split": Preset(
        "digits in five phases of two classes each; seconds", {**_DIGITS, "scenario": _SPLIT}
    ),
    "digits-permuted": Preset(
        "digits, then with their pixels in four other orders; seconds",
        {**_DIGITS, "scenario": {"kind": "permuted", "phases": 5}},
    ),
    "digits-rotated": Preset(
        "digits, then turned by 30, 60 and 90 degrees; seconds",
        {**_DIGITS, "scenario": {"kind": "rotated", "phases": 4, "degrees": 30}},
    ),
    "digits-drift": Preset(
        "digits that from the 500th to the 1,000th are more and more often turned by 90 degrees; seconds",
        {
            **_DIGITS,
            "stream": {**_DIGITS["stream"], "drift": {"start": 500, "length": 500, "rotate": 90}},
            "evaluation": {"every_examples": 240, "tasks": {"turned": {"split": "test", "rotate": 90}}},
        },
    ),
    "digits-noisy": Preset(
        "digits of which a fifth have a wrong label, held-out ones aside; seconds",
        {**_DIGITS, "stream": {**_DIGITS["stream"], "label_noise": 0.2}},
    ),
    "river-segments": Preset(
        "2,310 rows about parts of images, as river streams them (extra `river`); seconds",
        {**_TABULAR, "stream": {**_TABULAR["stream"], "source": "river:ImageSegments"}, "record_every": 5},
    ),
    "river-shuttle": Preset(
        "49,097 rows of a space shuttle's sensors, anomalies among them (extra `river`); a minute or two",
        {**_TABULAR, "stream": {**_TABULAR["stream"], "source": "river:Shuttle"}},
    ),
    "fashion-mnist-split": Preset(
        "Fashion-MNIST in five phases of two classes each; minutes", {**_FASHION, "scenario": _SPLIT}
    ),
    "fashion-mnist-permuted": Preset(
        "10,000 images of Fashion-MNIST in each of five orders of their pixels; minutes",
        {
            **_FASHION,
            "stream": {**_FASHION["stream"], "limit": 10_000},
            "scenario": {"kind": "permuted", "phases": 5},
        },
    ),
    "cifar10-split": Preset(
        "CIFAR-10 in five phases of two classes each; a quarter of an hour",
        {
            **_CIFAR,
            "learner": {"kind": "rbf", "blocks": 2, "temperature": 10, "value_rate": 10,
                        "memory": _CIFAR_MEMORY},
            "scenario": _SPLIT,
        },
    ),
    "biography-smoke": Preset(
        "120 steps on texts about 32 people, then 30 on others: checks that all runs; seconds", SMOKE
    ),
    "biography-small": Preset(
        "a decoder learns facts about 1,024 people, then others; minutes; set learner.ffn", SMALL
    ),
    "biography-small-rbf": Preset(
        "the same with a growing RBF layer in the second place, a quarter of the steps; minutes", SMALL_RBF
    ),
    "biography-16k": Preset(
        "16,384 people, a decoder of width 512, batches of 128 texts of 512 words; for accelerators", LARGE
    ),
    "cifar10-online-rbf": Preset(
        "CIFAR-10, one pass without augmentation, 2 growing RBF blocks and readout (paper, Fig. 2 right)",
        {
            **_CIFAR,
            "learner": {"kind": "rbf", "blocks": 2, "temperature": 10, "value_rate": 10,
                        "memory": _CIFAR_MEMORY},
        },
    ),
    "cifar10-online-softmax": Preset(
        "CIFAR-10, one pass without augmentation, 2 growing softmax blocks and readout (Fig. 2 right)",
        {
            **_CIFAR,
            "learner": {"kind": "softmax", "blocks": 2, "temperature": 6, "value_rate": 3,
                        "weight_rate": 0.003, "memory": _CIFAR_MEMORY},
        },
    ),
    "cifar10-online-hybrid": Preset(
        "CIFAR-10, one pass, 3 hybrid softmax blocks and readout: stores what is novel, trains it (Alg. 4)",
        {
            **_CIFAR,
            "learner": {"kind": "softmax", "blocks": 3, "temperature": 5, "value_rate": 30, "weight_rate": 1,
                        "train": {"optimiser": {"kind": "adam", "learning_rate": 1e-3}},
                        "memory": {**_CIFAR_MEMORY, "admission": "novelty", "novelty_threshold": 50}},
        },
    ),
}  # fmt: skip


def preset_values(name: str) -> dict[str, Any]:
    """The configuration of a preset, unchecked; the caller's own, to be changed.

    Raises:
      ConfigError: no preset of that name.
    """
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"presets: {', '.join(PRESETS)}"
        raise ConfigError(f"unknown preset {name!r} (and no such YAML file); {hint}")
    return {"name": name, **deepcopy(dict(PRESETS[name].values))}
