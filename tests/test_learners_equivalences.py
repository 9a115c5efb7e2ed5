"""What the paper proves equal is equal: learners against each other, and against descent written out."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drawn_batches import drawn
from flax import nnx
from lamina.learners import Learner, LearnerConfig, State, Task, build_learner
from lamina.learners.networks import ParametricSoftmaxNetwork
from lamina.learners.parametric_softmax import ParametricSoftmaxLayer
from lamina.learners.rules import GaugeRule, Rates, Signals, WeightedSoftmaxRule
from lamina.learners.schedules import CosineSchedule, LinearSchedule
from lamina.memory.coefficients import block_coefficients
from lamina.memory.database import Rows, empty_database, write
from lamina.memory.kernels import WeightedSoftmax
from lamina.memory.retrieval import retrieve
from pydantic import TypeAdapter

parse = TypeAdapter(LearnerConfig).validate_python
D, B, CLASSES = 4, 3, 3
SOFTMAX = {
    "kind": "softmax",
    "temperature": 0.9,
    "value_rate": 0.3,
    "weight_rate": 0.2,
    "blocks": 0,
    "initial_entries": 6,
    "memory": {"initial_capacity": 64},
}
GAUGE = {**SOFTMAX, "kind": "gauge", "gauge": 0.7}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def learner(**options: Any) -> Learner:
    task = Task(CLASSES, classification=True)
    return build_learner(parse(options), features=D, task=task, batch_size=B, seed=0)


stream = partial(drawn, (B, D), CLASSES, np.float64)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def columns(state: State, names: tuple[str, ...] = ("keys", "values", "weights")) -> list[np.ndarray]:
    database = state.memories["readout"].database
    live = database.column("created") >= 0
    return [database.column(name)[live].copy() for name in names]


def errors(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(jax.nn.softmax(outputs) - jax.nn.one_hot(y, CLASSES))


def test_a_linear_layer_under_schedules_is_a_dense_layer_trained_by_sgd() -> None:
    """With schedules of rate, momentum and decay at once (Eqs. 92 and 93)."""
    rate = CosineSchedule(kind="cosine", first=0.4, last=0.05, steps=12, warmup=3)
    momentum = LinearSchedule(kind="linear", first=0.9, last=0.3, steps=10)
    decay = LinearSchedule(kind="linear", first=0.0, last=0.2, steps=8)
    linear = learner(kind="linear", blocks=0, value_rate=rate, momentum=momentum, decay=decay)
    state = linear.init(jax.random.key(0))
    weights, velocity = np.zeros((CLASSES, D)), np.zeros((CLASSES, D))
    for step, batch in enumerate(stream(15, seed=1)):
        queries = unit(batch.x)
        outputs = queries @ weights.T
        state, result = linear.update(state, batch)
        np.testing.assert_allclose(result.outputs, outputs, rtol=1e-10, atol=1e-12)
        velocity = momentum.at(step) * velocity - rate.at(step) * errors(outputs, batch.y).T @ queries
        weights = (1 - decay.at(step)) * weights + velocity


def test_a_hybrid_that_admits_nothing_is_a_parametric_weighted_softmax() -> None:
    novel = {"admission": "novelty", "novelty_threshold": np.inf}
    train = {"optimiser": {"kind": "adam", "learning_rate": 0.003}}
    hybrid = learner(**{**SOFTMAX, "memory": novel, "train": train})
    ours = hybrid.init(jax.random.key(3))
    keys, values, weights = columns(ours)
    layer = ParametricSoftmaxLayer("readout", D, CLASSES, 6, 0.9, weighted=True, rngs=nnx.Rngs(0))
    layer.keys.kernel = nnx.Param(jnp.asarray(keys.T))
    layer.values.kernel = nnx.Param(jnp.asarray(values))
    layer.weights = nnx.Param(jnp.asarray(weights))
    fixed = Learner(ParametricSoftmaxNetwork([layer]), hybrid.task, optax.adam(0.003))
    theirs = fixed.init(jax.random.key(0))
    for batch in stream(20, seed=2):
        ours, found = hybrid.update(ours, batch)
        theirs, expected = fixed.update(theirs, batch)
        np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-9, atol=1e-11)
    assert int(ours.memories["readout"].database.entries) == 6
    network = fixed.network(theirs)
    assert isinstance(network, ParametricSoftmaxNetwork)
    [trained] = network.layers
    for column, parameter in zip(
        columns(ours),
        (trained.keys.kernel[...].T, trained.values.kernel[...], trained.weights[...]),
        strict=True,
    ):
        np.testing.assert_allclose(column, parameter, rtol=1e-9, atol=1e-11)


def test_a_hybrid_that_admits_everything_and_trains_nothing_is_algorithm_3() -> None:
    idle = {"optimiser": "adam", "keys": 0, "values": 0, "weights": 0}
    hybrid, plain = learner(**SOFTMAX, train=idle), learner(**SOFTMAX)
    ours, theirs = hybrid.init(jax.random.key(4)), plain.init(jax.random.key(4))
    for batch in stream(8, seed=3):
        ours, found = hybrid.update(ours, batch)
        theirs, expected = plain.update(theirs, batch)
        np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-12)
    for one, other in zip(columns(ours), columns(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_algorithm_1_in_the_gauge_of_zero_bias_is_algorithm_3() -> None:
    """α_t = ⟨s, g⟩/‖g‖² makes the bias of Eq. 81 zero; it is positive where ⟨s, g⟩ is."""
    draw = np.random.default_rng(5)
    outputs, gradients = draw.normal(size=(2, 20, CLASSES))
    chosen = np.sum(outputs * gradients, axis=1) > 0
    assert 3 < chosen.sum() < 17
    expected_values, expected_weights = WeightedSoftmaxRule(0.3, 0.2)(
        Signals(jnp.asarray(outputs), jnp.asarray(gradients)), Rates(0.3, 0.2)
    )
    for row in np.flatnonzero(chosen):
        s, g = outputs[row], gradients[row]
        rule = GaugeRule(0.3, 0.2, float(s @ g / (g @ g)), order="square")
        values, weights = rule(Signals(jnp.asarray(s[None]), jnp.asarray(g[None])), Rates(0.3, 0.2))
        np.testing.assert_allclose(values[0], expected_values[row], rtol=1e-12)
        np.testing.assert_allclose(weights[0], expected_weights[row], rtol=1e-12)


def answered(keys: np.ndarray, values: np.ndarray, weights: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """What a database of these entries answers."""
    count = len(keys)
    empty = empty_database(count, D, CLASSES, weighted=True, dtype=jnp.float64)
    rows = Rows(*map(jnp.asarray, (keys, values, weights)), jnp.arange(count, dtype=jnp.int32))
    blocks = write(empty, jnp.arange(count, dtype=jnp.int32), rows, jnp.int32(1)).blocks
    coefficients = tuple(block_coefficients(block, None) for block in blocks)
    return np.asarray(retrieve(WeightedSoftmax(0.9), blocks, coefficients, jnp.asarray(queries)))


def test_shifting_all_values_shifts_the_answer() -> None:
    """Proposition C.3: ṽ + w·ξ under the bias b + ξ is the same function as ṽ under b."""
    draw = np.random.default_rng(6)
    keys, values, queries = (draw.normal(size=s) for s in ((9, D), (9, CLASSES), (5, D)))
    weights, shift = draw.uniform(0.1, 1, 9), draw.normal(size=CLASSES)
    before = answered(keys, values, weights, queries)
    after = answered(keys, values + weights[:, None] * shift, weights, queries)
    np.testing.assert_allclose(after - shift, before, rtol=1e-12, atol=1e-13)
    assert np.abs(after - before).max() > 0.1


@pytest.mark.parametrize("order", ["square", "length"])
def test_an_update_in_a_virtual_gauge_only_appends(order: str) -> None:
    """Theorem C.4: into the gauge, descent there, and back is one row more, and all others as they were."""
    gauge = learner(**GAUGE, order=order)
    state = gauge.init(jax.random.key(7))
    for batch in stream(3, seed=7):
        before = columns(state)
        state, result = gauge.update(state, batch)
        after = columns(state)
        count = len(before[0])
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(other[:count], one)
        s = np.asarray(result.outputs)
        g = errors(s, batch.y)
        for row in range(B):
            square = g[row] @ g[row]
            step = 0.7 if order == "square" else 0.7 / np.sqrt(square)
            bias = (-(s[row] @ g[row]) / square + step) * g[row]  # Eq. 81
            weight = 0.2 * g[row] @ (s[row] + bias)  # Eq. 80
            shifted = before[1] + before[2][:, None] * bias
            appended = np.append(shifted, [-0.3 * g[row]], 0)  # Eq. 83, in the gauge
            weights = np.append(before[2], weight)
            back = appended - weights[:, None] * bias
            np.testing.assert_allclose(back[:count], before[1], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(back[count], after[1][count + row], rtol=1e-6)
            np.testing.assert_allclose(weight, after[2][count + row], rtol=1e-9)
            assert weight > 0
