"""Hybrid layers: stored entries that are trained, next to those that are appended."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drawn_batches import drawn, learnt
from lamina.continual.checkpoint import load, save
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, State, Task, build_learner
from lamina.learners.config import LearnerConfig
from lamina.learners.training import EntryTraining, forgotten
from lamina.memory import empty_database
from lamina.memory.database import grow
from lamina.memory.sharding import ONE_DEVICE, Shards
from pydantic import TypeAdapter

parse = TypeAdapter(LearnerConfig).validate_python
D, B, CLASSES = 5, 4, 3
NOVEL = {"initial_capacity": 8, "admission": "novelty", "novelty_threshold": 1.5}
CAPPED = {**NOVEL, "novelty_threshold": 0.5, "capacity": 10, "eviction": "smallest"}
KINDS: dict[str, dict[str, Any]] = {
    "softmax": {
        "kind": "softmax",
        "temperature": 1.0,
        "value_rate": 0.5,
        "weight_rate": 0.3,
        "initial": "zero",
    },
    "rbf": {"kind": "rbf", "temperature": 1.0, "value_rate": 0.5},
    "gauge": {"kind": "gauge", "temperature": 1.0, "value_rate": 0.5, "weight_rate": 0.1, "gauge": 1.0},
}


def hybrid(kind: str = "softmax", *, shards: Shards = ONE_DEVICE, **options: Any) -> Learner:
    train = {"optimiser": {"kind": "adam", "learning_rate": 0.01}}
    config = parse({**KINDS[kind], "blocks": 1, "memory": NOVEL, "train": train, **options})
    task = Task(CLASSES, classification=True)
    return build_learner(config, features=D, task=task, batch_size=B, seed=0, shards=shards)


stream = partial(drawn, (B, D), CLASSES, np.float32)


def columns(state: State, layer: str = "readout") -> dict[str, np.ndarray]:
    database = state.memories[layer].database
    names = ["keys", "values", "created", "key_norms", "value_norms"] + ["weights"] * database.weighted
    live = database.column("created") >= 0
    return {name: database.column(name)[live] for name in names}


def test_a_step_of_sgd_is_the_gradient_of_the_mean_loss() -> None:
    """Against plain automatic differentiation of the kernel's sum."""
    sgd = {"optimiser": {"kind": "sgd", "learning_rate": 0.2}, "keys": 0.5, "values": 2.0}
    learner = hybrid("rbf", blocks=0, train=sgd)
    first, second = stream(2, seed=3)
    state, _ = learnt(learner, [first])
    before = columns(state)
    x = second.x / np.sqrt(np.mean(second.x**2, axis=1, keepdims=True) + 1e-6)

    def loss(keys: jax.Array, values: jax.Array) -> jax.Array:
        square = jnp.sum((keys[:, None] - x[None]) ** 2, axis=2)
        outputs = jnp.exp(-square / (2 * np.sqrt(D))).T @ values
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, jnp.asarray(second.y)))

    slopes = jax.grad(loss, argnums=(0, 1))(jnp.asarray(before["keys"]), jnp.asarray(before["values"]))
    state, _ = learner.update(state, second)
    after, count = columns(state), len(before["keys"])
    np.testing.assert_allclose(after["keys"][:count], before["keys"] - 0.1 * slopes[0], rtol=1e-5, atol=1e-6)
    values = before["values"] - 0.4 * slopes[1]
    np.testing.assert_allclose(after["values"][:count], values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after["key_norms"], np.sum(after["keys"] ** 2, axis=1), rtol=1e-5)
    np.testing.assert_allclose(after["value_norms"], np.linalg.norm(after["values"], axis=1), rtol=1e-5)


@pytest.mark.parametrize("column", ["keys", "values", "weights"])
def test_a_column_of_factor_zero_stays(column: str) -> None:
    batches = stream(4, seed=5)
    learner = hybrid(train={"optimiser": {"kind": "adam", "learning_rate": 0.05}, column: 0.0})
    state, _ = learnt(learner, batches[:2])
    before = columns(state)
    state, _ = learner.update(state, batches[2])
    after, count = columns(state), len(before["keys"])
    for name in ("keys", "values", "weights"):
        assert np.array_equal(after[name][:count], before[name]) == (name == column)


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_more_than_growing_alone(kind: str) -> None:
    x = np.random.default_rng(6).normal(size=(B, D)).astype(np.float32)
    batch = Batch(x, np.array([0, 1, 2, 0]), np.arange(B))
    losses = []
    train = {"optimiser": {"kind": "adam", "learning_rate": 0.01}, "weights": 0.0}
    for learner in (hybrid(kind, train=train), hybrid(kind, train=None)):
        state = learner.init(jax.random.key(0))
        for _ in range(25):  # seen again and again, nothing is novel after the first time
            state, result = learner.update(state, batch)
        losses.append(float(np.mean(result.losses)))
    assert losses[0] < 0.9 * losses[1]


@pytest.mark.parametrize("optimiser", ["sgd", "rmsprop", "adam", "adamw"])
@pytest.mark.parametrize("memory", [NOVEL, CAPPED])
def test_saved_at_every_step_equals_never_stopping(
    tmp_path: Path, optimiser: str, memory: dict[str, Any]
) -> None:
    learner, batches = hybrid(train={"optimiser": optimiser}, memory=memory), stream(6, seed=7)
    whole, expected = learnt(learner, batches)
    state, outputs = learner.init(jax.random.key(0)), []
    for number, batch in enumerate(batches):
        state, result = learner.update(state, batch)
        outputs.append(np.asarray(result.outputs))
        save(state, tmp_path / str(number))
        state = load(tmp_path / str(number), learner)
    np.testing.assert_array_equal(outputs, expected)
    for name, column in columns(whole).items():
        np.testing.assert_array_equal(columns(state)[name], column)


def test_new_rows_begin_with_moments_of_zero_and_the_common_count() -> None:
    """Also in slots that others had, and in blocks that were added since."""
    adam = optax.adam(0.1)
    training = EntryTraining(adam, adam, adam)
    database = empty_database(4, 2, 3, weighted=False)
    states = training.start(database)
    ones = jax.tree.map(lambda leaf: jnp.ones_like(leaf) * 7, states)
    states = training.grown(ones, grow(database))
    assert [int(state["keys"][0].count) for state in states] == [7, 7]
    assert np.asarray(states[1]["keys"][0].mu).max() == 0
    blocks = grow(database).blocks
    created = jnp.asarray([1, 2, -1, 2], jnp.int32)
    first = blocks[0].__class__(**{**vars(blocks[0]), "created": created})
    cleared = forgotten(states, (first, blocks[1]), jnp.int32(2))
    assert np.asarray(cleared[0]["keys"][0].mu)[:, 0].tolist() == [7, 0, 7, 0]
    assert int(cleared[0]["keys"][0].count) == 7


TRIGGERS: dict[str, dict[str, Any]] = {
    "distance": {},
    "error-weighted distance": {"error_weighted": True, "novelty_threshold": 1.0},
    "large errors alone": {"error_threshold": 0.7},
    "rising threshold": {"threshold_rise": 1.5, "capacity": 40},
}


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("kind", ["softmax", "rbf"])
def test_growth_is_triggered_by(kind: str, trigger: str) -> None:
    """Against the distances to the trained keys that were there before each batch."""
    memory = {**NOVEL, "initial_capacity": 64, **TRIGGERS[trigger]}
    learner = hybrid(kind, blocks=0, memory=memory)
    state, admitted = learner.init(jax.random.key(0)), []
    for batch in stream(12, seed=11):
        keys = columns(state)["keys"]
        queries = batch.x / np.sqrt(np.mean(batch.x**2, axis=1, keepdims=True) + 1e-6)
        distances = np.linalg.norm(queries[:, None] - keys, axis=2).min(axis=1, initial=np.inf)
        threshold = memory["novelty_threshold"]
        if "capacity" in memory:
            threshold *= 1 + memory["threshold_rise"] * len(keys) / memory["capacity"]
        state, result = learner.update(state, batch)
        errors = np.asarray(jax.nn.softmax(result.outputs)) - np.eye(CLASSES)[batch.y]
        lengths = np.linalg.norm(errors, axis=1)
        novel = distances * (lengths if "error_weighted" in memory else 1) > threshold
        novel &= lengths > memory.get("error_threshold", 0.0)
        assert int(result.changes["readout"][0]) == novel.sum()
        admitted.append(int(novel.sum()))
    assert 0 < sum(admitted[2:]) < 10 * B


def test_a_frozen_hybrid_layer_is_not_trained_and_thaws() -> None:
    learner, batches = hybrid(), stream(4, seed=9)
    state, _ = learnt(learner, batches[:2])
    learner.freeze(["memory"])
    before = columns(state)
    state, _ = learner.update(state, batches[2])
    np.testing.assert_array_equal(columns(state)["keys"], before["keys"])
    learner.freeze([])
    state, _ = learner.update(state, batches[3])
    assert not np.array_equal(columns(state)["values"][: len(before["values"])], before["values"])


def test_entries_on_disk_cannot_be_trained() -> None:
    with pytest.raises(ConfigError, match="expected none where entries are trained"):
        hybrid(memory={"budget_bytes": 4000})
