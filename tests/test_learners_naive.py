"""Softmax layers without weights (App. B.3): what Eq. 39 says, and why weights are needed."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from drawn_batches import drawn
from lamina.learners import Batch, Learner, LearnerConfig, Task, build_learner
from lamina.memory.sharding import ONE_DEVICE, Shards
from pydantic import TypeAdapter, ValidationError

parse = TypeAdapter(LearnerConfig).validate_python
D, B, CLASSES = 4, 3, 3


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def learner(kind: str = "naive_softmax", shards: Shards = ONE_DEVICE, **options: Any) -> Learner:
    values = {"kind": kind, "blocks": 0, "temperature": 0.9, "value_rate": 0.7, **options}
    task = Task(CLASSES, classification=True)
    return build_learner(parse(values), features=D, task=task, batch_size=B, seed=0, shards=shards)


stream = partial(drawn, (B, D), CLASSES, np.float64)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("memory", [{}, {"initial_capacity": 4, "budget_bytes": 4096}])
def test_a_layer_is_equation_39(memory: dict[str, Any]) -> None:
    """With entries in several blocks, and with the oldest of them on disk."""
    naive = learner(initial_entries=2, memory=memory)
    state = naive.init(jax.random.key(5))
    database = state.memories["readout"].database
    keys, values = (database.column(name)[:2].copy() for name in ("keys", "values"))
    assert database.column("weights")[:2].tolist() == [1, 1]
    for batch in stream(20):
        queries = unit(batch.x)
        scores = np.exp(queries @ keys.T / (0.9 * np.sqrt(D)))
        outputs = scores @ values / scores.sum(axis=1, keepdims=True)
        state, result = naive.update(state, batch)
        np.testing.assert_allclose(result.outputs, outputs, rtol=1e-9, atol=1e-10)
        powers = np.exp(outputs)
        errors = powers / powers.sum(axis=1, keepdims=True) - np.eye(CLASSES)[batch.y]
        own = np.exp(np.sum(queries * queries, axis=1) / (0.9 * np.sqrt(D)))
        share = own / (scores.sum(axis=1) + own)
        keys = np.append(keys, queries, 0)
        values = np.append(values, outputs - 0.7 * share[:, None] * errors, 0)
    cold = state.memories["readout"].cold
    assert (cold is not None and cold.entries > 0) == bool(memory)


@pytest.mark.usefixtures("float64")
def test_an_entry_of_no_step_changes_the_function_elsewhere_but_a_weighted_one_does_not() -> None:
    """With η → 0 an update of a principled rule does nothing; of the naive one only the query stays."""
    naive = learner(value_rate=1e-12)
    weighted = learner("softmax", value_rate=1e-12, weight_rate=1e-12)
    [first, elsewhere] = stream(2, seed=1)
    one = Batch(*(column[:1] for column in first))
    changes = {}
    for name, each in (("naive", naive), ("weighted", weighted)):
        state = each.init(jax.random.key(0))
        before = [each.predict(state, x) for x in (one.x, elsewhere.x)]
        state, _ = each.update(state, one)
        after = [each.predict(state, x) for x in (one.x, elsewhere.x)]
        changes[name] = [np.abs(a - b).max() for a, b in zip(after, before, strict=True)]
    assert max(changes["weighted"]) < 1e-10
    at_query, away = changes["naive"]
    assert at_query < 1e-10
    assert away > 0.01


def test_four_devices_answer_as_one() -> None:
    outputs = []
    for shards in (ONE_DEVICE, Shards.over(4)):
        naive = learner(shards=shards, blocks=1)
        state = naive.init(jax.random.key(0))
        for batch in stream(6, seed=2):
            state, result = naive.update(state, batch)
        outputs.append(np.asarray(result.outputs))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"momentum": 0.5}, "no momentum and decay"),
        ({"decay": 0.1}, "no momentum and decay"),
        ({"train": {}}, "none to train"),
        ({"weight_rate": 0.1}, "weight_rate"),
    ],
)
def test_what_only_weights_can_do_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        learner(**options)


def test_keys_and_values_can_be_trained() -> None:
    naive = learner(train={"weights": 0, "optimiser": {"kind": "adam", "learning_rate": 0.1}})
    state, batch = naive.init(jax.random.key(0)), stream(1)[0]
    losses = []
    for _ in range(20):
        state, result = naive.update(state, batch)
        losses.append(float(np.mean(result.losses)))
    assert losses[-1] < losses[0] - 0.3
