"""Negative weights (App. C.5): clipped, or kept above a denominator that cannot vanish or change its sign."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_batches import drawn
from lamina.learners import Learner, LearnerConfig, State, Task, build_learner
from lamina.learners.layers import GrowingLayer, GrowingSpec
from lamina.learners.networks import ResidualGrowingNetwork
from lamina.memory.coefficients import block_coefficients
from lamina.memory.database import Rows, empty_database, write
from lamina.memory.fold import finish, merge, nothing
from lamina.memory.kernels import WeightedSoftmax
from lamina.memory.retrieval import retrieve
from lamina.memory.scores import Entries, partial_answer, score
from lamina.memory.sharding import ONE_DEVICE, Shards
from pydantic import TypeAdapter, ValidationError

parse = TypeAdapter(LearnerConfig).validate_python
D, B, CLASSES, SHARE = 4, 4, 3, 0.2
SOFTMAX = {"kind": "softmax", "temperature": 0.8, "value_rate": 0.5, "weight_rate": 0.6, "initial_entries": 2}
KEPT = {"negative_weights": "kept", "least_share": SHARE}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def learner(shards: Shards = ONE_DEVICE, **options: Any) -> Learner:
    config = parse({**SOFTMAX, "blocks": 0, **options})
    task = Task(CLASSES, classification=True)
    return build_learner(config, features=D, task=task, batch_size=B, seed=0, shards=shards)


stream = partial(drawn, (B, D), CLASSES, np.float64)


def weights(state: State, layer: str = "readout") -> np.ndarray:
    database = state.memories[layer].database
    return database.column("weights")[database.column("created") >= 0]


def answer(
    keys: jax.Array, values: jax.Array, weights: jax.Array, queries: jax.Array, share: float = SHARE
) -> jax.Array:
    """The stated rule: the denominator is max(D, ε·A)."""
    powers = jnp.exp(queries @ keys.T / (0.8 * np.sqrt(D)))
    denominator = jnp.maximum(powers @ weights, share * (powers @ jnp.abs(weights)))
    return powers @ values / denominator[:, None]


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("budget", [2**26, 1])  # scores kept for the way back, or computed again
def test_answers_and_all_gradients_are_those_of_the_rule(devices: int, budget: int) -> None:
    """With queries on either side of the limit, in two blocks."""
    draw = np.random.default_rng(3)
    shards = ONE_DEVICE if devices == 1 else Shards.over(devices)
    keys, values, signed = (jnp.asarray(draw.normal(size=s)) for s in ((16, D), (16, CLASSES), 16))
    queries, outer = jnp.asarray(draw.normal(size=(6, D))), jnp.asarray(draw.normal(size=(6, CLASSES)))
    blocks = []
    for part in (slice(0, 8), slice(8, 16)):
        empty = empty_database(8, D, CLASSES, weighted=True, dtype=keys.dtype, shards=shards)
        rows = Rows(keys[part], values[part], signed[part], jnp.arange(8, dtype=jnp.int32))
        blocks.append(write(empty, jnp.arange(8, dtype=jnp.int32), rows, jnp.int32(1)).blocks[0])
    coefficients = tuple(block_coefficients(block, None) for block in blocks)

    def ours(columns: list[tuple[jax.Array, ...]], queries: jax.Array) -> jax.Array:
        held = tuple(
            type(block)(**{**vars(block), "keys": k, "values": v, "weights": w})
            for block, (k, v, w) in zip(blocks, columns, strict=True)
        )
        found = retrieve(
            WeightedSoftmax(0.8, SHARE),
            held,
            coefficients,
            queries,
            shards=shards,
            trained=True,
            budget_bytes=budget,
        )
        return jnp.sum(found * outer)

    def exact(keys: jax.Array, values: jax.Array, weights: jax.Array, queries: jax.Array) -> jax.Array:
        return jnp.sum(answer(keys, values, weights, queries) * outer)

    powers = jnp.exp(queries @ keys.T / (0.8 * np.sqrt(D)))
    limited = np.asarray(powers @ signed < SHARE * (powers @ jnp.abs(signed)))
    assert 0 < limited.sum() < len(limited)
    columns = [(block.keys, block.values, block.weights) for block in blocks]
    total, found = jax.value_and_grad(ours, argnums=(0, 1))(columns, queries)
    expected_total, expected = jax.value_and_grad(exact, argnums=(0, 1, 2, 3))(keys, values, signed, queries)
    np.testing.assert_allclose(total, expected_total, rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[3], rtol=1e-10, atol=1e-12)
    in_order = [np.concatenate([shards.fetch(part[column]) for part in found[0]]) for column in range(3)]
    for by_column, right in zip(in_order, expected[:3], strict=True):
        np.testing.assert_allclose(by_column, right, rtol=1e-10, atol=1e-12)


def test_parts_may_be_merged_in_any_order() -> None:
    draw = np.random.default_rng(4)
    queries = jnp.asarray(draw.normal(size=(5, D)))
    parts, columns = [], []
    for _ in range(3):
        keys, values, signed = (jnp.asarray(draw.normal(size=s)) for s in ((6, D), (6, CLASSES), 6))
        empty = empty_database(6, D, CLASSES, weighted=True, dtype=keys.dtype)
        rows = Rows(keys, values, signed, jnp.arange(6, dtype=jnp.int32))
        block = write(empty, jnp.arange(6, dtype=jnp.int32), rows, jnp.int32(1)).blocks[0]
        entries, kernel = Entries.of(block), WeightedSoftmax(0.8, SHARE)
        scores = score(kernel, entries, queries)
        parts.append(partial_answer(entries, block_coefficients(block, None), scores, least_share=SHARE))
        columns.append((keys, values, signed))
    none = nothing(5, CLASSES, queries.dtype, normalised=True, least_share=SHARE)
    whole = [jnp.concatenate(column) for column in zip(*columns, strict=True)]
    for order in ([none, *parts], [parts[2], none, parts[0], parts[1]]):
        np.testing.assert_allclose(finish(reduce(merge, order)), answer(*whole, queries), rtol=1e-10)
    assert not np.asarray(finish(merge(none, none))).any()


def test_where_weights_are_positive_a_least_share_changes_nothing() -> None:
    draw = np.random.default_rng(5)
    keys, values, positive = (jnp.asarray(draw.uniform(size=s)) for s in ((6, D), (6, CLASSES), 6))
    empty = empty_database(6, D, CLASSES, weighted=True, dtype=keys.dtype)
    rows = Rows(keys, values, positive, jnp.arange(6, dtype=jnp.int32))
    blocks = write(empty, jnp.arange(6, dtype=jnp.int32), rows, jnp.int32(1)).blocks
    coefficients = tuple(block_coefficients(block, None) for block in blocks)
    plain, safe = (retrieve(WeightedSoftmax(0.8, share), blocks, coefficients, keys) for share in (0.0, 1.0))
    np.testing.assert_allclose(safe, plain, rtol=1e-14)


def test_a_growing_layer_keeps_its_negative_weights_and_follows_the_rule() -> None:
    kept = learner(weight_rate=2.0, negative_weights="kept", least_share=0.6)
    state = kept.init(jax.random.key(1))
    database = state.memories["readout"].database
    keys, values, signed = (jnp.asarray(database.column(c)[:2]) for c in ("keys", "values", "weights"))
    limited = 0
    for batch in stream(15, seed=6):
        queries = jnp.asarray(batch.x / np.sqrt(np.mean(batch.x**2, axis=1, keepdims=True) + 1e-6))
        outputs = answer(keys, values, signed, queries, 0.6)
        state, result = kept.update(state, batch)
        np.testing.assert_allclose(result.outputs, outputs, rtol=1e-8, atol=1e-9)
        errors = jax.nn.softmax(outputs) - jax.nn.one_hot(jnp.asarray(batch.y), CLASSES)
        powers = jnp.exp(queries @ keys.T / (0.8 * np.sqrt(D)))
        limited += int(jnp.sum(powers @ signed < 0.6 * (powers @ jnp.abs(signed))))
        keys, values = jnp.concatenate([keys, queries]), jnp.concatenate([values, -0.5 * errors])
        signed = jnp.concatenate([signed, 2.0 * jnp.sum(outputs * errors, axis=1)])
    np.testing.assert_allclose(weights(state), signed, rtol=1e-8, atol=1e-10)
    assert float(signed.min()) < 0
    assert limited > 0


TRAINED = {"memory": {"admission": "novelty", "novelty_threshold": 0.8, "initial_capacity": 64}, "blocks": 1}


def trained(rate: float, *, limited: bool = True, **options: Any) -> tuple[np.ndarray, State]:
    """Mean losses by step, and the state, of a hybrid that sees the same examples again and again."""
    hybrid = learner(train={"optimiser": {"kind": "adam", "learning_rate": rate}}, **TRAINED, **options)
    if not limited:
        *blocks, readout = (GrowingLayer(name, unlimited(each.spec)) for name, each in hybrid.layers.items())
        hybrid = Learner(ResidualGrowingNetwork(blocks, readout), hybrid.task)
    state, batches, losses = hybrid.init(jax.random.key(0)), stream(4, seed=7), []
    for _ in range(25):
        for batch in batches:
            state, result = hybrid.update(state, batch)
            losses.append(float(np.mean(result.losses)))
    return np.asarray(losses), state


def unlimited(spec: GrowingSpec) -> GrowingSpec:
    assert spec.training is not None
    return replace(spec, training=replace(spec.training, least_initial_weight=None))


@pytest.mark.parametrize("rate", [0.01, 0.1])
@pytest.mark.parametrize("options", [{}, KEPT], ids=["clipped", "kept"])
def test_training_does_not_diverge_when_it_would_make_weights_negative(
    rate: float, options: dict[str, Any]
) -> None:
    losses, state = trained(rate, **options)
    found = np.concatenate([weights(state, layer) for layer in state.memories])
    if options:
        assert found.min() < 0
    else:
        assert found.min() == 0
        for layer, memory in state.memories.items():
            initial = memory.database.column("created")[memory.database.column("created") >= 0] == 0
            assert weights(state, layer)[initial].min() >= 1 / (2 * 2)
    assert np.isfinite(losses).all()
    assert losses[-8:].mean() < losses[:8].mean()
    assert losses.max() < 10


def test_without_limits_the_same_training_diverges() -> None:
    """What the rule is for."""
    losses, _ = trained(0.1, limited=False)
    assert not losses.max() < 10


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"least_share": 0.2}, "set negative_weights: kept"),
        ({"negative_weights": "kept", "least_share": 0}, "least_share"),
        (
            {"kind": "gauge", "gauge": 1.0, "negative_weights": "kept"},
            "leave negative_weights out, or train",
        ),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        learner(**options)


def test_pruning_reports_no_bound_where_weights_may_be_negative() -> None:
    memory = {"prune_epsilon": 0.2, "prune_every": 3, "initial_capacity": 64}
    pruning = learner(memory=memory, decay=0.3, **KEPT)
    state, removed = pruning.init(jax.random.key(0)), 0
    for batch in stream(9, seed=8):
        state, result = pruning.update(state, batch)
        removed += int(result.changes["readout"][3])
        assert not result.pruning_bounds
    assert removed > 0
