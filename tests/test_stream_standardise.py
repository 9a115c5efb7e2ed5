"""Standardising: against NumPy over everything seen, constants, given statistics."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamina.errors import ConfigError
from lamina.stream import Field, GivenStatistics, Standardiser


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    shift=st.sampled_from([0.0, 5.0, -3e4]),
    image=st.booleans(),
    seed=st.integers(0, 99),
)
def test_running_statistics_equal_those_of_all_values_seen(sizes, shift, image, seed):
    shape = (3, 2, 2) if image else (4,)
    draw = np.random.default_rng(seed)
    standardiser = Standardiser("running", Field(shape, "float32"))
    seen = np.empty((0, *shape))
    for size in sizes:
        batch = draw.standard_normal((size, *shape)) + shift
        standardiser.update(batch)
        seen = np.concatenate([seen, batch])
    if len(seen) < 2:
        return
    axes = (0, 1, 2) if image else (0,)
    expected = (seen - seen.mean(axes)) / seen.std(axes)
    out = standardiser.apply(seen)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, -7e5, 1e-30])
def test_a_constant_feature_becomes_zero(constant):
    standardiser = Standardiser("running", Field((2,), "float32"))
    draw = np.random.default_rng(0)
    for _ in range(20):
        x = np.stack([np.full(3, constant), draw.standard_normal(3)], axis=1).astype(np.float32)
        standardiser.update(x)
        out = standardiser.apply(x)
        assert np.abs(out[:, 0]).max() < 1e-6 * max(1.0, abs(constant))
        assert np.isfinite(out).all()
    assert np.abs(out[:, 1]).max() > 0.1


def test_small_features_are_no_constants():
    x = np.array([[1e-12], [3e-12]])
    standardiser = Standardiser("running", Field((1,), "float32"))
    standardiser.update(x)
    np.testing.assert_allclose(standardiser.apply(x), [[-1], [1]], rtol=1e-6)


def test_huge_values_stay_finite():
    x = np.array([[3e38], [-3e38]], np.float32)
    standardiser = Standardiser("running", Field((1,), "float32"))
    standardiser.update(x)
    np.testing.assert_allclose(standardiser.apply(x), [[1], [-1]], rtol=1e-6)


def test_given_statistics_with_a_scale():
    given_per_channel = GivenStatistics(mean=(0.5, 0.25, 0.1), std=(0.5, 0.25, 0.2), scale=255.0)
    x = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3)).astype(np.uint8)
    out = Standardiser(given_per_channel, Field((5, 4, 3), "uint8")).apply(x)
    expected = (x / 255 - np.array([0.5, 0.25, 0.1])) / np.array([0.5, 0.25, 0.2])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
    one = Standardiser(GivenStatistics(mean=0.5, std=0.0, scale=255.0), Field((5, 4, 3), "uint8"))
    np.testing.assert_allclose(one.apply(x), x - 127.5, rtol=1e-6)


def test_statistics_of_another_size_are_refused():
    with pytest.raises(ConfigError, match=r"mean expects one number or \[3\] numbers"):
        Standardiser(GivenStatistics(mean=(1.0, 2.0), std=1.0), Field((5, 4, 3), "uint8"))


def test_none_leaves_x_alone_and_given_learns_nothing():
    x = np.ones((2, 3), np.uint8)
    assert Standardiser("none", Field((3,), "uint8")).apply(x) is x
    fixed = Standardiser(GivenStatistics(mean=0.0, std=2.0), Field((3,), "uint8"))
    fixed.update(x)
    assert fixed.apply(x).tolist() == [[0.5] * 3] * 2
    assert fixed.count == 0


def test_state_survives_json_bit_for_bit():
    draw = np.random.default_rng(3)
    first = Standardiser("running", Field((7,), "float32"))
    first.update(draw.standard_normal((11, 7)) * 1e3 + 1 / 3)
    second = Standardiser("running", Field((7,), "float32"))
    second.restore(json.loads(json.dumps(first.state())))
    for standardiser in (first, second):
        standardiser.update(np.full((2, 7), 0.1))
    assert first.mean.tobytes() == second.mean.tobytes()
    assert first.squares.tobytes() == second.squares.tobytes()
