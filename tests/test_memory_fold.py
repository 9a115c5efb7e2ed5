"""The fold: parts merge in any order and grouping, and gradients find their way back into each."""

from functools import reduce
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.database import Block
from lamina.memory.fold import Cotangent, Partial, cotangent, finish, merge, nothing
from lamina.memory.scores import Coefficients, Entries, gradients, partial_answer, score
from memory_reference import KERNELS, KernelCase, answer, random_memory

SIZES = (3, 1, 7)
every_kernel = pytest.mark.parametrize("case", KERNELS, ids=str)


def parts_of(
    case: KernelCase, blocks: tuple[Block, ...], coefficients: tuple[Coefficients, ...], q: jax.Array
) -> list[Partial]:
    entries = map(Entries.of, blocks)
    return [
        partial_answer(e, c, score(case.kernel, e, q)) for e, c in zip(entries, coefficients, strict=True)
    ]


@every_kernel
def test_any_order_and_grouping_gives_the_answer(case: KernelCase) -> None:
    memory = random_memory(SIZES, 1, dead=0.3)
    queries = np.random.default_rng(2).normal(size=(4, 3))
    with jax.enable_x64(True):
        weighted = case.kernel.normalised
        parts = parts_of(case, memory.blocks(weighted), memory.coefficients(weighted), jnp.asarray(queries))
        answers = [finish(reduce(merge, order)) for order in permutations(parts)]
        a, b, c = parts
        answers.append(finish(merge(a, merge(b, c))))
        none = nothing(4, 2, a.numerator.dtype, normalised=weighted)
        answers.append(finish(reduce(merge, [none, a, none, b, c])))
        assert not np.asarray(finish(merge(none, none))).any()
    for found in answers:
        np.testing.assert_allclose(found, answer(case, memory, queries), rtol=1e-12, atol=1e-14)


def test_a_part_whose_logits_are_far_below_adds_nothing_and_overflows_nothing() -> None:
    high = Partial(jnp.array([[2.0]]), jnp.array([1.0]), jnp.array([3e4]))
    low = Partial(jnp.array([[5.0]]), jnp.array([1.0]), jnp.array([-3e4]))
    for order in ((high, low), (low, high)):
        merged = merge(*order)
        assert finish(merged).tolist() == [[2.0]]
        assert np.isfinite(merged.numerator).all()
    back = cotangent(merged, jnp.ones((1, 1)))
    assert back.in_part(low.maximum).numerator.tolist() == [[0.0]]
    assert back.in_part(high.maximum).numerator.tolist() == [[1.0]]


@pytest.mark.parametrize("normalised", [False, True])
def test_cotangents_are_the_derivatives_of_merging_and_finishing(normalised: bool) -> None:
    draw = np.random.default_rng(3)
    with jax.enable_x64(True):
        numerators = jnp.asarray(draw.normal(size=(3, 4, 2)))
        denominators, maxima = (
            jnp.asarray(draw.uniform(0.5, 2, (3, 4))),
            jnp.asarray(draw.normal(size=(3, 4))),
        )
        gradient = jnp.asarray(draw.normal(size=(4, 2)))

        def whole(numerators: jax.Array, denominators: jax.Array) -> Partial:
            rows = zip(numerators, denominators, maxima, strict=True)
            return reduce(merge, [Partial(*row) if normalised else Partial(row[0]) for row in rows])

        exact = jax.grad(lambda *at: jnp.sum(finish(whole(*at)) * gradient), argnums=(0, 1))(
            numerators, denominators
        )
        back: Cotangent = cotangent(whole(numerators, denominators), gradient)
        for number in range(3):
            found = back.in_part(maxima[number] if normalised else None)
            np.testing.assert_allclose(found.numerator, exact[0][number], rtol=1e-12)
            if normalised:
                np.testing.assert_allclose(found.denominator, exact[1][number], rtol=1e-11)


@every_kernel
def test_gradients_of_parts_add_up(case: KernelCase) -> None:
    """What a reader of chunks does by hand: score, merge, finish, and back into each chunk."""
    memory, weighted = random_memory(SIZES, 4), case.kernel.normalised
    draw = np.random.default_rng(5)
    queries, gradient = draw.normal(size=(4, 3)), draw.normal(size=(4, 2))
    with jax.enable_x64(True):
        q, g = jnp.asarray(queries), jnp.asarray(gradient)
        blocks, coefficients = memory.blocks(weighted), memory.coefficients(weighted)
        back = cotangent(reduce(merge, parts_of(case, blocks, coefficients, q)), g)
        found = jnp.zeros_like(q)
        for e, c in zip(map(Entries.of, blocks), coefficients, strict=True):
            scores = score(case.kernel, e, q)
            found += gradients(case.kernel, e, c, scores, q, back, trained=False).queries
        exact = jax.grad(lambda q: jnp.sum(answer(case, memory, q, jnp) * g))(q)
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-12)
