"""Random batches of labelled examples, and a learner that goes through some."""

from typing import Any

import jax
import numpy as np
from lamina.learners import Batch, Learner, State


def drawn(shape: tuple[int, ...], classes: int, dtype: Any, steps: int, seed: int = 0) -> list[Batch]:
    """Batches of examples, `shape` [B, …], each from a standard normal distribution."""
    draw, count = np.random.default_rng(seed), shape[0]
    return [
        Batch(
            draw.normal(size=shape).astype(dtype),
            draw.integers(0, classes, count),
            np.arange(step * count, step * count + count),
        )
        for step in range(steps)
    ]


def learnt(learner: Learner, batches: list[Batch]) -> tuple[State, list[np.ndarray]]:
    """The state after the batches, and the outputs before learning from each."""
    state, outputs = learner.init(jax.random.key(0)), []
    for batch in batches:
        state, result = learner.update(state, batch)
        outputs.append(np.asarray(result.outputs))
    return state, outputs
