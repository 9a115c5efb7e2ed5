"""Learner configurations: what is refused, and that every option has its effect."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from lamina.learners import LEARNERS, Batch, Learner, LearnerConfig, Task, build_learner
from lamina.learners.initial import INITIALISERS
from lamina.learners.networks import ACTIVATIONS
from pydantic import TypeAdapter, ValidationError

parse = TypeAdapter(LearnerConfig).validate_python
TASK = Task(outputs=2, classification=True)
SMALLEST: dict[str, dict[str, Any]] = {
    "linear": {"value_rate": 0.1},
    "rbf": {"value_rate": 0.1, "temperature": 1.0},
    "softmax": {"value_rate": 0.1, "temperature": 1.0, "weight_rate": 0.1},
    "mlp": {"blocks": 1},
}


def build(kind: str, **options: Any) -> Learner:
    config = parse({"kind": kind, "blocks": 0} | SMALLEST[kind] | options)
    return build_learner(config, features=3, task=TASK, batch_size=4, seed=0)


@cache
def usual(kind: str) -> np.ndarray:
    return learnt(build(kind))


def learnt(learner: Learner) -> np.ndarray:
    """Outputs before the fifth step."""
    state, draw = learner.init(jax.random.key(0)), np.random.default_rng(0)
    for step in range(5):
        batch = Batch(draw.normal(size=(4, 3)), draw.integers(0, 2, 4), np.arange(4 * step, 4 * step + 4))
        state, result = learner.update(state, batch)
    return np.asarray(result.outputs)


def test_every_learner_is_described_and_buildable() -> None:
    assert LEARNERS.keys() == SMALLEST.keys()
    for kind in LEARNERS:
        assert build(kind).task == TASK


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("rbf", {"value_rate": 0.2}),
        ("rbf", {"temperature": 2.0}),
        ("rbf", {"momentum": 0.5}),
        ("rbf", {"decay": 0.1}),
        ("rbf", {"blocks": 1}),
        ("rbf", {"memory": {"initial_capacity": 4, "capacity": 8}}),
        ("rbf", {"memory": {"admission": "novelty", "novelty_threshold": 1.0}}),
        ("rbf", {"memory": {"prune_epsilon": 0.1, "prune_every": 2}}),
        ("softmax", {"weight_rate": 0.5}),
        ("softmax", {"initial": "zero"}),
        ("softmax", {"initial_entries": 7}),
        ("mlp", {"width": 7}),
        ("mlp", {"activation": "relu"}),
        ("mlp", {"optimiser": "sgd"}),
        ("mlp", {"learning_rate": 0.1}),
    ],
    ids=str,
)
def test_every_option_has_its_effect(kind: str, options: dict[str, Any]) -> None:
    assert not np.allclose(usual(kind), learnt(build(kind, **options)), rtol=1e-4, atol=1e-6)


def test_as_many_initial_entries_as_a_batch_has_examples() -> None:
    state = build("softmax").init(jax.random.key(0))
    assert {int(memory.database.entries) for memory in state.memories.values()} == {4}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kind": "forest"}, "'forest' found using 'kind' does not match any"),
        ({"kind": "rbf", "value_rate": 0.1}, "temperature"),
        ({"kind": "rbf", "value_rate": 0.1, "temperature": 0}, "greater than 0"),
        ({"kind": "rbf", "value_rate": 0.1, "temperature": float("nan")}, "finite number"),
        ({"kind": "rbf", "value_rate": float("inf"), "temperature": 1}, "finite number"),
        ({"kind": "linear", "value_rate": "fast"}, "valid number"),
        ({"kind": "linear", "value_rate": 0.1, "momentum": 1.0}, "less than 1"),
        ({"kind": "linear", "value_rate": 0.1, "temperature": 1.0}, "Unexpected keyword|unexpected"),
        ({"kind": "linear", "value_rate": 0.1, "memory": {"eviction": "oldest"}}, "set capacity too"),
        ({"kind": "mlp", "activation": "tanh"}, "'relu', 'gelu' or 'softmax'"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        parse(options)


def test_listed_choices_are_the_accepted_ones() -> None:
    for initial in INITIALISERS:
        build("softmax", initial=initial)
    for activation in ACTIVATIONS:
        build("mlp", activation=activation)
