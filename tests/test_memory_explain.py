"""Contributions add up to the answer they explain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.coefficients import Clock, Clocks, block_coefficients, device_table
from lamina.memory.database import Database, Rows, empty_database, write
from lamina.memory.explain import explain
from lamina.memory.retrieval import retrieve
from lamina.memory.sharding import ONE_DEVICE, Shards
from memory_reference import KERNELS, KernelCase

ENTRIES, FEATURES, VALUES = 13, 4, 3


def database(case: KernelCase, shards: Shards) -> Database:
    """Thirteen entries of three steps in 24 slots, out of order, between empty slots."""
    draw = np.random.default_rng(2)
    found = empty_database(24, FEATURES, VALUES, weighted=case.kernel.normalised, shards=shards)
    for step, count in enumerate((3, 4, 6)):
        rows = Rows(
            jnp.asarray(draw.normal(size=(count, FEATURES)), jnp.float32),
            jnp.asarray(draw.normal(size=(count, VALUES)), jnp.float32),
            jnp.asarray(draw.uniform(0.5, 1, count), jnp.float32) if found.weighted else None,
            jnp.arange(count, dtype=jnp.int32) + 100 * step,
        )
        slots = jnp.asarray(7 * step + draw.permutation(count), jnp.int32)
        found = write(found, slots, rows, jnp.int32(step))
    return found


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_amounts_add_up_to_the_answer(case: KernelCase, devices: int) -> None:
    shards = ONE_DEVICE if devices == 1 else Shards.over(devices)
    memory = database(case, shards)
    clock = Clock.start().advance(momentum=0.5, decay=0.1).advance(momentum=0.5, decay=0.1)
    table = device_table(Clocks.both(clock), jnp.float32)
    query = jnp.asarray(np.random.default_rng(4).normal(size=FEATURES), jnp.float32)
    coefficients = tuple(block_coefficients(block, table) for block in memory.blocks)
    answer = retrieve(case.kernel, memory.blocks, coefficients, query[None], shards=shards)[0]

    for direction, whole in ((None, jnp.linalg.norm(answer)), (jax.nn.one_hot(1, VALUES), answer[1])):
        found = explain(case.kernel, memory, table, query, count=99, direction=direction)
        assert len(found) == ENTRIES
        amounts = np.array([each.amount for each in found])
        np.testing.assert_allclose(amounts.sum(), whole, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose([each.share for each in found], amounts / whole, rtol=1e-3, atol=1e-5)
        assert (np.diff(np.abs(amounts)) <= 0).all()
        for each in found:
            assert memory.column("origin")[each.slot] == each.origin
            assert memory.column("created")[each.slot] == each.created


def test_fewer_are_the_largest_of_all() -> None:
    memory = database(KERNELS[1], ONE_DEVICE)
    query = jnp.ones(FEATURES)
    assert (
        explain(KERNELS[1].kernel, memory, None, query, count=4)
        == explain(KERNELS[1].kernel, memory, None, query, count=99)[:4]
    )


def test_an_empty_memory_has_nothing_to_say() -> None:
    memory = empty_database(8, FEATURES, VALUES, weighted=False)
    assert explain(KERNELS[1].kernel, memory, None, jnp.ones(FEATURES)) == []
