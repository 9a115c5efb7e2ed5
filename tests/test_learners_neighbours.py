"""Soft nearest neighbours against their definition."""

import jax
import numpy as np
import pytest
from lamina.continual import override, parse_config
from lamina.errors import ConfigError
from lamina.learners import Batch, build_learner
from lamina.learners.losses import Task
from lamina.learners.neighbours import NeighboursConfig
from tiny_runs import TINY


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6)


@pytest.mark.parametrize("classification", [True, False])
def test_the_answer_is_the_weighted_mean_of_the_targets(classification: bool) -> None:
    draw, temperature = np.random.default_rng(0), 0.7
    x = draw.normal(size=(24, 5)).astype(np.float32)
    y = draw.integers(0, 3, 24) if classification else draw.normal(size=(24, 2)).astype(np.float32)
    task = Task(3 if classification else 2, classification)
    config = NeighboursConfig(kind="knn", temperature=temperature)
    learner = build_learner(config, features=5, task=task, batch_size=8, seed=0)
    state = learner.init(jax.random.key(0))
    for start in range(0, 24, 8):
        part = slice(start, start + 8)
        state, _ = learner.update(state, Batch(x[part], y[part], np.arange(start, start + 8)))
    targets = np.eye(3)[y] if classification else y
    np.testing.assert_allclose(
        state.memories["readout"].database.column("values")[1:25], targets, rtol=1e-5, atol=1e-6
    )
    queries = draw.normal(size=(6, 5)).astype(np.float32)
    scores = np.exp(unit(queries) @ unit(x).T / (temperature * np.sqrt(5)))
    expected = scores @ targets / (scores.sum(axis=1, keepdims=True) + 1)  # 1: the initial entry
    np.testing.assert_allclose(learner.predict(state, queries), expected, rtol=1e-4, atol=1e-6)


def test_at_a_low_temperature_the_nearest_one_decides() -> None:
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(40, 6)).astype(np.float32), draw.integers(0, 4, 40)
    config = NeighboursConfig(kind="knn", temperature=0.01)
    learner = build_learner(config, features=6, task=Task(4, True), batch_size=40, seed=0)
    state, _ = learner.update(learner.init(jax.random.key(0)), Batch(x, y, np.arange(40)))
    queries = draw.normal(size=(50, 6)).astype(np.float32)
    nearest = y[np.argmax(unit(queries) @ unit(x).T, axis=1)]
    np.testing.assert_array_equal(learner.predict(state, queries).argmax(axis=1), nearest)


def test_targets_are_not_weighted() -> None:
    values = TINY | {"learner": {"kind": "knn", "temperature": 0.1}, "phases": {"one": {}}}
    replay = "phases.one.replay={kind: reservoir, examples: 2, weight: %s}"
    parse_config(override(values, [replay % 1]))
    with pytest.raises(ConfigError, match="'knn' stores targets"):
        parse_config(override(values, [replay % 0.5]))
