"""Neighbours against brute force: distances, correlations, features; on one device and four."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.database import Block, empty_block
from lamina.memory.neighbours import Neighbours, most_alike, nearest, nearest_features
from memory_reference import KERNELS, KernelCase, Memory, random_memory

MEMORIES = {
    "one entry": random_memory((1,), 1),
    "several blocks": random_memory((4, 6, 9), 2),
    "several blocks, empty slots between": random_memory((4, 6, 9), 4, dead=0.4),
}
every_memory = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())


def ranked(scores: np.ndarray, live: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores [N, B] → the best [B, count] scores and slots, padded with −inf and −1."""
    scores = np.where(live[:, None], scores, -np.inf).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    best = np.take_along_axis(scores, order, axis=1)
    pad = ((0, 0), (0, count - best.shape[1]))
    return np.pad(best, pad, constant_values=-np.inf), np.pad(
        np.where(np.isneginf(best), -1, order), pad, constant_values=-1
    )


def check(
    search: Callable[[tuple[Block, ...], jax.Array], Neighbours],
    memory: Memory,
    scores: np.ndarray,
    count: int,
) -> None:
    queries = np.random.default_rng(22).normal(size=(5, 3))
    with jax.enable_x64(True):
        found = jax.jit(search)(memory.blocks(False), jnp.asarray(queries))
    best, slots = ranked(scores, memory.live, count)
    np.testing.assert_allclose(found.scores, best, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.slots, slots)
    there = slots >= 0
    np.testing.assert_array_equal(np.asarray(found.keys)[there], memory.keys[slots[there]])


def queries() -> np.ndarray:
    return np.random.default_rng(22).normal(size=(5, 3))


@every_memory
@pytest.mark.parametrize("count", [1, 3, 25])
def test_the_nearest_are_those_of_least_distance(memory: Memory, count: int) -> None:
    scores = -np.sum((memory.keys[:, None] - queries()[None]) ** 2, axis=-1)
    check(partial(nearest, count=count), memory, scores, count)


def gram(case: KernelCase, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    similarity = case.formula(np, a[:, None], b[None])
    return np.exp(similarity) if case.kernel.normalised else similarity


@pytest.mark.parametrize("case", KERNELS, ids=str)
@pytest.mark.parametrize("count", [1, 3])
def test_most_alike_are_those_of_largest_correlation(case: KernelCase, count: int) -> None:
    memory = MEMORIES["several blocks, empty slots between"]
    own = [np.diag(gram(case, x, x)) for x in (memory.keys, queries())]
    scores = np.abs(gram(case, memory.keys, queries())) / np.sqrt(own[0][:, None] * own[1])
    check(partial(most_alike, case.kernel, count=count), memory, scores, count)


@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_nearest_features_are_those_of_least_distance_in_feature_space(case: KernelCase) -> None:
    memory = MEMORIES["several blocks"]
    own = [np.diag(gram(case, x, x)) for x in (memory.keys, queries())]
    products = gram(case, memory.keys, queries())
    if case.kernel.normalised:
        scores = 2 * products / np.sqrt(own[0][:, None] * own[1]) - 2
    else:
        scores = 2 * products - own[0][:, None] - own[1]
    check(partial(nearest_features, case.kernel, count=4), memory, scores, 4)


def test_only_eligible_entries_are_looked_at() -> None:
    memory = MEMORIES["several blocks"]
    chosen = np.arange(19) % 3 == 1
    eligible = tuple(jnp.asarray(part) for part in np.split(chosen, [4, 10]))
    scores = -np.sum((memory.keys[:, None] - queries()[None]) ** 2, axis=-1)
    check(
        partial(nearest, count=2, eligible=eligible),
        replace(memory, live=chosen),
        scores,
        2,
    )


def test_nearest_of_nothing_is_infinitely_far() -> None:
    block = empty_block(4, 3, 2, weighted=False)
    found = nearest((block, block), jnp.ones((2, 3)), count=2)
    np.testing.assert_array_equal(found.scores, np.full((2, 2), -np.inf))
    np.testing.assert_array_equal(found.slots, np.full((2, 2), -1))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_exact_duplicates_have_distance_zero_in_float32(scale: float) -> None:
    memory = random_memory((40, 24), 23, features=64)
    memory = replace(memory, keys=memory.keys * scale).astype(np.float32)
    found = nearest(memory.blocks(False), jnp.asarray(memory.keys))
    np.testing.assert_array_equal(found.scores[:, 0], np.zeros(64))
