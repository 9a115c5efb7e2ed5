"""The decoder: what each token sees, and its outputs and steps against NumPy."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.errors import ConfigError
from lamina.learners import Learner, State, build_learner
from lamina.learners.attention import rotated
from lamina.learners.generation import Generator
from lamina.learners.growing_config import RBFConfig
from slow_decoder import Copied, plain, slow_logits, slow_losses
from tiny_texts import TASK, TOKENS, WORDS, batches, config_of, decoder, texts

KINDS = ["geglu", "cos_bochner", "rbf"]


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def taught(learner: Learner, steps: int = 3) -> State:
    """A state in which memories hold entries and no scale is 0."""
    state = learner.init(jax.random.key(0))
    for batch in batches(steps, seed=5):
        state, _ = learner.update(state, batch)
    return state


# What a token sees


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_sees_a_later_one(kind: str) -> None:
    learner = decoder(ffn=kind, layers=2)
    state = taught(learner)
    x, _ = texts(np.random.default_rng(1))
    x[..., 1] = 1
    before = learner.predict(state, x)
    for place in (1, 6, TOKENS - 1):
        changed = x.copy()
        changed[:, place, 0] = 1 + x[:, place, 0] % (WORDS - 1)
        after = learner.predict(state, changed)
        np.testing.assert_array_equal(after[:, :place], before[:, :place])
        assert (np.abs(after[:, place:] - before[:, place:]).max(axis=(1, 2)) > 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_packed_texts_do_not_see_each_other(kind: str) -> None:
    """The second text has the logits that it has alone, where it stands at other positions."""
    learner = decoder(ffn=kind, layers=2)
    state = taught(learner)
    x, _ = texts(np.random.default_rng(2), count=1)
    packed = learner.predict(state, x)[0]
    second = x[0, :, 1] == 2
    alone = np.zeros_like(x)
    alone[0, : second.sum()] = x[0, second]
    found = learner.predict(state, alone)[0, : second.sum()]
    np.testing.assert_allclose(found, packed[second], rtol=1e-9, atol=1e-11)


def test_scores_of_rotated_heads_depend_on_the_distance_alone() -> None:
    draw = np.random.default_rng(3)
    query, key = (jnp.asarray(draw.normal(size=(1, 1, 2, 8))) for _ in range(2))

    def score(at: int, other: int) -> np.ndarray:
        q, k = (rotated(x, jnp.array([p]), 10_000.0) for x, p in ((query, at), (key, other)))
        return np.sum(np.asarray(q * k), axis=-1)

    np.testing.assert_allclose(score(5, 2), score(1005, 1002), rtol=1e-9)
    np.testing.assert_allclose(score(0, 0), np.sum(np.asarray(query * key), axis=-1), rtol=1e-12)
    assert np.abs(score(5, 2) - score(6, 2)).max() > 1e-3


def test_a_local_layer_sees_its_window_and_a_global_one_everything() -> None:
    window = 4
    for layers, reach in ((1, window - 1), (2, 2 * (window - 1))):
        learner = decoder(layers=layers, window=window, global_every=100)
        assert _reach(learner) == reach
    assert _reach(decoder(layers=2, window=window, global_every=2)) == TOKENS - 1


def _reach(learner: Learner) -> int:
    """How far back the last token's logits depend on a word."""
    state = learner.init(jax.random.key(0))
    x, _ = texts(np.random.default_rng(4), count=1)
    x[..., 0], x[..., 1] = 1 + np.arange(TOKENS) % (WORDS - 1), 1
    last = learner.predict(state, x)[0, -1]
    for place in range(TOKENS):
        changed = x.copy()
        changed[0, place, 0] = 1 + x[0, place, 0] % (WORDS - 1)
        if np.abs(learner.predict(state, changed)[0, -1] - last).max() > 1e-12:
            return TOKENS - 1 - place
    raise AssertionError("the last token sees nothing")


# Against NumPy


def test_outputs_and_one_step_equal_numpys() -> None:
    """All three feed-forward parts, grouped heads, local and global layers."""
    options = {
        "ffn": ["geglu", "rbf", "cos_bochner"],
        "layers": 3,
        "heads": 4,
        "groups": 2,
        "head_size": 6,
        "window": 5,
        "global_every": 3,
        "cos_bochner": {"features": 10, "temperature": 2.0, "rate_factor": 1.0},
    }
    learner = decoder(**options)
    config = config_of(**options)
    state = taught(learner)
    x, y = texts(np.random.default_rng(7))
    parameters = plain(state.parameters)
    logits = np.stack([slow_logits(row, parameters, config, state.memories) for row in x])
    np.testing.assert_allclose(learner.predict(state, x), logits, rtol=1e-9, atol=1e-11)
    expected = slow_losses(x, y, parameters, config, state.memories)

    memories = {name: Copied(memory.database) for name, memory in state.memories.items()}
    (batch,) = batches(1)
    after, result = learner.update(state, batch._replace(x=x, y=y))
    np.testing.assert_allclose(result.losses, expected, rtol=1e-9)
    np.testing.assert_array_equal(result.outputs.predicted, logits.argmax(axis=-1))
    # SGD's step is along minus the gradient of the mean loss, which finite differences measure.
    step = jax.tree.map(lambda new, old: (np.asarray(old) - new) / 0.05, plain(after.parameters), parameters)
    draw = np.random.default_rng(8)
    for _ in range(3):
        along = jax.tree.map(lambda leaf: draw.normal(size=np.shape(leaf)), parameters)
        plus, minus = (
            slow_losses(
                x, y, jax.tree.map(lambda p, a, e=e: p + e * a, parameters, along), config, memories
            ).mean()
            for e in (1e-5, -1e-5)
        )
        slope = sum(np.sum(s * a) for s, a in zip(jax.tree.leaves(step), jax.tree.leaves(along), strict=True))
        assert slope == pytest.approx((plus - minus) / 2e-5, rel=1e-6)


# Writing


@pytest.mark.parametrize("kind", KINDS)
def test_generation_with_a_cache_writes_what_full_forward_passes_do(kind: str) -> None:
    learner = decoder(ffn=kind, layers=2, window=4, global_every=2)
    state = taught(learner)
    prompt = np.random.default_rng(9).integers(1, WORDS, (2, 3))
    written = Generator(learner)(state, prompt, 6)
    words = prompt
    for _ in range(6):
        x = np.stack([words, np.ones_like(words)], axis=-1).astype(np.int32)
        likeliest = learner.predict(state, x)[:, -1].argmax(axis=-1)
        words = np.concatenate([words, likeliest[:, None]], axis=1)
    np.testing.assert_array_equal(written, words[:, 3:])


def test_a_cached_pass_has_the_logits_of_a_full_one() -> None:
    learner = decoder(ffn=["geglu", "rbf"], layers=2, window=4, global_every=2, groups=1)
    state = taught(learner)
    words = np.random.default_rng(10).integers(1, WORDS, (2, 9)).astype(np.int32)
    full = learner.predict(state, np.stack([words, np.ones_like(words)], axis=-1))
    found = Generator(learner).logits(state, words, first=4)
    np.testing.assert_allclose(found, full, rtol=1e-9, atol=1e-11)


def test_drawn_words_follow_the_seed_and_the_temperature() -> None:
    learner = decoder()
    state = taught(learner)
    write, prompt = Generator(learner), np.array([[1, 2]])
    once = write(state, prompt, 20, temperature=5.0, seed=1)
    np.testing.assert_array_equal(once, write(state, prompt, 20, temperature=5.0, seed=1))
    assert (once != write(state, prompt, 20, temperature=5.0, seed=2)).any()
    np.testing.assert_array_equal(write(state, prompt, 8, temperature=1e-4), write(state, prompt, 8))
    with pytest.raises(ConfigError, match="prompt of at least one word"):
        write(state, np.empty((1, 0)), 3)


# Refusals


def test_a_decoder_wants_texts_and_texts_want_a_decoder() -> None:
    with pytest.raises(ConfigError, match="cannot learn texts"):
        build_learner(
            RBFConfig(kind="rbf", value_rate=1, temperature=1), features=2, task=TASK, batch_size=2, seed=0
        )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ffn": ["rbf"], "layers": 2}, "one for each of 2 layers"),
        ({"heads": 4, "groups": 3}, "multiple of groups"),
        ({"width": 10, "heads": 3}, "multiple of heads"),
        ({"width": 12, "heads": 4}, "even number"),
        ({"cos_bochner": {"features": 9, "paired": True}}, "even number"),
        ({"rbf": {"tokens": {"admission": "high_loss"}}}, "loss_threshold belong together"),
    ],
)
def test_impossible_decoders_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decoder(**options)
