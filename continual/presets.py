"""Presets: runs ready to start, each with the line that `lamina list` shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """A named configuration."""

    line: str  # what it is, in one line
    values: Mapping[str, Any]  # as `parse_config` takes them, without the name


_CIFAR = {
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

PRESETS: dict[str, Preset] = {
    "digits-online": Preset(
        "1,438 handwritten digits of scikit-learn, once, through growing RBF layers; seconds",
        {
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
        },
    ),
    "fashion-mnist-online": Preset(
        "60,000 images of clothes, once, through growing RBF layers; minutes",
        {
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
        },
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
}  # fmt: skip


def preset_values(name: str) -> dict[str, Any]:
    """The configuration of a preset, unchecked.

    Raises:
      ConfigError: no preset of that name.
    """
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"presets: {', '.join(PRESETS)}"
        raise ConfigError(f"unknown preset {name!r} (and no such YAML file); {hint}")
    return {"name": name, **PRESETS[name].values}
