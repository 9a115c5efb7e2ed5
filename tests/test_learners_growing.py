"""Growing networks through the learner triple, against what the theory says they equal."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, Task, build_learner
from lamina.learners.growing_config import LinearConfig, RBFConfig, SoftmaxConfig
from lamina.learners.initial import initial_database
from lamina.learners.layers import GrowingLayer, GrowingSpec
from lamina.learners.networks import ResidualGrowingNetwork
from lamina.learners.rules import KernelRule, WeightedSoftmaxRule
from lamina.memory.database import INITIAL
from lamina.memory.kernels import RBF, Linear, WeightedSoftmax
from lamina.memory.policy import MemoryConfig

D, B = 4, 3  # features, batch
MEMORY = MemoryConfig(initial_capacity=64)
CLASSES = Task(outputs=3, classification=True)


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def unit(x: np.ndarray) -> np.ndarray:
    """RMSNorm, as in front of every layer."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def stream(steps: int, seed: int, targets: int | None = None) -> Iterator[Batch]:
    """Batches of labels among 3 classes, or of `targets` targets (0: one per example, of shape [B])."""
    draw = np.random.default_rng(seed)
    for step in range(steps):
        if targets is None:
            y: Any = draw.integers(0, 3, B)
        else:
            y = draw.normal(size=(B, targets) if targets else B)
        yield Batch(draw.normal(size=(B, D)), y, np.arange(step * B, step * B + B))


def growing(kind: str, *, task: Task = CLASSES, **options: Any) -> Learner:
    make: dict[str, Callable[..., Any]] = {
        "linear": lambda **o: LinearConfig(kind="linear", value_rate=0.1, **o),
        "rbf": lambda **o: RBFConfig(kind="rbf", value_rate=0.4, temperature=1.5, **o),
        "softmax": lambda **o: SoftmaxConfig(
            kind="softmax", value_rate=0.3, weight_rate=0.2, temperature=0.9, **o
        ),
    }
    config = make[kind](**{"blocks": 0, "memory": MEMORY} | options)
    return build_learner(config, features=D, task=task, batch_size=B, seed=0)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


# What a growing layer equals


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.8, 0.1)])
def test_a_linear_layer_is_a_dense_layer_trained_by_sgd(momentum: float, decay: float) -> None:
    learner = growing("linear", momentum=momentum, decay=decay)
    state = learner.init(jax.random.key(0))
    weights, velocity = np.zeros((3, D)), np.zeros((3, D))
    for batch in stream(20, seed=1):
        queries = unit(batch.x)
        outputs = queries @ weights.T
        state, result = learner.update(state, batch)
        np.testing.assert_allclose(result.outputs, outputs, rtol=1e-10, atol=1e-10)
        errors = softmax(outputs) - np.eye(3)[batch.y]
        np.testing.assert_allclose(
            result.losses, -np.log(softmax(outputs))[np.arange(B), batch.y], rtol=1e-10
        )
        velocity = momentum * velocity - 0.1 * errors.T @ queries
        weights = (1 - decay) * weights + velocity
    x = np.random.default_rng(2).normal(size=(5, D))
    np.testing.assert_allclose(learner.predict(state, x), unit(x) @ weights.T, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("targets", [0, 2])
def test_an_rbf_layer_with_squared_loss_is_klms(targets: int) -> None:
    learner = growing("rbf", task=Task(targets or 1, classification=False))
    state = learner.init(jax.random.key(0))
    centres, coefficients = np.empty((0, D)), np.empty((0, targets or 1))
    for batch in stream(12, seed=3, targets=targets):
        queries = unit(batch.x)
        kernel = np.exp(-np.sum((queries[:, None] - centres) ** 2, axis=2) / (2 * 1.5 * np.sqrt(D)))
        errors = batch.y.reshape(B, -1) - kernel @ coefficients
        state, result = learner.update(state, batch)
        np.testing.assert_allclose(result.outputs, kernel @ coefficients, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(result.losses, np.sum(errors**2, axis=1), rtol=1e-10)
        centres, coefficients = np.append(centres, queries, 0), np.append(coefficients, 0.8 * errors, 0)
    database = state.memories["readout"].database
    np.testing.assert_allclose(database.column("keys")[:36], centres, rtol=1e-12)
    np.testing.assert_allclose(database.column("values")[:36], coefficients, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_softmax_layer_is_algorithm_3() -> None:
    learner = growing("softmax", initial_entries=2)
    state = learner.init(jax.random.key(5))
    database = state.memories["readout"].database
    keys, values, weights = (database.column(name)[:2].copy() for name in ("keys", "values", "weights"))
    for batch in stream(6, seed=4):
        queries = unit(batch.x)
        scores = np.exp(queries @ keys.T / (0.9 * np.sqrt(D)))
        outputs = (scores @ values) / (scores @ weights)[:, None]
        state, result = learner.update(state, batch)
        np.testing.assert_allclose(result.outputs, outputs, rtol=1e-10, atol=1e-10)
        errors = softmax(outputs) - np.eye(3)[batch.y]
        keys, values = np.append(keys, queries, 0), np.append(values, -0.3 * errors, 0)
        weights = np.append(weights, np.maximum(0, 0.2 * np.sum(outputs * errors, axis=1)))
    assert (weights[2:] == 0).any()
    assert (weights[2:] > 0).any()
    np.testing.assert_allclose(
        state.memories["readout"].database.column("weights")[:20], weights, rtol=1e-10, atol=1e-14
    )


# The triple's contract


def test_every_example_is_stored_with_its_step_and_origin() -> None:
    learner = growing("rbf", blocks=2)
    state = learner.init(jax.random.key(0))
    for batch in stream(4, seed=7):
        state, result = learner.update(state, batch)
        assert {tuple(change.tolist()) for change in result.changes.values()} == {(B, 0, 0, 0, 0)}
    assert list(state.memories) == ["block0", "block1", "readout"]
    for memory in state.memories.values():
        assert memory.database.column("origin")[: 4 * B].tolist() == list(range(4 * B))
        assert memory.database.column("created")[: 4 * B].tolist() == np.repeat([1, 2, 3, 4], B).tolist()
    assert state.step == 4


def test_predictions_do_not_depend_on_the_budget_of_scores() -> None:
    learner = growing("rbf", blocks=1)
    state = learner.init(jax.random.key(0))
    for batch in stream(6, seed=8):
        state, _ = learner.update(state, batch)
    x = np.random.default_rng(9).normal(size=(2085, D))  # 1024 at a time: twice and a part
    expected = learner.predict(state, x)
    learner.scores_budget_bytes = 1
    learner.drop_programs()
    found = learner.predict(state, x)
    assert found.shape == (2085, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(learner.predict(state, x[:1024]), found[:1024])
    np.testing.assert_allclose(learner.predict(state, x.reshape(2085, 2, 2)), found, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(learner.predict(state, x), found)


def test_nothing_to_predict() -> None:
    learner = growing("rbf")
    empty = learner.predict(learner.init(jax.random.key(0)), np.empty((0, D)))
    assert empty.shape == (0, 3)
    assert empty.dtype == np.float32


def test_outputs_are_as_wide_as_the_declared_classes() -> None:
    learner = growing("rbf", task=Task(outputs=7, classification=True))
    state = learner.init(jax.random.key(0))
    batch = Batch(np.ones((B, D)), np.zeros(B, np.uint8), np.arange(B))  # only one class is ever seen
    state, result = learner.update(state, batch)
    np.testing.assert_array_equal(result.outputs, np.zeros((B, 7)))
    np.testing.assert_allclose(result.losses, np.full(B, np.log(7)), rtol=1e-6)
    assert learner.predict(state, batch.x).argmax(axis=1).tolist() == [0] * B


def test_the_step_is_compiled_once_per_capacity_and_batch_size() -> None:
    learner = growing("rbf", memory=MemoryConfig(initial_capacity=6, capacity=12))
    state = learner.init(jax.random.key(0))
    compilations, capacities = [], []
    for batch in stream(8, seed=11):
        capacities.append(state.memories["readout"].database.capacity)
        state, _ = learner.update(state, batch)
        compilations.append(learner.compilations)
    assert capacities == [6, 6, 6, 12, 12, 12, 12, 12]
    assert compilations == [1, 1, 1, 2, 2, 2, 2, 2]
    learner.update(state, Batch(*(column[:1] for column in batch)))  # the stream's last, partial batch
    assert learner.compilations == 3


def test_an_update_consumes_the_state_but_init_starts_anew() -> None:
    learner = growing("softmax")
    first = learner.init(jax.random.key(3))
    batch = next(stream(1, seed=12))
    _, expected = learner.update(first, batch)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        learner.update(first, batch)
    _, found = learner.update(learner.init(jax.random.key(3)), batch)
    np.testing.assert_array_equal(found.outputs, expected.outputs)
    _, other = learner.update(learner.init(jax.random.key(4)), batch)
    assert not np.array_equal(other.outputs, expected.outputs)


# Bounded memories


def test_novelty_rejects_what_is_near_and_counts_it() -> None:
    policy = MemoryConfig(initial_capacity=64, admission="novelty", novelty_threshold=0.5)
    learner = growing("rbf", memory=policy)
    state = learner.init(jax.random.key(0))
    batch = next(stream(1, seed=13))
    state, result = learner.update(state, batch)
    assert result.changes["readout"].tolist() == [B, 0, 0, 0, 0]
    mixed = batch._replace(x=np.stack([batch.x[0], -batch.x[0], 2 * batch.x[1]]))  # same, far, same direction
    state, result = learner.update(state, mixed)
    assert result.changes["readout"].tolist() == [1, 0, 2, 0, 0]
    assert int(state.memories["readout"].database.entries) == B + 1


def test_pruning_is_counted_and_changes_outputs_by_no_more_than_reported() -> None:
    options = {"momentum": 0.5, "decay": 0.3}
    policy = MemoryConfig(initial_capacity=64, prune_epsilon=0.1, prune_every=4)
    pruning, keeping = growing("rbf", memory=policy, **options), growing("rbf", **options)
    pruned, kept = pruning.init(jax.random.key(0)), keeping.init(jax.random.key(0))
    x = np.random.default_rng(14).normal(size=(16, D))
    removed, differences = 0, []
    for step, batch in enumerate(stream(12, seed=14), 1):
        before = removed
        pruned, result = pruning.update(pruned, batch)
        kept, _ = keeping.update(kept, batch)
        assert result.pruning_bounds.keys() == ({"readout"} if step % 4 == 0 else set())
        removed += int(result.changes["readout"][3])
        if before == 0 < removed:  # later the two learn from different predictions
            difference = np.abs(pruning.predict(pruned, x) - keeping.predict(kept, x)).max()
            differences.append((difference, result.pruning_bounds["readout"]))
    [(difference, bound)] = differences
    assert 0 < difference <= bound
    database = pruned.memories["readout"].database
    assert removed > 0
    assert int(database.entries) == 12 * B - removed
    assert database.counters.tolist() == [12 * B, 0, 0, removed, 0]


def test_the_smallest_give_way_by_their_present_coefficient() -> None:
    """With strong decay the old entries are the small ones, whatever their stored values."""
    policy = MemoryConfig(initial_capacity=6, capacity=6, eviction="smallest")
    learner = growing("rbf", memory=policy, decay=0.999)
    state = learner.init(jax.random.key(0))
    for batch in stream(5, seed=15):
        state, _ = learner.update(state, batch)
    assert sorted(state.memories["readout"].database.column("created").tolist()) == [4] * 3 + [5] * 3


# Initial functions and networks


def spec(**options: Any) -> GrowingSpec:
    base = GrowingSpec(
        D, 3, WeightedSoftmax(1.0), WeightedSoftmaxRule(0.1, 0.1), MEMORY, "unit", 5, momentum=0.0, decay=0.0
    )
    return replace(base, **options)


def test_unit_entries_have_unit_rows_and_weights_that_sum_to_one() -> None:
    database = initial_database(spec(), jax.random.key(0))
    assert int(database.entries) == 5
    assert (database.column("created")[:5] == INITIAL).all()
    assert (database.column("origin")[:5] == -1).all()
    for name in ("keys", "values"):
        rows = database.column(name)[:5]
        np.testing.assert_allclose(np.mean(rows**2, axis=1), 1, rtol=1e-5)
        assert np.linalg.matrix_rank(rows) == rows.shape[1]
    np.testing.assert_allclose(database.column("weights")[:5], 0.2, rtol=1e-6)


def test_centred_entries_are_unit_ones_whose_values_sum_to_zero() -> None:
    unit = initial_database(spec(), jax.random.key(3))
    centred = initial_database(spec(initial="centred"), jax.random.key(3))
    np.testing.assert_array_equal(centred.column("keys")[:5], unit.column("keys")[:5])
    values = unit.column("values")[:5]
    np.testing.assert_allclose(centred.column("values")[:5], values - values.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(centred.column("weights")[:5], 0.2, rtol=1e-6)


def test_zero_entries_answer_zeros() -> None:
    learner = growing("softmax", initial="zero", blocks=1)
    x = np.random.default_rng(16).normal(size=(4, D))
    np.testing.assert_array_equal(learner.predict(learner.init(jax.random.key(0)), x), np.zeros((4, 3)))


def test_initial_entries_that_exceed_the_cap_are_refused() -> None:
    too_small = spec(memory=MemoryConfig(initial_capacity=2, capacity=4))
    with pytest.raises(ConfigError, match=r"room for the 5 initial entries; found 4: raise it"):
        initial_database(too_small, jax.random.key(0))


def test_initial_entries_may_exceed_the_first_block() -> None:
    assert initial_database(spec(memory=MemoryConfig(initial_capacity=2)), jax.random.key(0)).capacity == 5


def test_layers_keep_their_order_beyond_ten() -> None:
    learner = growing("rbf", blocks=12)
    assert list(learner.layers) == [f"block{number}" for number in range(12)] + ["readout"]


def test_two_layers_of_one_name_are_refused() -> None:
    plain = spec(kernel=RBF(1.0), rule=KernelRule(0.1), initial_entries=0)
    network = ResidualGrowingNetwork([GrowingLayer("same", plain)], GrowingLayer("same", plain))
    with pytest.raises(ConfigError, match="found two named 'same'"):
        Learner(network, CLASSES)


def test_a_network_without_blocks_is_its_readout() -> None:
    plain = spec(kernel=Linear(), rule=KernelRule(0.1), initial_entries=0)
    learner = Learner(ResidualGrowingNetwork([], GrowingLayer("readout", plain)), CLASSES)
    state = learner.init(jax.random.key(0))
    for batch in stream(2, seed=17):
        state, result = learner.update(state, batch)
    assert bool(jnp.any(result.outputs != 0))
