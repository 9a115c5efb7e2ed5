"""Cos-Bochner features: what they approximate, how fast, and how they are trained."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from lamina.learners.cos_bochner import CosBochner
from lamina.learners.cosine import cosine, sine
from tiny_texts import TEXTS, batches, decoder, texts


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# The fast cosine and sine


@pytest.mark.parametrize("most", [1.0, 30.0, 1000.0])
def test_they_and_their_derivatives_are_close_to_the_exact_ones(most: float) -> None:
    x = np.random.default_rng(0).uniform(-most, most, 200_000).astype(np.float32)
    cosines, sines = np.cos(x.astype(np.float64)), np.sin(x.astype(np.float64))
    for function, exact, slope in ((cosine, cosines, -sines), (sine, sines, cosines)):
        assert np.abs(np.asarray(function(jnp.asarray(x))) - exact).max() < 1e-6
        found = jax.vmap(jax.grad(function))(jnp.asarray(x))
        assert np.abs(np.asarray(found) - slope).max() < 1e-6


def test_special_arguments() -> None:
    x = jnp.array([0.0, -0.0, jnp.pi / 2, jnp.pi, -jnp.pi, jnp.inf, jnp.nan], jnp.float32)
    for function, exact in ((cosine, [1, 1, 0, -1, -1]), (sine, [0, 0, 1, 0, 0])):
        found = np.asarray(function(x))
        np.testing.assert_allclose(found[:5], exact, atol=3e-7)
        assert np.isnan(found[5:]).all()


@pytest.mark.usefixtures("float64")
def test_float64_has_the_librarys() -> None:
    x = np.random.default_rng(1).uniform(-50, 50, 1000)
    np.testing.assert_allclose(cosine(jnp.asarray(x)), np.cos(x), rtol=0, atol=1e-15)
    np.testing.assert_allclose(sine(jnp.asarray(x)), np.sin(x), rtol=0, atol=1e-15)


# The kernel


def products(features: int, *, paired: bool, draws: int) -> tuple[np.ndarray, float]:
    """⟨φ(x), φ(y)⟩ for several draws, and the kernel's value."""
    draw = np.random.default_rng(2)
    width, temperature = 6, 1.5
    x = jnp.asarray(draw.normal(size=(2, width)))
    kernel = np.exp(-np.sum(np.asarray(x[0] - x[1]) ** 2) / (2 * temperature * np.sqrt(width)))

    def product(key: jax.Array) -> jax.Array:
        layer = CosBochner(width, features, temperature, paired=paired, trained=True, rngs=nnx.Rngs(key))
        one, other = layer.features(x)
        return one @ other

    keys = jax.random.split(jax.random.key(3), draws)
    return np.asarray(jax.vmap(product)(keys)), float(kernel)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("paired", [False, True])
def test_products_of_features_vary_about_the_kernel_as_stated(paired: bool) -> None:
    m, draws = 16, 20_000
    found, k = products(m, paired=paired, draws=draws)
    variance = (1 - k**2) ** 2 / m if paired else (1 - k**2 + k**4 / 2) / m
    assert abs(found.mean() - k) < 4 * np.sqrt(variance / draws)
    assert found.var() == pytest.approx(variance, rel=0.06)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("paired", [False, True])
def test_frozen_features_under_sgd_converge_to_the_growing_layer(paired: bool) -> None:
    """The whole decoder's logits after five steps: the error falls with the root of the width."""
    rate, parameter_rate = 0.5, 0.02
    optimiser = {"kind": "sgd", "learning_rate": parameter_rate}
    growing = decoder(ffn="rbf", optimiser=optimiser)
    x, _ = texts(np.random.default_rng(4))

    def outputs(learner: Any, state: Any) -> np.ndarray:
        for batch in batches(5):
            state, _ = learner.update(state, batch)
        return learner.predict(state, x)

    exact = outputs(growing, growing.init(jax.random.key(0)))
    widths, errors = [64, 256, 1024, 4096], []
    for width in widths:
        options = {
            "features": width,
            "paired": paired,
            "trained": False,
            "rate_factor": rate
            * TEXTS
            / parameter_rate,  # SGD's mean of B texts, against a text's own gradient
        }
        learner = decoder(ffn="cos_bochner", cos_bochner=options, optimiser=optimiser)
        squares = []
        for draw in range(6):
            state = _redrawn(learner.init(jax.random.key(0)), jax.random.key(draw), paired=paired)
            squares.append(np.mean((outputs(learner, state) - exact) ** 2))
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4, errors
    assert errors[-1] < 0.03 * np.std(exact)


def _redrawn(state: Any, key: jax.Array, *, paired: bool) -> Any:
    """The state with other frequencies and phases."""
    part = state.parameters["layers"][0]["feed_forward"]
    width, count = part["frequencies"].shape
    one, other = jax.random.split(key)
    # T = 2 in `tiny_texts`.
    part["frequencies"][...] = jax.random.normal(one, (width, count)) * (2 * width**0.5) ** -0.5
    if not paired:
        part["phases"][...] = jax.random.uniform(other, (count,), maxval=2 * jnp.pi)
    return state


# Training


@pytest.mark.parametrize("trained", [True, False])
def test_only_what_is_trained_moves_and_values_move_by_their_factor(trained: bool) -> None:
    moves = {}
    for factor in (1.0, 10.0):
        options = {"features": 8, "trained": trained, "rate_factor": factor}
        learner = decoder(
            ffn="cos_bochner",
            cos_bochner=options,
            optimiser={"kind": "adamw", "learning_rate": 1e-3, "weight_decay": 0.1},
        )
        state = learner.init(jax.random.key(0))
        before = jax.tree.map(np.array, state.parameters)["layers"][0]["feed_forward"]
        batch = next(iter(batches(1)))
        for _ in range(2):  # V is 0 at first, so that W and b have a gradient from the second step on
            state, _ = learner.update(state, batch)
        after = state.parameters["layers"][0]["feed_forward"]
        moves[factor] = {
            name: np.abs(np.asarray(after[name][...]) - np.asarray(before[name][...])).max()
            for name in ("values", "frequencies", "phases")
        }
    assert moves[10.0]["values"] == pytest.approx(10 * moves[1.0]["values"], rel=0.05)
    for name in ("frequencies", "phases"):
        assert (moves[1.0][name] > 0) == trained
