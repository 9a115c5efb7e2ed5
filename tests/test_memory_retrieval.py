"""Retrieval and its hand-written backward pass, for every kernel of `memory_reference.KERNELS`."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.kernels import RBF
from lamina.memory.orientation import ENTRIES_FIRST, QUERIES_FIRST
from lamina.memory.plan import Plan
from lamina.memory.retrieval import retrieve
from memory_reference import (
    KERNELS,
    NORMALISED,
    SUMMED,
    KernelCase,
    Memory,
    answer,
    finite_differences,
    random_memory,
)
from memory_reference import (
    run as retrieved,
)

every_kernel = pytest.mark.parametrize("case", KERNELS, ids=str)

ONE, SEVERAL = (11,), (3, 1, 7)
MEMORIES = {
    "one block": random_memory(ONE, 1),
    "one block, coefficients 1": random_memory(ONE, 2, ones=True),
    "several blocks": random_memory(SEVERAL, 3),
    "several blocks, empty slots between": random_memory(SEVERAL, 4, dead=0.4),
    "a block without entries": replace(
        random_memory(SEVERAL, 5), live=np.array([1] * 3 + [0] + [1] * 7, bool)
    ),
}
every_memory = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())

PLANS = {
    "as chosen": None,  # for so little: blocks whole, entries first
    "chunks of 4, queries first": Plan(QUERIES_FIRST, 4, 4),
}


OTHER_PLANS = (
    Plan(ENTRIES_FIRST, 1, 1),
    Plan(ENTRIES_FIRST, 4, 5),
    Plan(QUERIES_FIRST, 4, 3),
    Plan(QUERIES_FIRST, 100, 2),
    Plan(QUERIES_FIRST, None, None),
)
Run = Callable[..., tuple[np.ndarray, list[np.ndarray | None]]]


@pytest.fixture(params=PLANS.values(), ids=PLANS.keys())
def run(request: pytest.FixtureRequest) -> Run:
    """Retrieval by either plan, which are held to every contract below."""
    return partial(retrieved, plan=request.param)


def draw(seed: int, batch: int = 4) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(batch, 3)), random.normal(size=(batch, 2))


@every_kernel
@every_memory
def test_value_and_all_gradients(run: Run, case: KernelCase, memory: Memory) -> None:
    queries, cotangent = draw(10)

    def loss(keys: Any, values: Any, weights: Any, queries: Any, xp: Any = np) -> Any:
        changed = replace(memory, keys=keys, values=values, weights=weights)
        return xp.sum(answer(case, changed, queries, xp) * cotangent)

    at = [memory.keys, memory.values, memory.weights, queries]
    with jax.enable_x64(True):
        value, found = run(case, memory, queries, cotangent)
        exact = jax.grad(partial(loss, xp=jnp), argnums=(0, 1, 2, 3))(*(jnp.asarray(a) for a in at))
    np.testing.assert_allclose(value, answer(case, memory, queries), rtol=1e-12, atol=1e-14)
    for number in range(4):
        if number == 2 and not case.kernel.normalised:
            continue
        slow = finite_differences(lambda a, n=number: float(loss(*at[:n], a, *at[n + 1 :])), at[number])
        np.testing.assert_allclose(found[number], exact[number], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found[number], slow, rtol=1e-6, atol=1e-8)
    for gradient in found[:3]:
        assert gradient is None or not gradient[~memory.live].any()


@every_kernel
def test_every_plan_gives_the_same(case: KernelCase) -> None:
    memory, (queries, cotangent) = MEMORIES["several blocks, empty slots between"], draw(24)
    with jax.enable_x64(True):
        value, gradients = retrieved(case, memory, queries, cotangent)
        for plan in OTHER_PLANS:
            other_value, other = retrieved(case, memory, queries, cotangent, plan=plan)
            np.testing.assert_allclose(other_value, value, rtol=1e-12, atol=1e-14, err_msg=str(plan))
            for found, expected in zip(other, gradients, strict=True):
                if expected is not None:
                    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13, err_msg=str(plan))


@every_kernel
def test_entries_are_constants_unless_trained(run: Run, case: KernelCase) -> None:
    memory, (queries, cotangent) = MEMORIES["several blocks"].astype(np.float32), map(np.float32, draw(11))
    value, gradients = run(case, memory, queries, cotangent)
    other_value, other = run(case, memory, queries, cotangent, trained=False)
    np.testing.assert_array_equal(value, other_value)
    np.testing.assert_array_equal(gradients[3], other[3])
    assert all(g is None or not g.any() for g in other[:3])


@every_kernel
def test_cutting_into_blocks_changes_nothing(run: Run, case: KernelCase) -> None:
    queries, cotangent = draw(12)
    memory = MEMORIES["several blocks, empty slots between"]
    with jax.enable_x64(True):
        value, gradients = run(case, memory, queries, cotangent)
        other_value, other = run(case, replace(memory, sizes=ONE), queries, cotangent)
    np.testing.assert_allclose(value, other_value, rtol=1e-13, atol=1e-15)
    for found, expected in zip(gradients, other, strict=True):
        if found is not None and expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@every_kernel
def test_empty_database_answers_zeros(run: Run, case: KernelCase) -> None:
    memory = replace(MEMORIES["several blocks"], live=np.zeros(11, bool))
    value, gradients = run(case, memory.astype(np.float32), *map(np.float32, draw(13)))
    np.testing.assert_array_equal(value, np.zeros((4, 2)))
    for gradient in gradients:
        assert gradient is None or not gradient.any()


@every_kernel
def test_one_entry(run: Run, case: KernelCase) -> None:
    memory = replace(MEMORIES["several blocks"], live=np.arange(11) == 5)
    queries, cotangent = draw(14)
    value, _ = run(case, memory.astype(np.float32), np.float32(queries), np.float32(cotangent))
    expected = memory.value_coefficients[5] * memory.values[5]
    if case.kernel.normalised:
        expected = np.broadcast_to(expected / (memory.weights[5] * memory.weight_coefficients[5]), (4, 2))
    else:
        expected = case.formula(np, memory.keys[5], queries)[:, None] * expected
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@every_kernel
def test_duplicate_keys_act_as_one_entry_of_summed_value_and_weight(run: Run, case: KernelCase) -> None:
    memory = random_memory(SEVERAL, 6, ones=True)
    twins = replace(memory, keys=np.where(np.arange(11)[:, None] == 7, memory.keys[2], memory.keys))
    merged = replace(twins, values=twins.values.copy(), weights=twins.weights.copy(), live=np.arange(11) != 7)
    merged.values[2] += twins.values[7]
    merged.weights[2] += twins.weights[7]
    queries, cotangent = draw(15)
    with jax.enable_x64(True):
        value, gradients = run(case, twins, queries, cotangent)
        other_value, other = run(case, merged, queries, cotangent)
    np.testing.assert_allclose(value, other_value, rtol=1e-12)
    np.testing.assert_allclose(gradients[3], other[3], rtol=1e-11, atol=1e-13)


@every_kernel
def test_a_query_that_is_a_key(run: Run, case: KernelCase) -> None:
    memory = MEMORIES["several blocks"]
    queries, cotangent = memory.keys[[0, 3, 4, 10]], draw(16)[1]
    value, gradients = run(case, memory.astype(np.float32), np.float32(queries), np.float32(cotangent))
    slow = finite_differences(lambda q: float(np.sum(answer(case, memory, q) * cotangent)), queries)
    np.testing.assert_allclose(value, answer(case, memory, queries), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[3], slow, rtol=1e-4, atol=1e-5)


def test_rbf_at_its_only_key_is_the_value_with_gradient_zero(run: Run) -> None:
    memory = replace(MEMORIES["several blocks"], live=np.arange(11) == 5)
    with jax.enable_x64(True):
        value, gradients = run(KernelCase(RBF(0.8), np.sum), memory, memory.keys[[5] * 4], draw(17)[1])
    np.testing.assert_allclose(value, [memory.value_coefficients[5] * memory.values[5]] * 4, rtol=1e-13)
    np.testing.assert_allclose(gradients[3], 0, atol=1e-13)


@every_kernel
def test_float32_agrees_with_float64(run: Run, case: KernelCase) -> None:
    memory, (queries, cotangent) = MEMORIES["several blocks, empty slots between"], draw(18)
    single = run(case, memory.astype(np.float32), np.float32(queries), np.float32(cotangent))
    with jax.enable_x64(True):
        double = run(case, memory, queries, cotangent)
    assert single[0].dtype == np.float32
    assert double[0].dtype == np.float64
    for found, expected in zip([single[0], *single[1]], [double[0], *double[1]], strict=True):
        if expected is not None and found is not None:
            assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@every_kernel
@pytest.mark.parametrize("scale", [1e-30, 1e6])
def test_any_magnitude_is_finite(run: Run, case: KernelCase, scale: float) -> None:
    memory, (queries, cotangent) = MEMORIES["several blocks"], draw(19)
    memory = replace(memory, keys=scale * memory.keys).astype(np.float32)
    queries = np.float32(np.concatenate([scale * queries[:3], memory.keys[:1]]))
    value, gradients = run(case, memory, queries, np.float32(cotangent))
    assert np.isfinite(value).all()
    assert all(g is None or np.isfinite(g).all() for g in gradients)
    if case.kernel.normalised:
        with np.errstate(under="ignore"):
            expected = answer(case, memory.astype(np.float64), np.float64(queries))
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", NORMALISED, ids=str)
def test_no_weight_at_all_answers_the_prior(run: Run, case: KernelCase) -> None:
    memory = MEMORIES["several blocks"]
    memory = replace(memory, weights=np.zeros(11)).astype(np.float32)
    value, gradients = run(case, memory, *map(np.float32, draw(20)))
    np.testing.assert_array_equal(value, np.zeros((4, 2)))
    assert all(g is not None and not g.any() for g in gradients)


@pytest.mark.parametrize("case", SUMMED, ids=str)
def test_twice_the_values_is_twice_the_answer(run: Run, case: KernelCase) -> None:
    memory, (queries, cotangent) = MEMORIES["several blocks"], draw(21)
    memory = memory.astype(np.float32)
    once, _ = run(case, memory, np.float32(queries), np.float32(cotangent))
    twice, _ = run(
        case, replace(memory, values=2 * memory.values), np.float32(queries), np.float32(cotangent)
    )
    np.testing.assert_array_equal(twice, 2 * once)


@every_kernel
def test_forward_and_backward_are_two_products_each(case: KernelCase) -> None:
    """Each product is a pass over the keys or the values: what a step costs."""
    normalised = case.kernel.normalised
    memory = MEMORIES["one block"].astype(np.float32)
    blocks, coefficients = memory.blocks(normalised), memory.coefficients(normalised)

    def loss(queries: jax.Array) -> jax.Array:
        return jnp.sum(retrieve(case.kernel, blocks, coefficients, queries))

    assert str(jax.make_jaxpr(jax.grad(loss))(jnp.ones((4, 3)))).count("dot_general") == 4
