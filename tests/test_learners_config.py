"""Learner configurations: what is refused, and that every option reaches the learner."""

from typing import Any

import jax
import pytest
from lamina.learners import LEARNERS, Learner, Task, build_learner
from lamina.learners.initial import INITIALISERS
from lamina.learners.networks import ACTIVATIONS
from lamina.learners.rules import GaugeRule, KernelRule, NaiveSoftmaxRule, WeightedSoftmaxRule
from lamina.memory.kernels import (
    RBF,
    Cosine,
    Laplace,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    RationalQuadratic,
    WeightedSoftmax,
)
from lamina.memory.policy import MemoryConfig
from pydantic import ValidationError
from smallest_learners import SMALLEST, parse

TASK = Task(outputs=2, classification=True)


def build(kind: str, **options: Any) -> Learner:
    config = parse({"kind": kind} | SMALLEST[kind] | options)
    return build_learner(config, features=3, task=TASK, batch_size=4, seed=0)


def test_every_learner_is_described_and_buildable() -> None:
    assert LEARNERS.keys() == {*SMALLEST, "decoder"}  # decoders read texts: see test_learners_decoder
    for kind in SMALLEST:
        assert build(kind).task == TASK


@pytest.mark.parametrize(
    ("kind", "options", "attribute", "expected"),
    [
        ("linear", {}, "kernel", Linear()),
        ("linear", {"value_rate": 0.2}, "rule", KernelRule(0.2)),
        ("rbf", {"temperature": 2}, "kernel", RBF(2.0)),
        ("rbf", {"value_rate": 0.2}, "rule", KernelRule(0.2)),
        ("rbf", {"momentum": 0.5}, "momentum", 0.5),
        ("rbf", {"decay": 0.1}, "decay", 0.1),
        ("rbf", {"memory": {"capacity": 8}}, "memory", MemoryConfig(capacity=8)),
        ("rbf", {}, "initial_entries", 0),
        ("laplace", {"temperature": 2}, "kernel", Laplace(2.0)),
        ("matern32", {"temperature": 2}, "kernel", Matern32(2.0)),
        ("matern52", {"temperature": 2}, "kernel", Matern52(2.0)),
        ("rational_quadratic", {"shape": 3}, "kernel", RationalQuadratic(1.0, 3.0)),
        ("polynomial", {"degree": 3, "constant": 0}, "kernel", Polynomial(1.0, 3, 0.0)),
        ("cosine", {}, "kernel", Cosine()),
        ("softmax", {"temperature": 3}, "kernel", WeightedSoftmax(3.0)),
        ("softmax", {"value_rate": 0.3, "weight_rate": 0.5}, "rule", WeightedSoftmaxRule(0.3, 0.5)),
        ("softmax", {"clip": 2.0}, "rule", WeightedSoftmaxRule(0.1, 0.1, clip=2.0)),
        ("softmax", {"momentum_on": "values"}, "momentum_on", "values"),
        ("softmax", {"negative_weights": "kept"}, "rule", WeightedSoftmaxRule(0.1, 0.1, negative=True)),
        ("softmax", {"negative_weights": "kept", "least_share": 0.2}, "kernel", WeightedSoftmax(1.0, 0.2)),
        ("naive_softmax", {"value_rate": 0.2}, "rule", NaiveSoftmaxRule(0.2)),
        ("naive_softmax", {}, "initial_weight", 1.0),
        ("gauge", {"gauge": 3, "order": "square"}, "rule", GaugeRule(0.1, 0.1, 3.0, "square")),
        ("gauge", {"temperature": 3}, "kernel", WeightedSoftmax(3.0)),
        ("gauge", {}, "initial_entries", 4),
        ("softmax", {"initial": "zero"}, "initial", "zero"),
        ("softmax", {"initial_entries": 7}, "initial_entries", 7),
        ("softmax", {}, "initial_entries", 4),
    ],
)
def test_every_option_reaches_every_layer(
    kind: str, options: dict[str, Any], attribute: str, expected: object
) -> None:
    learner = build(kind, blocks=2, **options)
    assert list(learner.layers) == ["block0", "block1", "readout"]
    for name, layer in learner.layers.items():
        assert getattr(layer.spec, attribute) == expected
        assert (layer.spec.key_features, layer.spec.value_features) == (3, 2 if name == "readout" else 3)


@pytest.mark.parametrize(("options", "hidden"), [({}, 3), ({"width": 7}, 7)])
def test_the_baseline_is_as_wide_as_asked(options: dict[str, Any], hidden: int) -> None:
    shapes = [leaf.shape for leaf in jax.tree.leaves(build("mlp", blocks=2, **options).init(None).parameters)]
    assert sorted(shapes) == sorted([(3,)] * 3 + [(3, hidden)] * 2 + [(hidden, 3)] * 2 + [(3, 2)])


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
        (
            {
                "kind": "linear",
                "value_rate": 0.1,
                "decay": {"kind": "linear", "first": 0, "last": 1, "steps": 5},
            },
            "decay must stay below 1; found a schedule that reaches 1",
        ),
        ({"kind": "gauge", "value_rate": 0.1, "temperature": 1, "weight_rate": 0.1}, "gauge"),
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
