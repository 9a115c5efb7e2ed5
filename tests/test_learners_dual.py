"""A dense layer trained by optax and its dual form, a database, are the same function: both directions."""

import doctest
import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, Task, build_learner
from lamina.learners.dense import DenseLayer
from lamina.learners.dual import Recording, collapse, weight_matrix
from lamina.learners.growing_config import LinearConfig, RBFConfig
from lamina.learners.initial import with_initial_entries
from lamina.learners.layers import Recall, rms_norm
from lamina.learners.networks import Network
from lamina.learners.sgd import SGD, EntryWeights
from lamina.memory.coefficients import CoefficientTable, block_coefficients, pad_by_step
from lamina.memory.database import Database, Rows, empty_database, grow, write
from lamina.memory.kernels import Linear
from lamina.memory.retrieval import retrieve
from lamina.memory.sharding import Shards

D, F, B, STEPS = 5, 3, 4, 25
WARM = optax.warmup_cosine_decay_schedule(0.0, 0.3, 6, STEPS - 4)  # begins and ends with steps of length 0
FADING = optax.linear_schedule(0.4, 0.0, STEPS)

# Every rule beside the same descent written with optax's own transformations.
RULES: dict[str, tuple[SGD, optax.GradientTransformation]] = {
    "plain": (SGD(0.1), optax.sgd(0.1)),
    "momentum": (SGD(0.1, momentum=0.9), optax.sgd(0.1, 0.9)),
    "nesterov": (SGD(0.1, momentum=0.9, nesterov=True), optax.sgd(0.1, 0.9, nesterov=True)),
    "schedule": (SGD(WARM), optax.sgd(WARM)),
    "momentum, schedule": (SGD(WARM, momentum=0.8), optax.sgd(WARM, 0.8)),
    "coupled decay": (
        SGD(0.1, decay=0.2, coupled=True),
        optax.chain(optax.add_decayed_weights(0.2), optax.sgd(0.1)),
    ),
    "coupled, all": (
        SGD(WARM, momentum=0.8, decay=FADING, coupled=True),
        optax.chain(optax.add_decayed_weights(FADING), optax.sgd(WARM, 0.8)),
    ),
    "coupled, nesterov": (
        SGD(WARM, momentum=0.8, decay=0.2, coupled=True, nesterov=True),
        optax.chain(optax.add_decayed_weights(0.2), optax.sgd(WARM, 0.8, nesterov=True)),
    ),
    "decoupled, all": (
        SGD(WARM, momentum=0.8, decay=FADING),
        optax.chain(optax.trace(0.8), optax.add_decayed_weights(FADING), optax.scale_by_learning_rate(WARM)),
    ),
    "decoupled, nesterov": (
        SGD(0.1, momentum=0.8, decay=0.2, nesterov=True),
        optax.chain(
            optax.trace(0.8, nesterov=True), optax.add_decayed_weights(0.2), optax.scale_by_learning_rate(0.1)
        ),
    ),
}


def loss(matrix: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """A batch mean that is not quadratic, so that gradients depend on the outputs."""
    return jnp.mean(jnp.sum(jnp.log(jnp.cosh(x @ matrix - y)), axis=1))


def trained(
    transformation: optax.GradientTransformation, seed: int = 0
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
    """W₀, each step's (inputs, output gradients), and the matrix after each step, by optax."""
    draw = np.random.default_rng(seed)
    start = draw.normal(size=(D, F))
    matrix = jnp.asarray(start)
    state, steps, matrices = transformation.init(matrix), [], []
    for _ in range(STEPS):
        x, y = jnp.asarray(draw.normal(size=(B, D))), jnp.asarray(draw.normal(size=(B, F)))
        gradients = np.tanh(x @ matrix - y) / B
        gradient = jax.grad(loss)(matrix, x, y)
        np.testing.assert_allclose(gradient, x.T @ gradients, atol=1e-14)
        updates, state = transformation.update(gradient, state, matrix)
        matrix = optax.apply_updates(matrix, updates)
        steps.append((np.asarray(x), np.asarray(gradients)))
        matrices.append(np.asarray(matrix))
    return start, steps, matrices


@pytest.mark.parametrize("name", RULES)
def test_a_recording_answers_as_the_layer_does_after_every_step(name: str) -> None:
    rule, transformation = RULES[name]
    with jax.enable_x64(True):
        start, steps, matrices = trained(transformation)
        queries = np.random.default_rng(9).normal(size=(6, D))
        recording = Recording.start(jnp.asarray(start), rule, initial_capacity=7)  # grows on the way
        np.testing.assert_allclose(recording.answer(queries), queries @ start, atol=1e-12)
        for (inputs, gradients), matrix in zip(steps, matrices, strict=True):
            recording = recording.record(inputs, gradients)
            np.testing.assert_allclose(recording.answer(queries), queries @ matrix, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(recording.weight_matrix(), matrix, rtol=1e-10, atol=1e-12)
        assert len(recording.database.blocks) > 1
        assert int(recording.database.entries) == D + STEPS * B


@pytest.mark.parametrize("name", RULES)
def test_a_rule_makes_the_optax_transformation_it_describes(name: str) -> None:
    rule, transformation = RULES[name]
    with jax.enable_x64(True):
        _, _, expected = trained(transformation)
        _, _, found = trained(rule.transformation())
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_a_scheduled_momentum_follows_the_recurrence() -> None:
    def momentum(step: int) -> float:
        return 0.9 if step < 10 else 0.5

    rule = SGD(0.1, momentum=momentum, decay=0.05)
    draw = np.random.default_rng(0)
    gradients = draw.normal(size=STEPS)
    weight, velocity = 1.7, 0.0
    for step, gradient in enumerate(gradients):
        velocity = momentum(step) * velocity + gradient
        weight = (1 - 0.1 * 0.05) * weight - 0.1 * velocity
    weights = rule.weights(STEPS)
    np.testing.assert_allclose(weights[0] * 1.7 - weights[1:] @ gradients, weight, rtol=1e-12)
    with pytest.raises(ValueError, match=r"expected a constant momentum .* found a schedule"):
        rule.transformation()


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.0), (0.0, 0.05), (0.8, 0.05)])
def test_constant_rates_give_the_closed_form(momentum: float, decay: float) -> None:
    """Eq. 100 with γ = ηλ."""
    rate, fade = 0.2, 0.2 * decay
    ages = np.arange(STEPS, 0, -1)  # t − j + 1
    ratio = momentum / (1 - fade)
    expected = rate / (1 - fade) * (1 - fade) ** ages * (1 - ratio**ages) / (1 - ratio)
    weights = SGD(rate, momentum=momentum, decay=decay).weights(STEPS)
    np.testing.assert_allclose(weights[1:], expected, rtol=1e-12)
    np.testing.assert_allclose(weights[0], (1 - fade) ** STEPS, rtol=1e-12)


def test_weights_go_on_from_where_they_were() -> None:
    rule = SGD(WARM, momentum=0.9, decay=0.1, coupled=True)
    weights = EntryWeights.start()
    for step in range(1, 6):
        weights = weights.advance(rule)
        assert weights.steps == step
        np.testing.assert_array_equal(weights.weights, rule.weights(step))


def _database(shards: Shards) -> Database:
    """An initial entry and three steps' entries, over two blocks with empty slots."""
    draw = np.random.default_rng(4)
    database = empty_database(8, D, F, weighted=False, dtype=jnp.float64, shards=shards)
    first = jnp.asarray(draw.normal(size=(1, D))), jnp.asarray(draw.normal(size=(1, F)))
    database = grow(with_initial_entries(database, *first, None))
    for step in (1, 2, 3):
        rows = Rows(
            jnp.asarray(draw.normal(size=(B, D))),
            jnp.asarray(draw.normal(size=(B, F))),
            None,
            jnp.arange(B, dtype=jnp.int32),
        )
        slots = jnp.arange(B, dtype=jnp.int32) + 1 + (step - 1) * B
        database = write(database, slots, rows, jnp.int32(step))
    return database


@pytest.mark.parametrize("devices", [1, 4])
def test_a_database_collapses_into_the_matrix_that_answers_as_it_does(devices: int) -> None:
    with jax.enable_x64(True):
        database = _database(Shards.over(devices))
        column = jnp.asarray(pad_by_step(0.5, np.array([2.0, -1.0, 1.0])))
        queries = jnp.asarray(np.random.default_rng(5).normal(size=(6, D)))
        for table in (None, CoefficientTable(column, column)):
            coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
            answer = retrieve(Linear(), database.blocks, coefficients, queries, shards=database.shards)
            matrix = weight_matrix(database, table)
            assert matrix.shape == (D, F)
            np.testing.assert_allclose(queries @ matrix, answer, rtol=1e-10, atol=1e-12)
        keys, values = database.column("keys"), database.column("values")
        factor = np.array([0.5] + [2.0] * B + [-1.0] * B + [1.0] * B)
        expected = (keys[: len(factor)] * factor[:, None]).T @ values[: len(factor)]
        np.testing.assert_allclose(matrix, expected, rtol=1e-10)


def test_an_empty_database_is_a_matrix_of_zeros() -> None:
    database = empty_database(8, D, F, weighted=False)
    np.testing.assert_array_equal(weight_matrix(database), np.zeros((D, F)))


def test_a_recording_names_the_examples_behind_an_output() -> None:
    with jax.enable_x64(True):
        rule, transformation = RULES["decoupled, all"]
        start, steps, matrices = trained(transformation)
        recording = Recording.start(jnp.asarray(start), rule)
        for step, (inputs, gradients) in enumerate(steps):
            recording = recording.record(inputs, gradients, np.arange(B) + step * B)
        query, weights = np.arange(D) - 2.0, rule.weights(STEPS)
        direction = jnp.asarray([1.0, 0, 0])
        found = recording.explain(query, count=1000, direction=direction)
        assert len(found) == D + STEPS * B
        assert sum(c.amount for c in found) == pytest.approx((query @ matrices[-1])[0], rel=1e-10)
        for c in found:
            if c.origin >= 0:
                step, place = divmod(c.origin, B)
                assert c.created == step + 1
                inputs, gradients = steps[step]
                expected = -weights[c.created] * gradients[place, 0] * (inputs[place] @ query)
                assert c.amount == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_docstring_examples() -> None:
    outcome = doctest.testmod(importlib.import_module("lamina.learners.sgd"))
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize(
    ("rates", "complaint"),
    [
        ({"learning_rate": -0.1}, "learning_rate: expected a number from 0 to below inf; found -0.1"),
        ({"learning_rate": float("nan")}, "learning_rate: expected .* found nan"),
        ({"learning_rate": 0.1, "momentum": 1.0}, "momentum: expected a number from 0 to below 1; found 1.0"),
        ({"learning_rate": 0.1, "decay": float("inf")}, "decay: expected .* found inf"),
    ],
)
def test_a_rate_out_of_range_is_refused(rates: dict[str, float], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        SGD(**rates)


# Whole networks


class DenseTwin(Network):
    """A residual network of dense layers that start at zero, shaped like a linear growing one."""

    def __init__(self, blocks: int) -> None:
        dense = partial(DenseLayer, rngs=nnx.Rngs(0), draw=nnx.initializers.zeros)
        self.blocks = nnx.List([dense(f"block{number}", D, D) for number in range(blocks)])
        self.readout = dense("readout", D, F)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        for block in self.blocks:
            x = x + block(rms_norm(x), recall)
        return self.readout(rms_norm(x), recall)


def examples(steps: int) -> list[Batch]:
    draw = np.random.default_rng(6)
    return [
        Batch(draw.normal(size=(B, D)), draw.integers(0, F, B), np.arange(B) + B * step)
        for step in range(steps)
    ]


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.8, 0.0), (0.0, 0.1), (0.8, 0.1)])
def test_a_growing_network_is_its_dense_twin_under_sgd_and_collapses_into_it(
    momentum: float, decay: float
) -> None:
    """Step by step: per-example rate η is rate ηB on the batch mean, and γ is ηB·λ."""
    rate = 0.05
    config = LinearConfig(kind="linear", blocks=1, value_rate=rate, momentum=momentum, decay=decay)
    task = Task(F, classification=True)
    with jax.enable_x64(True):
        growing = build_learner(config, features=D, task=task, batch_size=B, seed=0)
        rule = SGD(rate * B, momentum=momentum, decay=decay / (rate * B))
        dense = Learner(DenseTwin(1), task, rule.transformation())
        memory, weights = growing.init(jax.random.key(0)), dense.init(jax.random.key(0))
        recordings = {
            "block0": Recording.start(jnp.zeros((D, D)), rule),
            "readout": Recording.start(jnp.zeros((D, F)), rule),
        }
        for batch in examples(12):
            memory, grown = growing.update(memory, batch)
            weights, trained = dense.update(weights, batch)
            np.testing.assert_allclose(grown.outputs, trained.outputs, rtol=1e-10, atol=1e-12)
            for name, signals in trained.dense.items():
                recordings[name] = recordings[name].record(*signals, batch.origins)
        query = np.random.default_rng(0).normal(size=(6, D))
        matrices = nnx.to_pure_dict(weights.parameters)
        for name, matrix in (("block0", matrices["blocks"][0]), ("readout", matrices["readout"])):
            expected = query @ matrix["kernel"]
            np.testing.assert_allclose(growing.query(memory, name, query), expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(recordings[name].answer(query), expected, rtol=1e-9, atol=1e-12)

        flat, state = collapse(growing, memory, optax.sgd(0.1))
        assert (flat.layers, state.step) == ({}, 12)
        np.testing.assert_allclose(flat.predict(state, query), growing.predict(memory, query), rtol=1e-10)
        before = flat.predict(state, query)
        state, result = flat.update(state, examples(1)[0])
        assert sorted(result.dense) == ["block0", "readout"]
        assert np.abs(flat.predict(state, query) - before).max() > 1e-3


def test_only_a_linear_network_collapses() -> None:
    config = RBFConfig(kind="rbf", blocks=0, value_rate=0.1, temperature=1)
    learner = build_learner(config, features=D, task=Task(F, True), batch_size=B, seed=0)
    with pytest.raises(ConfigError, match=r"expected layers of the linear kernel .* found RBF in readout"):
        collapse(learner, learner.init(jax.random.key(0)))
