"""Pruning, forgetting and folding by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.admission import Decision
from lamina.memory.append import Occupancy, append
from lamina.memory.coefficients import Clock, Clocks, CoefficientTable, block_coefficients, device_table
from lamina.memory.database import EMPTY, INITIAL, Database, Rows, empty_database, grow, write
from lamina.memory.folding import fold_equal
from lamina.memory.kernels import RBF, Kernel, Linear, WeightedSoftmax
from lamina.memory.policy import MemoryConfig
from lamina.memory.pruning import forget, prune
from lamina.memory.retrieval import retrieve
from lamina.memory.sharding import ONE_DEVICE, Shards
from memory_reference import KERNELS, KernelCase

KERNEL = RBF(0.7)
answers = jax.jit(retrieve, static_argnums=0, static_argnames="shards")


def faded(steps: int, momentum: float, decay: float) -> Clock:
    clock = Clock.start()
    for _ in range(steps):
        clock = clock.advance(momentum=momentum, decay=decay)
    return clock


def table_of(clock: Clock) -> CoefficientTable:
    return device_table(Clocks.both(clock), jnp.float32)


def filled(values: list[float]) -> Database:
    """Entries of step 1 with the given values."""
    database, count = empty_database(4, 2, 1, weighted=False), len(values)
    rows = Rows(jnp.zeros((count, 2)), jnp.asarray(values)[:, None], None, jnp.arange(count, dtype=jnp.int32))
    database = write(database, jnp.arange(count), rows, jnp.int32(1))
    return replace(database, entries=jnp.int32(count))


def test_an_entry_that_momentum_will_raise_is_not_pruned() -> None:
    clock = faded(1, 0.9, 0.0)  # of coefficient 1 now, 10 in the end
    tables = table_of(clock), table_of(clock.bounded(0.9))
    kept = prune(KERNEL, filled([0.4]), Occupancy(1, 1), *tables, 0.5, 1)
    assert (kept.entries, kept.bound, kept.occupancy.holes) == (0, 0.0, False)
    gone = prune(KERNEL, kept.database, kept.occupancy, *tables, 4.1, 1)
    assert (gone.entries, gone.occupancy, int(gone.database.entries)) == (1, Occupancy(0, 0, True), 0)
    assert gone.bound == pytest.approx(4.0)


def test_pruning_needs_both_value_and_weight_to_be_small() -> None:
    database = empty_database(4, 2, 1, weighted=True)
    values, weights = jnp.asarray([[0.1], [2.0], [0.1], [0.1]]), jnp.asarray([0.1, 0.1, 2.0, 0.1])
    new = Rows(jnp.zeros((4, 2)), values, weights, jnp.arange(4, dtype=jnp.int32))
    database = write(database, jnp.arange(4), new, jnp.int32(1))
    database = replace(database, entries=jnp.int32(4))
    before = [block.keys.unsafe_buffer_pointer() for block in database.blocks]
    pruned = prune(WeightedSoftmax(1.0), database, Occupancy(4, 4), None, None, 1.0, 5)
    database = pruned.database
    assert pruned.entries == 2
    assert database.column("created").tolist() == [EMPTY, 1, 1, EMPTY]
    assert database.column("changed").tolist() == [5, 1, 1, 5]
    assert [block.keys.unsafe_buffer_pointer() for block in database.blocks] == before


@pytest.mark.parametrize("seed", range(3))
def test_pruning_changes_an_rbf_layer_by_no_more_than_it_says(seed: int) -> None:
    """Now, and at any later step that momentum and decay lead to."""
    random = np.random.default_rng(seed)
    momentum, decay = 0.8, 0.05
    database = grow(empty_database(16, 2, 1, weighted=False), 32)
    clock = faded(8, momentum, decay)
    for step in range(1, 9):
        values = jnp.asarray(random.normal(size=(4, 1)) * 10.0 ** random.integers(-3, 1, (4, 1)), jnp.float32)
        keys = jnp.asarray(random.normal(size=(4, 2)), jnp.float32)
        slots = jnp.arange(4 * step - 4, 4 * step, dtype=jnp.int32)
        database = write(database, slots, Rows(keys, values, None, slots), jnp.int32(step))
    whole = jax.tree.map(jnp.array, database.blocks)
    tables = table_of(clock), table_of(clock.bounded(momentum))
    pruned = prune(KERNEL, database, Occupancy(32, 32), *tables, 0.3, 8)
    assert 0 < pruned.entries < 32
    queries = jnp.asarray(random.normal(size=(64, 2)), jnp.float32)
    largest = 0.0
    for _ in range(12):
        table = device_table(Clocks.both(clock), jnp.float32)
        before, after = (
            answers(KERNEL, blocks, tuple(block_coefficients(b, table) for b in blocks), queries)
            for blocks in (whole, pruned.database.blocks)
        )
        largest = max(largest, float(jnp.max(jnp.abs(before - after))))
        clock = clock.advance(momentum=momentum, decay=decay)
    assert 0 < largest <= pruned.bound


def test_pruned_slots_are_filled_again() -> None:
    policy = MemoryConfig(initial_capacity=4)
    pruned = prune(KERNEL, filled([1, 0.1, 1]), Occupancy(3, 3), None, None, 0.5, 1)
    new = Rows(jnp.ones((2, 2)), jnp.ones((2, 1)), None, jnp.asarray([7, 8], jnp.int32))
    database, _, change = append(
        policy, KERNEL, pruned.database, pruned.occupancy, None, new, Decision.everything(2), 2
    )
    assert database.column("origin").tolist() == [0, 7, 2, 8]
    assert change.tolist() == [2, 0, 0, 0, 0]
    assert database.capacity == 4


def random_database(kernel: Kernel, *, shards: Shards = ONE_DEVICE, twins: bool = False) -> Database:
    """36 entries of 9 steps, after 4 initial ones where weights are needed; keys of norm √2 (RMS 1)."""
    draw = np.random.default_rng(9)
    database = empty_database(44, 2, 3, weighted=kernel.normalised, shards=shards)
    first = 4 if kernel.normalised else 0
    for step in range(0 if first else 1, 10):
        keys = draw.normal(size=(4, 2))
        keys = (keys if not twins else np.round(keys)) + 0.0
        keys = keys if twins else keys * np.sqrt(2 / np.sum(keys**2, axis=1, keepdims=True))
        size = 1.0 if step == 0 else 10.0 ** draw.uniform(-4, 0)
        rows = Rows(
            jnp.asarray(keys, jnp.float32),
            jnp.asarray(size * draw.normal(size=(4, 3)), jnp.float32),
            jnp.asarray(size * draw.uniform(0.2, 1, size=4), jnp.float32) if kernel.normalised else None,
            jnp.arange(4 * step, 4 * step + 4, dtype=jnp.int32),
        )
        slots = jnp.arange(4 * step, 4 * step + 4) - (0 if first else 4)
        database = write(database, slots, rows, jnp.int32(step))
    return replace(database, entries=jnp.int32(36 + first))


def answer(
    kernel: Kernel, database: Database, queries: np.ndarray, table: CoefficientTable | None = None
) -> np.ndarray:
    coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
    inputs = jnp.asarray(queries, jnp.float32)
    return np.asarray(answers(kernel, database.blocks, coefficients, inputs, shards=database.shards))


@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_the_bound_holds_for_every_kernel_and_query(case: KernelCase) -> None:
    draw = np.random.default_rng(10)
    queries = draw.normal(size=(200, 2))
    queries *= np.sqrt(2) / np.linalg.norm(queries, axis=1, keepdims=True) * draw.uniform(0, 1, (200, 1))
    database = random_database(case.kernel)
    before = answer(case.kernel, database, queries)
    pruned = prune(case.kernel, database, Occupancy.of(database, holes=False), None, None, 0.05, 9)
    change = np.linalg.norm(answer(case.kernel, pruned.database, queries) - before, axis=1)
    assert 4 <= pruned.entries <= 32
    assert 0 < change.max() <= pruned.bound < np.inf


@pytest.mark.parametrize("case", KERNELS[:3], ids=str)
def test_nothing_pruned_changes_nothing(case: KernelCase) -> None:
    database = random_database(case.kernel)
    pruned = prune(case.kernel, database, Occupancy.of(database, holes=False), None, None, 1e-9, 9)
    assert (pruned.entries, pruned.bound) == (0, 0.0)


@pytest.mark.parametrize("shards", [1, 4])
def test_forgetting_removes_the_entries_of_the_examples_named(shards: int) -> None:
    database = random_database(KERNEL, shards=Shards.over(shards))
    occupancy = Occupancy.of(database, holes=False)
    database, occupancy, count = forget(database, occupancy, jnp.asarray([5, 17, 999]), 10)
    left = set(database.column("origin")[database.column("created") != EMPTY].tolist())
    assert (count, left, occupancy) == (2, {*range(4, 40)} - {5, 17}, Occupancy(34, 34, True))
    assert database.counters.tolist() == [0, 0, 0, 2, 0]


def test_the_initial_function_is_not_forgotten() -> None:
    database = random_database(WeightedSoftmax(1.0))
    before = np.count_nonzero(database.column("created") == INITIAL)
    database, _, count = forget(database, Occupancy.of(database, holes=False), jnp.arange(40), 10)
    assert (before, count) == (4, 36)
    assert (database.column("created") == INITIAL).sum() == 4


@pytest.mark.parametrize("kernel", [KERNEL, Linear(), WeightedSoftmax(1.0)], ids=str)
@pytest.mark.parametrize("shards", [1, 4])
def test_equal_keys_fold_without_any_change(kernel: Kernel, shards: int) -> None:
    queries = np.random.default_rng(11).normal(size=(20, 2))
    database = random_database(kernel, shards=Shards.over(shards), twins=True)
    keys = database.column("keys")[database.column("created") != EMPTY]
    before = answer(kernel, database, queries)
    database, folded = fold_equal(database, None, 10)
    live = database.column("created") != EMPTY
    assert int(database.entries) == live.sum() == len(np.unique(keys, axis=0)) < len(keys)
    assert len(folded) == len(keys) - live.sum()
    assert all(kept <= gone for gone, kept in folded)
    assert len(np.unique(database.column("keys")[live], axis=0)) == live.sum()
    np.testing.assert_allclose(answer(kernel, database, queries), before, rtol=1e-4, atol=1e-5)
    again, folded = fold_equal(database, None, 11)
    assert (folded, int(again.entries)) == ([], live.sum())


def test_folding_is_exact_under_decay_and_approximate_under_momentum() -> None:
    """Coefficients that fade alike stay in proportion; those that momentum raises do not."""
    queries = np.random.default_rng(12).normal(size=(20, 2))
    worst = {}
    for momentum, decay in [(0.0, 0.2), (0.9, 0.0)]:
        clock = faded(9, momentum, decay)
        apart, database = random_database(KERNEL, twins=True), random_database(KERNEL, twins=True)
        database, folded = fold_equal(database, table_of(clock), 9)
        assert folded
        now = answer(KERNEL, apart, queries, table_of(clock))
        np.testing.assert_allclose(
            answer(KERNEL, database, queries, table_of(clock)), now, rtol=1e-4, atol=1e-5
        )
        for _ in range(5):
            clock = clock.advance(momentum=momentum, decay=decay)
        later = [answer(KERNEL, each, queries, table_of(clock)) for each in (apart, database)]
        worst[momentum] = np.abs(later[0] - later[1]).max() / np.abs(later[0]).max()
    assert worst[0.0] < 1e-5
    assert 1e-3 < worst[0.9]
