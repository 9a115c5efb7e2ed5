"""Which plan is chosen, that chunks cover a block, and that no plan exceeds its budget of scores."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.kernels import RBF, Kernel, Laplace, WeightedSoftmax
from lamina.memory.neighbours import nearest
from lamina.memory.orientation import ENTRIES_FIRST, QUERIES_FIRST
from lamina.memory.plan import SCORES_BUDGET_BYTES, Plan, over_chunks, plan_reading, unchunk
from lamina.memory.retrieval import retrieve
from lamina.memory.scores import scores_kept
from lamina.memory.window import as_window, cut
from memory_reference import KERNELS, KernelCase, following, random_memory

# (N, D, F, B) → the plan measured best on a CPU
CHOICES = {
    (25_000, 3072, 3072, 16): Plan(ENTRIES_FIRST, None, None),
    (25_000, 3072, 3072, 64): Plan(ENTRIES_FIRST, None, None),
    (100_000, 784, 784, 16): Plan(ENTRIES_FIRST, None, None),
    (131_072, 64, 64, 1024): Plan(QUERIES_FIRST, 2048, 256),
    (1_000_000, 64, 64, 64): Plan(ENTRIES_FIRST, 32768, 16384),
    (1_000, 64, 10, 1): Plan(ENTRIES_FIRST, None, None),
    (100, 8, 8, 1024): Plan(QUERIES_FIRST, 100, 100),
    # More than the budget holds at once.
    (10_000_000, 64, 64, 64): Plan(ENTRIES_FIRST, 32768, 16384),
    (100_000, 3072, 3072, 1024): Plan(ENTRIES_FIRST, 5461, 5461),
}


@pytest.mark.parametrize("shape", CHOICES, ids=str)
def test_chosen_plan(shape: tuple[int, int, int, int]) -> None:
    entries, keys, values, batch = shape
    plan = plan_reading(entries, batch, keys + values, itemsize=4, kept=1, budget_bytes=SCORES_BUDGET_BYTES)
    assert plan == CHOICES[shape]


@pytest.mark.parametrize("budget", [0, 1, 10**4, 10**6, 10**8])
@pytest.mark.parametrize("batch", [1, 40, 5000])
def test_a_plan_keeps_to_any_budget_but_one_entry(budget: int, batch: int) -> None:
    plan = plan_reading(7777, batch, 20, itemsize=8, kept=2, budget_bytes=budget)
    for chunk in (plan.chunk, plan.backward_chunk):
        rows = 7777 if chunk is None else chunk
        assert 1 <= rows <= 7777
        copied = 0 if chunk is None else 20
        assert rows == 1 or rows * (batch + copied) * 8 <= budget
    assert plan.chunk is not None or 2 * 7777 * batch * 8 <= budget


@pytest.mark.parametrize(("rows", "chunk"), [(12, c) for c in (None, 12, 4, 5, 7, 1, 99)] + [(1, 1)])
def test_chunks_cover_every_row_once_in_order(rows: int, chunk: int | None) -> None:
    data = jnp.arange(2 * rows).reshape(rows, 2)

    def step(seen: jax.Array, part: jax.Array) -> tuple[jax.Array, jax.Array]:
        return seen * 3 + jnp.sum(part), part

    _, results = over_chunks(step, jnp.zeros((), int), data, chunk)
    np.testing.assert_array_equal(unchunk(results), data)


@pytest.mark.parametrize("chunk", [None, 2, 3])
def test_chunks_of_a_window_are_windows_of_its_rows(chunk: int | None) -> None:
    data = jnp.arange(20).reshape(10, 2)
    _, results = over_chunks(
        lambda none, part: (none, cut(part)), None, as_window(data).part(jnp.int32(4), 4), chunk
    )
    np.testing.assert_array_equal(unchunk(results), data[4:8])


def test_the_carry_goes_through_chunks_in_order() -> None:
    digits = jnp.array([3, 1, 4, 1, 5, 9, 2])
    number, _ = over_chunks(
        lambda carry, part: (carry * 10 ** len(part) + jnp.sum(part), None), jnp.zeros((), int), digits, 3
    )
    assert number == ((3 + 1 + 4) * 1000 + (1 + 5 + 9)) * 10 + 2


def test_what_the_backward_pass_wants() -> None:
    wants = {str(case): scores_kept(case.kernel) for case in KERNELS}
    one = {"Linear", "RBF", "WeightedSoftmax", "Cosine"}
    assert wants == {name: 1 if name in one else 2 for name in wants}


@pytest.mark.parametrize("kernel", [RBF(2.0), WeightedSoftmax(2.0), Laplace(2.0)], ids=repr)
@pytest.mark.parametrize(("features", "batch"), [(8, 256), (256, 48), (256, 8), (8, 600), (16, 1200)])
@pytest.mark.parametrize("budget", [2**18, 2**20, 2**28])
def test_temporary_memory_keeps_to_the_budget(kernel: Kernel, features: int, batch: int, budget: int) -> None:
    memory = random_memory((2048, 1024, 1000), 1, features=features, outputs=features).astype(np.float32)
    columns = memory.blocks(kernel.normalised), memory.coefficients(kernel.normalised)

    def answer(queries: jax.Array, blocks: Any, coefficients: Any) -> jax.Array:
        return retrieve(kernel, blocks, coefficients, queries, budget_bytes=budget)

    def loss(*arguments: Any) -> jax.Array:
        return jnp.sum(jnp.sin(answer(*arguments)))

    queries = jnp.ones((batch, features))
    few = 4 * queries.nbytes + 2**16  # of queries, answers and their gradients
    for function in (answer, jax.grad(loss)):
        analysis = jax.jit(function).lower(queries, *columns).compile().memory_analysis()
        assert analysis.temp_size_in_bytes <= budget + few


def test_nearest_keys_are_chosen_not_learnt_through() -> None:
    """Their gradient is that of the distances, however they are read."""
    blocks, queries = random_memory((5000,), 2).astype(np.float32).blocks(False), jnp.ones((40, 3))

    def farness(keys: jax.Array, budget: int) -> jax.Array:
        found = nearest((replace(blocks[0], keys=keys),), queries, budget_bytes=budget)
        return jnp.sum(found.scores)

    keys = blocks[0].keys
    at_once, chunked = (jax.grad(farness)(keys, budget) for budget in (2**28, 2**18))
    np.testing.assert_array_equal(at_once, chunked)
    # All queries are the same, and so is their nearest key.
    assert np.count_nonzero(np.any(np.asarray(at_once) != 0, axis=1)) == 1


@pytest.mark.parametrize("budget", [1, 10_000, 2**28])
@pytest.mark.parametrize("batch", [4, 50])
def test_nearest_does_not_depend_on_the_budget(budget: int, batch: int) -> None:
    memory = random_memory((300, 41), 2, dead=0.3).astype(np.float32)
    queries = np.random.default_rng(3).normal(size=(batch, 3)).astype(np.float32)
    queries[0] = memory.keys[memory.live][100]
    found = jax.jit(lambda b, q: -nearest(b, q, budget_bytes=budget).scores[:, 0])(
        memory.blocks(False), jnp.asarray(queries)
    )
    distances = np.sum((memory.keys[memory.live][:, None] - queries[None]) ** 2, axis=-1)
    np.testing.assert_allclose(found, distances.min(axis=0), rtol=1e-5)
    assert found[0] == 0


@pytest.mark.parametrize("case", [case for case in KERNELS if case.kernel.normalised], ids=str)
def test_chunks_far_apart_in_logits(case: KernelCase) -> None:
    """Later chunks whose logits are far above those before, and far below."""
    memory = random_memory((12,), 4)
    memory.keys[:] = np.linspace(-1e3, 1e3, 12)[:, None] * np.ones(3)
    blocks, coefficients = (
        memory.astype(np.float32).blocks(True),
        memory.astype(np.float32).coefficients(True),
    )
    queries = jnp.array([[1.0, 1, 1], [-1, -1, -1], [0, 0, 0]], jnp.float32)
    with following(Plan(QUERIES_FIRST, 4, 4)):
        found = np.asarray(retrieve(case.kernel, blocks, coefficients, queries))
    assert np.isfinite(found).all()
    for query, entry in ((0, 11), (1, 0)):
        weight = memory.weights[entry] * memory.weight_coefficients[entry]
        expected = memory.value_coefficients[entry] * memory.values[entry] / weight
        np.testing.assert_allclose(found[query], expected, rtol=1e-5)
