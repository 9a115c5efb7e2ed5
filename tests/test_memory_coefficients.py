"""Momentum and decay: the clock against Eq. 100, its bounds, and what it makes of slots."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamina.memory.coefficients import (
    Clock,
    Clocks,
    CoefficientTable,
    block_coefficients,
    device_table,
    pad_by_step,
)
from lamina.memory.database import EMPTY, INITIAL, empty_block

momenta = st.floats(0, 0.999)
decays = st.floats(0, 0.5)


def closed_form(ages: np.ndarray, momentum: float, decay: float) -> np.ndarray:
    """Eq. 100 divided by its value at age 0: Σ_{m ≤ age} μ^m (1−γ)^(age−m), all terms positive."""
    keep = 1 - decay
    if momentum == keep:
        return (ages + 1) * keep**ages
    small, large = sorted((momentum, keep))
    ratio = small / large
    # large^age · (1 − ratio^(age+1)) / (1 − ratio), without the cancellation of nearly equal rates.
    return (
        large**ages * np.expm1((ages + 1) * np.log(max(ratio, 1e-300))) / np.expm1(np.log(max(ratio, 1e-300)))
    )


def advanced(steps: int, momentum: float, decay: float) -> Clock:
    clock = Clock.start()
    for _ in range(steps):
        clock = clock.advance(momentum=momentum, decay=decay)
    return clock


@given(momentum=momenta, decay=decays, steps=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_the_clock_is_equation_100(momentum: float, decay: float, steps: int) -> None:
    clock = advanced(steps, momentum, decay)
    ages = np.arange(steps)[::-1]
    terms = [[momentum**m * (1 - decay) ** (age - m) for m in range(age + 1)] for age in ages]
    np.testing.assert_allclose(clock.coefficients, [sum(row) for row in terms], rtol=1e-12)
    assert clock.step == steps
    assert clock.initial == pytest.approx((1 - decay) ** steps, rel=1e-12)


@pytest.mark.parametrize("decay", [0.25, 0.01, 1e-3])
def test_momentum_equal_to_retention(decay: float) -> None:
    clock = advanced(400, 1 - decay, decay)
    ages = np.arange(400)[::-1]
    np.testing.assert_allclose(clock.coefficients, (ages + 1) * (1 - decay) ** ages, rtol=1e-11)


@pytest.mark.parametrize(
    ("momentum", "decay"),
    [(0.9, 0.0), (0.0, 0.01), (0.999, 1e-4), (0.9, 0.1), (0.0, 0.0), (0.5, 0.5), (0.999, 0.001)],
)
def test_great_ages_neither_overflow_nor_vanish_into_nan(momentum: float, decay: float) -> None:
    """One step from the closed form at ages up to 10⁵ arrives at the closed form one age later."""
    ages = np.arange(100_000)[::-1]
    clock = Clock(
        100_000,
        (1 - decay) ** 100_000.0,
        closed_form(ages, momentum, decay),
        momentum ** ages.astype(float),
    )
    with np.errstate(all="raise", under="ignore"):
        later = clock.advance(momentum=momentum, decay=decay)
        bounds = later.bounded(momentum).coefficients
    assert np.isfinite(later.coefficients).all()
    expected = closed_form(np.arange(100_001)[::-1], momentum, decay)
    np.testing.assert_allclose(later.coefficients, expected, rtol=1e-9, atol=1e-290)
    assert np.isfinite(bounds).all()
    assert (bounds >= later.coefficients).all()


def test_neither_momentum_nor_decay_leaves_ones() -> None:
    clock = advanced(7, 0.0, 0.0)
    np.testing.assert_array_equal(clock.coefficients, np.ones(7))
    assert clock.initial == 1.0


@given(
    past=st.lists(st.tuples(momenta, decays), min_size=1, max_size=8),
    most=momenta,
    future=st.lists(st.tuples(st.floats(0, 1), decays), max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_future_bounds_hold_whatever_the_rates(
    past: list[tuple[float, float]], most: float, future: list[tuple[float, float]]
) -> None:
    clock = Clock.start()
    for momentum, decay in past:
        clock = clock.advance(momentum=momentum, decay=decay)
    bounds = clock.bounded(most).coefficients
    assert (clock.coefficients <= bounds).all()
    later = clock
    for share, decay in future:
        later = later.advance(momentum=share * most, decay=decay)
        assert (later.coefficients[: clock.step] <= bounds * (1 + 1e-12)).all()


def test_the_bound_is_reached_by_constant_momentum() -> None:
    clock = advanced(1, 0.9, 0.0)
    assert clock.bounded(0.9).coefficients[0] == pytest.approx(10)
    assert advanced(400, 0.9, 0.0).coefficients[0] == pytest.approx(10)


def test_tables_change_shape_rarely() -> None:
    sizes = {len(pad_by_step(1.0, np.ones(steps))) for steps in range(0, 10_000, 7)}
    assert sizes == {1024, 4096, 16384}
    padded = pad_by_step(0.5, np.array([3.0, 4.0]))
    np.testing.assert_array_equal(padded[:4], [0.5, 3.0, 4.0, 0.0])


def test_a_table_fills_up_exactly() -> None:
    assert len(pad_by_step(1.0, np.ones(1023))) == 1024
    assert pad_by_step(1.0, np.ones(1024))[1024] == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_slots_get_the_coefficient_of_their_step(weighted: bool) -> None:
    created = np.array([INITIAL, 2, EMPTY, 1, 3])
    block = replace(empty_block(5, 2, 1, weighted=weighted), created=jnp.asarray(created, jnp.int32))
    values, weights = advanced(3, 0.5, 0.1), advanced(3, 0.0, 0.2)
    with jax.enable_x64(True):
        found = block_coefficients(block, device_table(Clocks(values, weights), jnp.float64))
        found = jax.tree.map(np.asarray, found)
    np.testing.assert_allclose(found.values[np.array([0, 1, 3, 4])], [0.729, 1.4, 1.51, 1.0], rtol=1e-12)
    assert found.values[2] == 0
    if weighted:
        np.testing.assert_allclose(found.weights, [0.512, 0.8, 0, 0.64, 1], rtol=1e-12)
    else:
        assert found.weights is None


def test_without_a_table_live_slots_count_once() -> None:
    created = jnp.asarray([INITIAL, EMPTY, 5], jnp.int32)
    block = replace(empty_block(3, 2, 1, weighted=True), created=created)
    found = block_coefficients(block, None)
    np.testing.assert_array_equal(found.values, [1, 0, 1])
    np.testing.assert_array_equal(found.weights, [1, 0, 1])
    assert found.values.dtype == block.keys.dtype


def test_a_table_reaches_the_device_in_the_learners_precision() -> None:
    table = device_table(Clocks(advanced(2, 0.9, 0.0), advanced(2, 0.0, 0.0)), jnp.float32)
    assert isinstance(table, CoefficientTable)
    assert table.values.dtype == jnp.float32
    np.testing.assert_array_equal(table.values[:3], np.float32([1, 1.9, 1]))
