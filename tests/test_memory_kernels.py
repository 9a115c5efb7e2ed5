"""The contract of a kernel, run over every kernel of `memory_reference.KERNELS`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.kernels import Cosine, Pairs
from memory_reference import KERNELS, SUMMED, KernelCase

every_kernel = pytest.mark.parametrize("case", KERNELS, ids=str)


def pairs_of(keys: np.ndarray, queries: np.ndarray) -> Pairs:
    keys, queries = jnp.asarray(keys), jnp.asarray(queries)
    return Pairs(keys @ queries.T, jnp.sum(queries**2, axis=1), jnp.sum(keys**2, axis=1))


def draw(seed: int, scale: float = 1.0, features: int = 5) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return scale * random.normal(size=(6, features)), scale * random.normal(size=(4, features))


@every_kernel
@pytest.mark.parametrize("features", [1, 5, 16])
def test_similarity_is_the_formula_of_the_vectors(case: KernelCase, features: int) -> None:
    keys, queries = draw(1, features=features)
    with jax.enable_x64(True):
        found = case.kernel.similarity(pairs_of(keys, queries), features)
    np.testing.assert_allclose(found, case.formula(np, keys[:, None], queries[None]), rtol=1e-12, atol=1e-14)


@every_kernel
def test_similarity_is_symmetric(case: KernelCase) -> None:
    keys, queries = draw(2)
    with jax.enable_x64(True):
        forth = case.kernel.similarity(pairs_of(keys, queries), 5)
        back = case.kernel.similarity(pairs_of(queries, keys), 5)
    np.testing.assert_allclose(forth, np.asarray(back).T, rtol=1e-13)


@pytest.mark.parametrize("case", SUMMED, ids=str)
def test_gram_matrix_is_positive_semidefinite(case: KernelCase) -> None:
    keys, _ = draw(3)
    with jax.enable_x64(True):
        gram = case.kernel.similarity(pairs_of(keys, keys), 5)
    assert np.linalg.eigvalsh(np.asarray(gram)).min() > -1e-12


@every_kernel
def test_slopes_are_the_derivatives_of_similarity(case: KernelCase) -> None:
    keys, queries = draw(4)
    with jax.enable_x64(True):
        pairs = pairs_of(keys, queries)
        exact = jax.grad(lambda p: jnp.sum(case.kernel.similarity(p, 5)))(pairs)
        slopes = case.kernel.slopes(case.kernel.similarity(pairs, 5), pairs, 5)
        by_dot, by_query, by_key = (np.broadcast_to(slope, pairs.dots.shape) for slope in slopes)
    np.testing.assert_allclose(by_dot, exact.dots, rtol=1e-12)
    np.testing.assert_allclose(by_query.sum(axis=0), exact.query_norms, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(by_key.sum(axis=1), exact.key_norms, rtol=1e-12, atol=1e-15)


@every_kernel
def test_float32_agrees_with_float64(case: KernelCase) -> None:
    keys, queries = draw(5)
    single = case.kernel.similarity(pairs_of(np.float32(keys), np.float32(queries)), 5)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, case.formula(np, keys[:, None], queries[None]), rtol=2e-5, atol=1e-6)


@every_kernel
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6])
def test_any_magnitude_stays_finite(case: KernelCase, scale: float) -> None:
    keys, queries = (np.float32(rows) for rows in draw(6, scale))
    pairs = pairs_of(np.concatenate([keys, queries]), queries)
    similarity = case.kernel.similarity(pairs, 5)
    slopes = case.kernel.slopes(similarity, pairs, 5)
    assert np.isfinite(similarity).all()
    assert all(np.isfinite(slope).all() for slope in slopes)
    expected = case.formula(np, np.float64(keys)[:, None], np.float64(queries)[None])
    if isinstance(case.kernel, Cosine) and scale == 1e-30:
        expected = np.zeros_like(expected)  # their squares underflow
    smallest = np.finfo(np.float32).tiny  # products below it are flushed to zero
    np.testing.assert_allclose(
        similarity[:6], expected, rtol=1e-4, atol=smallest + 1e-6 * np.abs(expected).max()
    )


def test_square_distances_are_never_negative() -> None:
    rows = np.float32(np.random.default_rng(7).normal(size=(50, 64)))
    distances = np.asarray(pairs_of(rows, rows).square_distances())
    assert distances.min() == 0
    np.testing.assert_allclose(np.diagonal(distances), 0, atol=64 * 64 * np.finfo(np.float32).eps)
