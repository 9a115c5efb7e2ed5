"""Schedules of rates, and what they make of a run's entries."""

from typing import Any

import jax
import numpy as np
import pytest
from lamina.learners import Batch, Learner, State, Task, build_learner
from lamina.learners.config import LearnerConfig
from lamina.learners.optimisers import OptimiserConfig, build_plain
from lamina.learners.schedules import Rate, Schedule, highest, rate_at, traced
from pydantic import TypeAdapter, ValidationError

parse_rate = TypeAdapter(float | Schedule).validate_python
parse_learner = TypeAdapter(LearnerConfig).validate_python

LINEAR = {"kind": "linear", "first": 1.0, "last": 0.2, "steps": 4}
COSINE = {"kind": "cosine", "first": 1.0, "last": 0.5, "steps": 6, "warmup": 2}
EXPONENTIAL = {"kind": "exponential", "first": 1.0, "factor": 0.25, "steps": 2, "floor": 0.1}
STEPS = {"kind": "steps", "values": [0.1, 0.3, 0.2], "boundaries": [2, 5]}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (0.7, [0.7] * 7),
        (LINEAR, [1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2]),
        (COSINE, [0.0, 0.5, 1.0, 0.75 + 0.25 * np.sqrt(0.5), 0.75, 0.75 - 0.25 * np.sqrt(0.5), 0.5]),
        (EXPONENTIAL, [1.0, 0.5, 0.25, 0.125, 0.1, 0.1, 0.1]),
        (STEPS, [0.1, 0.1, 0.3, 0.3, 0.3, 0.2, 0.2]),
    ],
)
def test_rates_by_step(schedule: Any, expected: list[float]) -> None:
    rate: Rate = parse_rate(schedule)
    found = [rate_at(rate, step) for step in range(7)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert highest(rate) >= max(found)
    assert highest(rate) == max(found)
    compiled = traced(rate)
    if callable(compiled):
        rates = jax.vmap(compiled)(np.arange(7))
        np.testing.assert_allclose(rates, expected, rtol=1e-6, atol=1e-7)
    else:
        assert compiled == 0.7


def test_a_scheduled_optimiser_steps_by_the_rate_of_its_own_count() -> None:
    config = TypeAdapter(OptimiserConfig).validate_python({"kind": "sgd", "learning_rate": COSINE})
    optimiser = build_plain(config)
    parameter = jax.numpy.ones(2)
    state = optimiser.init(parameter)
    for step in range(7):
        update, state = optimiser.update(parameter, state, parameter)
        np.testing.assert_allclose(update, -rate_at(parse_rate(COSINE), step) * np.ones(2), rtol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ({**LINEAR, "steps": 0}, "greater than 0"),
        ({**LINEAR, "first": -1}, "greater than or equal to 0"),
        ({**COSINE, "warmup": 6}, "warmup must end before steps do"),
        ({**EXPONENTIAL, "factor": 1.5}, "less than or equal to 1"),
        ({**STEPS, "boundaries": [5, 2]}, "rising boundaries"),
        ({**STEPS, "values": [1]}, "one value more than boundaries"),
        ({"kind": "sawtooth"}, "sawtooth"),
    ],
)
def test_a_wrong_schedule_is_refused(schedule: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        parse_rate(schedule)


def learnt(**options: Any) -> tuple[Learner, State]:
    """Five steps of two examples."""
    config = parse_learner({"blocks": 0, **options})
    learner = build_learner(config, features=3, task=Task(2, classification=True), batch_size=2, seed=0)
    draw, state = np.random.default_rng(1), None
    state = learner.init(jax.random.key(0))
    for step in range(5):
        x, y = draw.normal(size=(2, 3)).astype(np.float32), draw.integers(0, 2, 2)
        state, _ = learner.update(state, Batch(x, y, np.arange(2) + 2 * step))
    return learner, state


def test_values_follow_the_schedule_of_their_rate() -> None:
    """With a rate of 0 at the steps before, a step's gradients are those of the untrained network."""
    schedule = {"kind": "steps", "values": [0.0, 0.5, 2.0], "boundaries": [3, 4]}
    columns = [
        learnt(kind="rbf", temperature=1.0, value_rate=rate)[1].memories["readout"].database.column("values")
        for rate in (schedule, 0.5)
    ]
    np.testing.assert_array_equal(columns[0][:6], np.zeros((6, 2)))
    assert np.abs(columns[0][6:10]).min() > 0
    # The first example of the untrained network has the gradient p − 1 = −½ or ½ in both outputs.
    np.testing.assert_allclose(np.abs(columns[0][6]), 0.25, rtol=1e-6)
    np.testing.assert_allclose(np.abs(columns[1][0]), 0.25, rtol=1e-6)


def test_coefficients_follow_schedules_by_the_recurrences() -> None:
    momentum = {"kind": "linear", "first": 0.8, "last": 0.0, "steps": 4}
    decay = {"kind": "steps", "values": [0.0, 0.1], "boundaries": [2]}
    state = learnt(kind="rbf", temperature=1.0, value_rate=0.1, momentum=momentum, decay=decay)[1]
    velocities, coefficients = [], []
    for mu, gamma in zip([0.8, 0.6, 0.4, 0.2, 0.0], [0, 0, 0.1, 0.1, 0.1], strict=True):
        velocities = [v * mu for v in velocities] + [1.0]
        coefficients = [c * (1 - gamma) + v for c, v in zip([*coefficients, 0.0], velocities, strict=True)]
    clocks = state.memories["readout"].clocks
    assert clocks is not None
    np.testing.assert_allclose(clocks.values.coefficients, coefficients, rtol=1e-14)


def test_momentum_may_be_on_values_only() -> None:
    """Table 16: weights then only decay, as if momentum were 0."""
    options: dict[str, Any] = {"kind": "softmax", "temperature": 1.0, "value_rate": 0.1, "weight_rate": 0.1}
    both, values, none = (
        learnt(**options, **more)[1].memories["readout"].clocks
        for more in (
            {"momentum": 0.9, "decay": 0.01},
            {"momentum": 0.9, "decay": 0.01, "momentum_on": "values"},
            {"decay": 0.01},
        )
    )
    assert both is not None
    assert values is not None
    assert none is not None
    np.testing.assert_array_equal(both.weights.coefficients, both.values.coefficients)
    np.testing.assert_array_equal(values.values.coefficients, both.values.coefficients)
    np.testing.assert_array_equal(values.weights.coefficients, none.weights.coefficients)
    assert not np.array_equal(values.weights.coefficients, both.weights.coefficients)


def test_a_schedule_compiles_no_more_than_a_constant() -> None:
    constant, _ = learnt(kind="rbf", temperature=1.0, value_rate=0.1)
    scheduled, _ = learnt(kind="rbf", temperature=1.0, value_rate=LINEAR)
    assert scheduled.compilations == constant.compilations == 1
