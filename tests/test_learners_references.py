"""Nearest neighbours and kernel ridge regression against the formulas of F.10, on streams."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from lamina.errors import ConfigError
from lamina.learners import Batch, Task
from lamina.learners.references import KernelRidgeRegression, NearestNeighbours

D, B, C = 4, 5, 3
CLASSES = Task(C, classification=True)
VALUES = Task(2, classification=False)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def stream(steps: int, task: Task = CLASSES) -> list[Batch]:
    draw = np.random.default_rng(1)
    return [
        Batch(
            draw.normal(size=(B, 2, D // 2)),
            draw.integers(0, C, B) if task.classification else draw.normal(size=(B, 2)),
            np.arange(B) + B * step,
        )
        for step in range(steps)
    ]


def seen(batches: list[Batch], task: Task = CLASSES) -> tuple[np.ndarray, np.ndarray]:
    x = np.concatenate([batch.x.reshape(B, D) for batch in batches])
    y = np.concatenate([batch.y for batch in batches])
    return x, np.eye(C)[y] if task.classification else y


def test_all_predict_before_they_learn_and_start_from_nothing() -> None:
    for learner in (NearestNeighbours(CLASSES), KernelRidgeRegression(CLASSES, refit_every=1)):
        state: Any = learner.init()
        for step, batch in enumerate(stream(4)):
            before = learner.predict(state, batch.x)
            state, result = learner.update(state, batch)
            np.testing.assert_allclose(result.outputs, before, rtol=1e-12)
            assert before.any() == (step > 0)
            errors = ((before - np.eye(C)[batch.y]) ** 2).sum(axis=1)
            np.testing.assert_allclose(result.losses, errors, rtol=1e-12)


@pytest.mark.parametrize("task", [CLASSES, VALUES], ids=["classes", "values"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("similarity", ["euclidean", "dot"])
def test_neighbours_vote_as_in_the_formula(similarity: Any, weighted: bool, task: Task) -> None:
    learner = NearestNeighbours(task, neighbours=7, similarity=similarity, weighted=weighted)
    batches = stream(80, task)  # more than the first table holds
    state = learner.init()
    for batch in batches:
        state, _ = learner.update(state, batch)
    x, y = seen(batches, task)
    queries = np.random.default_rng(5).normal(size=(6, D))
    for query, answer in zip(queries, learner.predict(state, queries), strict=True):
        distances = np.linalg.norm(x - query, axis=1)
        scores = -(distances**2) if similarity == "euclidean" else x @ query
        chosen = np.argsort(-scores)[:7]
        weights = np.ones(7)
        if weighted and similarity == "euclidean":
            weights = 1 / (distances[chosen] + 1e-5)
        elif weighted:
            weights = np.exp(scores[chosen]) / np.exp(scores[chosen]).sum()
        np.testing.assert_allclose(answer, weights @ y[chosen] / weights.sum(), rtol=1e-8)


def test_fewer_examples_than_neighbours_all_vote() -> None:
    learner = NearestNeighbours(CLASSES, neighbours=50)
    [batch] = stream(1)
    state, _ = learner.update(learner.init(), batch)
    expected = np.tile(np.eye(C)[batch.y].mean(axis=0), (2, 1))
    np.testing.assert_allclose(learner.predict(state, np.zeros((2, D))), expected)


def test_a_known_example_is_its_own_nearest_neighbour() -> None:
    learner = NearestNeighbours(CLASSES, neighbours=1)
    batches, state = stream(10), learner.init()
    for batch in batches:
        state, _ = learner.update(state, batch)
    for batch in batches:
        np.testing.assert_array_equal(learner.predict(state, batch.x).argmax(axis=1), batch.y)


@pytest.mark.parametrize("task", [CLASSES, VALUES, Task(1, classification=False)], ids=["classes", "2", "1"])
def test_ridge_regression_is_the_closed_form(task: Task) -> None:
    learner = KernelRidgeRegression(task, bandwidth=2.0, regularisation=0.3, refit_every=3)
    batches, state = stream(8, task), learner.init()
    if task.outputs == 1:
        batches = [batch._replace(y=batch.y[:, 0]) for batch in batches]
    for batch in batches:
        state, _ = learner.update(state, batch)
    x, y = seen(batches, task)
    squares = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    gamma = 2.0 / np.median(squares[np.triu_indices(len(x), 1)])
    alpha = np.linalg.solve(np.exp(-gamma * squares) + 0.3 * np.eye(len(x)), y.reshape(len(x), -1))
    queries = np.random.default_rng(5).normal(size=(6, D))
    kernel = np.exp(-gamma * ((queries[:, None] - x[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(learner.predict(state, queries), kernel @ alpha, rtol=1e-8)


def test_a_ridge_below_rounding_is_named() -> None:
    learner = KernelRidgeRegression(CLASSES, regularisation=1e-30)
    alike = Batch(np.ones((B, D)), np.zeros(B, int), np.arange(B))
    with pytest.raises(ConfigError, match="regularisation: expected a number large enough for 5 examples"):
        learner.update(learner.init(), alike)


def test_updates_predict_with_the_last_refit() -> None:
    learner = KernelRidgeRegression(CLASSES, refit_every=3)
    batches, state = stream(7), learner.init()
    expected = [np.zeros((B, C)) for _ in batches]
    for step, batch in enumerate(batches, 1):
        state, result = learner.update(state, batch)
        np.testing.assert_allclose(result.outputs, expected[step - 1], rtol=1e-10)
        if step == 1 or step % 3 == 0:
            expected = [learner.predict(state, batch.x) for batch in batches]


def test_a_single_example_is_fitted() -> None:
    learner = KernelRidgeRegression(CLASSES)
    batch = Batch(np.ones((1, D)), np.array([2]), np.arange(1))
    state, _ = learner.update(learner.init(), batch)
    np.testing.assert_allclose(learner.predict(state, np.ones((1, D))), [[0, 0, 1 / 1.1]])


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: NearestNeighbours(CLASSES, neighbours=0), "neighbours: expected 1 or more; found 0"),
        (lambda: KernelRidgeRegression(CLASSES, bandwidth=0), "bandwidth: expected a number above 0"),
        (
            lambda: KernelRidgeRegression(CLASSES, regularisation=-1),
            "regularisation: expected",
        ),
        (lambda: KernelRidgeRegression(CLASSES, refit_every=0), "refit_every: expected a number above 0"),
    ],
)
def test_a_setting_out_of_range_is_refused(make: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make()
