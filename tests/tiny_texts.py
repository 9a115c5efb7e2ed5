"""Shared by the tests of decoders: tiny texts of random words, and the learners of tiny decoders."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from lamina.learners import Batch, Learner, Task, build_learner
from lamina.learners.decoder_config import DecoderConfig
from pydantic import TypeAdapter

WORDS, TOKENS, TEXTS = 11, 12, 3  # vocabulary, T, B
TASK = Task(WORDS, classification=True, attributes=("town", "trade"))
TINY: dict[str, Any] = {
    "kind": "decoder",
    "width": 8,
    "layers": 1,
    "heads": 2,
    "geglu": {"width": 6},
    "cos_bochner": {"features": 10, "temperature": 2.0},
    "rbf": {"temperature": 2.0, "value_rate": 0.5, "memory": {"initial_capacity": 128}},
    "optimiser": {"kind": "sgd", "learning_rate": 0.05},
}


def config_of(**changes: Any) -> DecoderConfig:
    """The configuration of a tiny decoder; options of kinds are merged."""
    values = dict(TINY)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(values.get(name), dict) and "kind" not in value
        values[name] = {**values[name], **value} if both else value
    return TypeAdapter(DecoderConfig).validate_python(values)


def decoder(**changes: Any) -> Learner:
    """The learner of a tiny decoder."""
    return build_learner(config_of(**changes), features=2 * TOKENS, task=TASK, batch_size=TEXTS, seed=3)


def texts(
    draw: np.random.Generator, count: int = TEXTS, tokens: int = TOKENS
) -> tuple[np.ndarray, np.ndarray]:
    """x and y of sequences with two packed texts each and padding behind; values of one or two words."""
    x = np.zeros((count, tokens, 2), np.int32)
    y = np.full((count, tokens, 2), -1, np.int32)
    for row in range(count):
        first = int(draw.integers(4, tokens - 4))
        end = int(draw.integers(first + 3, tokens + 1))
        x[row, :end, 0] = draw.integers(1, WORDS, end)
        x[row, :first, 1], x[row, first:end, 1] = 1, 2
        for start, stop in ((0, first), (first, end)):
            y[row, start : stop - 1, 0] = x[row, start + 1 : stop, 0]
        y[row, 1, 1] = 0
        y[row, first : first + 2, 1] = 1
    return x, y


def batches(count: int, seed: int = 0, **sizes: int) -> Iterator[Batch]:
    """Batches of such texts."""
    draw = np.random.default_rng(seed)
    for number in range(count):
        x, y = texts(draw, **sizes)
        yield Batch(x, y, np.arange(len(x)) + number * len(x))
