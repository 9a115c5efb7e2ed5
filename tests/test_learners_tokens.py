"""Growing layers on tokens: which tokens they answer, which become entries, and what is stored for them."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, State
from lamina.learners.decoder_config import DecoderConfig, build_decoder
from lamina.memory.append import Occupancy
from lamina.memory.sharding import Shards
from pydantic import TypeAdapter
from slow_decoder import Copied, plain, slow_losses
from tiny_texts import TASK, TEXTS, TINY, TOKENS, batches, config_of, decoder, texts

ADMISSIONS: dict[str, dict[str, Any]] = {
    "all": {"admission": "all"},
    "values": {"admission": "values"},
    "values, read there alone": {"admission": "values", "reading": "values"},
    "high_loss": {"admission": "high_loss", "loss_threshold": 2.4},
    "high_loss of values": {"admission": "high_loss", "loss_threshold": 2.4, "reading": "values"},
    "all, gated": {"admission": "all", "reading": "gate"},
}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def growing(tokens: dict[str, Any], **memory: Any) -> Learner:
    return decoder(
        ffn="rbf", rbf={**TINY["rbf"], "tokens": tokens, "memory": {"initial_capacity": 128, **memory}}
    )


def entries(state: State, column: str, since: int = 1) -> np.ndarray:
    database = state.memories["ffn0"].database
    return database.column(column)[database.column("created") >= since]


def may_enter(tokens: dict[str, Any], losses: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The rule, said once more: [B, T]."""
    if tokens["admission"] == "values":
        return y[..., 1] >= 0
    chosen = losses > tokens["loss_threshold"] if tokens["admission"] == "high_loss" else y[..., 0] >= 0
    return chosen & (y[..., 1] >= 0) if tokens.get("reading") == "values" else chosen


@pytest.mark.parametrize("tokens", ADMISSIONS.values(), ids=ADMISSIONS.keys())
def test_the_chosen_tokens_become_entries_of_their_text(tokens: dict[str, Any]) -> None:
    learner = growing(tokens)
    state = learner.init(jax.random.key(0))
    origins: list[int] = []
    for batch in batches(3):
        state, result = learner.update(state, batch)
        chosen = may_enter(tokens, np.asarray(result.outputs.losses), batch.y)
        origins += np.repeat(batch.origins, chosen.sum(axis=1)).tolist()
        # Tokens that are passed over do not count as refused.
        assert np.asarray(result.changes["ffn0"]).tolist() == [chosen.sum(), 0, 0, 0, 0]
    assert 0 < len(origins) < 3 * TEXTS * TOKENS
    assert entries(state, "origin").tolist() == origins
    if tokens["admission"] == "high_loss":
        assert len(origins) < sum((b.y[..., 0] >= 0).sum() for b in batches(3))


@pytest.mark.parametrize("reading", ["everywhere", "values"])
def test_an_entry_holds_minus_the_rate_times_its_tokens_own_gradient(reading: str) -> None:
    """Finite differences of a decoder in NumPy: of the text's loss in the layer's answer at that token."""
    policy = {"admission": "values", "reading": reading}
    learner, config = growing(policy), config_of(ffn="rbf", rbf={"tokens": policy})
    state = learner.init(jax.random.key(0))
    x, y = texts(np.random.default_rng(0), count=1)
    parameters = plain(state.parameters)
    memories = {"ffn0": Copied(state.memories["ffn0"].database)}
    state, _ = learner.update(state, Batch(x, y, np.array([7])))
    tokens, values = np.flatnonzero(y[0, :, 1] >= 0), entries(state, "values")
    assert len(values) == len(tokens)
    for token, value in zip(tokens, values, strict=True):
        nudge = np.zeros((TOKENS, config.width))
        nudge[token] = along = np.random.default_rng(token).normal(size=config.width)
        plus, minus = (slow_losses(x, y, parameters, config, memories, e * nudge)[0] for e in (1e-6, -1e-6))
        assert value @ along == pytest.approx(-config.rbf.value_rate * (plus - minus) / 2e-6, rel=1e-6)


def test_values_do_not_depend_on_the_batch() -> None:
    """Two texts learnt together store what each stores alone."""
    x, y = texts(np.random.default_rng(1), count=2)
    learner = growing({"admission": "all"})
    together, _ = learner.update(learner.init(jax.random.key(0)), Batch(x, y, np.arange(2)))
    for row in range(2):
        part = slice(row, row + 1)
        alone, _ = learner.update(
            learner.init(jax.random.key(0)), Batch(x[part], y[part], np.arange(row, row + 1))
        )
        chosen = entries(together, "origin") == row
        for column in ("keys", "values"):
            np.testing.assert_allclose(
                entries(together, column)[chosen], entries(alone, column), rtol=1e-9, atol=1e-12
            )


def test_reading_at_values_alone_is_reading_everywhere_where_values_are() -> None:
    """With entries for values and one layer, the losses of values are the same, of other words not."""
    states = {}
    for reading in ("values", "everywhere"):
        learner = growing({"admission": "values", "reading": reading})
        learner.freeze(["parameters"])
        state = learner.init(jax.random.key(0))
        for batch in batches(4):
            state, result = learner.update(state, batch)
        states[reading] = np.asarray(result.outputs.losses), batch.y
    (ours, y), (theirs, _) = states["values"], states["everywhere"]
    told = y[..., 1] >= 0
    np.testing.assert_allclose(ours[told], theirs[told], rtol=1e-9)
    assert np.abs(ours[~told] - theirs[~told]).max() > 1e-3


def test_a_gate_begins_half_open_and_is_trained() -> None:
    open_, gated = growing({"reading": "everywhere"}), growing({"reading": "gate"})
    open_.freeze(["parameters"])
    gated.freeze(["parameters"])
    (first, second) = batches(2)
    plain, _ = open_.update(open_.init(jax.random.key(0)), first)
    half, _ = gated.update(gated.init(jax.random.key(0)), first)
    # The gradient at the memory's own output is halved too.
    np.testing.assert_allclose(entries(half, "values"), entries(plain, "values") / 2, rtol=1e-9, atol=1e-12)
    gated.freeze([])
    before = jax.tree.map(np.array, half.parameters)
    half, _ = gated.update(half, second)
    moved = jax.tree_util.tree_leaves_with_path(
        jax.tree.map(lambda a, b: np.abs(a - b).max(), before, half.parameters)
    )
    gate = [change for path, change in moved if "'gate'" in jax.tree_util.keystr(path)]
    assert len(gate) == 2
    assert min(gate) > 0


def test_where_values_stand_is_known_from_targets_alone() -> None:
    learner = growing({"admission": "values", "reading": "values"})
    state = learner.init(jax.random.key(0))
    x, y = texts(np.random.default_rng(2))
    with pytest.raises(ConfigError, match="ffn0 is read only where the next word belongs to a value"):
        learner.predict(state, x)
    outputs, losses = learner.answer(state, x, y)
    assert outputs.predicted.shape == x.shape[:2]
    np.testing.assert_allclose(outputs.losses.sum(axis=1), losses, rtol=1e-9)


@pytest.mark.parametrize(
    "memory",
    [
        {},
        {"admission": "novelty", "novelty_threshold": 1.5},
        {"admission": "quantize", "quantize_radius": 1.5},
    ],
)
def test_what_the_host_knows_of_the_entries_holds(memory: dict[str, Any]) -> None:
    """Rows that are passed over are neither entries nor refusals."""
    learner = growing({"admission": "values"}, capacity=40, eviction="oldest", **memory)
    state, judged = learner.init(jax.random.key(0)), 0
    for batch in batches(12):
        state, _ = learner.update(state, batch)
        judged += int((batch.y[..., 1] >= 0).sum())
        memory_ = state.memories["ffn0"]
        assert memory_.occupancy.least <= memory_.entries <= memory_.occupancy.most <= 40
    admitted, merged, rejected, _, evicted = np.asarray(state.memories["ffn0"].database.counters).tolist()
    assert admitted + merged + rejected == judged
    assert admitted - evicted == state.memories["ffn0"].entries
    assert (merged > 0) == (memory.get("admission") == "quantize")
    assert Occupancy.of(state.memories["ffn0"].database, holes=False).most == state.memories["ffn0"].entries


def test_explain_asks_the_layer_at_one_token() -> None:
    learner = growing({"admission": "values"})
    state = learner.init(jax.random.key(0))
    (batch,) = batches(1)
    state, _ = learner.update(state, batch)
    token = int(np.flatnonzero(batch.y[1, :, 1] >= 0)[0])
    learner.freeze(["parameters"])
    found = learner.explain(state, batch.x[1], "ffn0", y=batch.y[1], token=token, count=3)
    assert {each.origin for each in found} <= set(batch.origins.tolist())
    assert sum(abs(each.share) for each in found) > 0
    values = growing({"admission": "values", "reading": "values"})
    state = values.init(jax.random.key(0))
    state, _ = values.update(state, batch)
    assert values.explain(state, batch.x[1], "ffn0", y=batch.y[1], token=token, count=1)
    with pytest.raises(ConfigError, match="at which layer ffn0 is read"):
        values.explain(state, batch.x[1], "ffn0", y=batch.y[1], token=TOKENS - 1)


@pytest.mark.parametrize("tokens", [{"admission": "all"}, {"admission": "values", "reading": "values"}])
def test_four_devices_learn_what_one_does(tokens: dict[str, Any]) -> None:
    config = TypeAdapter(DecoderConfig).validate_python(
        {**TINY, "ffn": ["rbf", "geglu"], "layers": 2, "rbf": {**TINY["rbf"], "tokens": tokens}}
    )
    answers = []
    for shards in (Shards(), Shards.over(4)):
        learner = build_decoder(config, task=TASK, seed=0, shards=shards)
        state = learner.init(jax.random.key(0))
        for batch in batches(3):
            state, result = learner.update(state, batch)
        answers.append((np.asarray(result.losses), *learner.answer(state, batch.x, batch.y)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), *answers)


def test_entries_on_disk_answer_like_those_in_memory() -> None:
    answers = []
    for budget in (None, 6_000):
        learner = growing(
            {"admission": "values"},
            initial_capacity=16,
            **({} if budget is None else {"budget_bytes": budget}),
        )
        state = learner.init(jax.random.key(0))
        for batch in batches(5):
            state, result = learner.update(state, batch)
        memory = state.memories["ffn0"]
        assert (memory.cold is not None and memory.cold.entries > 0) == (budget is not None)
        answers.append((np.asarray(result.losses), memory.entries))
    np.testing.assert_allclose(answers[1][0], answers[0][0], rtol=1e-9)
    assert answers[0][1] == answers[1][1]
