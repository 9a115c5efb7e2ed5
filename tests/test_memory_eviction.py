"""Caps and evictions by hand."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.admission import Decision
from lamina.memory.append import Occupancy, append
from lamina.memory.coefficients import block_coefficients
from lamina.memory.database import EMPTY, INITIAL, Database, Rows, empty_database, write
from lamina.memory.kernels import RBF
from lamina.memory.policy import EVICTIONS, MemoryConfig
from lamina.memory.retrieval import retrieve
from lamina.memory.sharding import ONE_DEVICE, Shards

KERNEL = RBF(1.0)


def offer(
    policy: MemoryConfig,
    steps: list[list[float]],
    *,
    initial: int = 0,
    slots: int | None = None,
    seed: int = 3,
) -> tuple[Database, list[list[int]]]:
    """Offers values step by step; returns the database and what changed at each step."""
    database = empty_database(slots or policy.initial_capacity, 2, 1, weighted=False)
    if initial:
        first = Rows(jnp.zeros((initial, 2)), jnp.zeros((initial, 1)), None, jnp.full(initial, -1))
        database = write(database, jnp.arange(initial), first, jnp.int32(INITIAL))
        database = replace(database, entries=jnp.int32(initial))
    occupancy, changes, origin = Occupancy.of(database, holes=False), [], 0
    draw = np.random.default_rng(5)
    for step, values in enumerate(steps, 1):
        count = len(values)
        column = jnp.asarray(values, jnp.float32)[:, None]
        keys = jnp.asarray(draw.normal(size=(count, 2)), jnp.float32)
        new = Rows(keys, column, None, jnp.arange(origin, origin + count, dtype=jnp.int32))
        database, occupancy, change = append(
            policy, KERNEL, database, occupancy, None, new, Decision.everything(count), step, seed=seed
        )
        origin += count
        changes.append(change.tolist())
    return database, changes


def live_origins(database: Database) -> set[int]:
    return set(database.column("origin")[database.column("created") > INITIAL].tolist())


def test_at_the_cap_none_keeps_the_first_come() -> None:
    database, changes = offer(MemoryConfig(initial_capacity=4, capacity=6), [[1, 1, 1, 1]] * 3)
    assert live_origins(database) == set(range(6))
    assert changes == [[4, 0, 0, 0, 0], [2, 0, 2, 0, 0], [0, 0, 4, 0, 0]]


def test_at_the_cap_oldest_is_a_sliding_window_of_steps() -> None:
    policy = MemoryConfig(initial_capacity=4, capacity=6, eviction="oldest")
    database, changes = offer(policy, [[1, 1, 1, 1]] * 3)
    assert sorted(database.column("created").tolist()) == [2, 2, 3, 3, 3, 3]
    assert changes == [[4, 0, 0, 0, 0], [4, 0, 0, 0, 2], [4, 0, 0, 0, 4]]
    whole, _ = offer(replace_capacity(policy, 8), [[1, 1, 1, 1]] * 5)
    assert live_origins(whole) == set(range(12, 20))


def test_at_the_cap_the_smallest_give_way_even_in_the_step_that_grows_to_it() -> None:
    policy = MemoryConfig(initial_capacity=4, capacity=6, eviction="smallest")
    database, changes = offer(policy, [[5, -1, 3, 2], [0.5, 0.5, 9, -9]])
    assert live_origins(database) == {0, 2, 4, 5, 6, 7}
    assert changes[1] == [4, 0, 0, 0, 2]


@pytest.mark.parametrize("eviction", list(EVICTIONS))
def test_a_batch_larger_than_the_cap_fills_it(eviction: Any) -> None:
    policy = MemoryConfig(initial_capacity=4, capacity=6, eviction=eviction)
    database, changes = offer(policy, [[1.0] * 9, [2.0] * 9])
    if eviction in ("none", "oldest", "smallest", "random"):
        assert live_origins(database) == ({*range(6)} if eviction == "none" else {*range(9, 15)})
    assert int(database.entries) == len(live_origins(database)) == 6
    assert [sum(change[:3]) for change in changes] == [9, 9]


@pytest.mark.parametrize("eviction", ["oldest", "smallest", "random"])
def test_initial_entries_never_give_way(eviction: Any) -> None:
    policy = MemoryConfig(initial_capacity=4, capacity=6, eviction=eviction)
    database, changes = offer(policy, [[1, 1, 1]] * 4, initial=4)
    assert (database.column("created")[:4] == INITIAL).all()
    assert changes[-1] == [2, 0, 1, 0, 2]
    full, changes = offer(replace_capacity(policy, 4), [[1, 1, 1]], initial=4)
    assert (full.column("created") == INITIAL).all()
    assert changes == [[0, 0, 3, 0, 0]]


def replace_capacity(policy: MemoryConfig, capacity: int) -> MemoryConfig:
    return MemoryConfig(initial_capacity=policy.initial_capacity, capacity=capacity, eviction=policy.eviction)


@pytest.mark.parametrize("eviction", list(EVICTIONS))
def test_a_cap_below_the_slots_of_a_loaded_database_holds(eviction: Any) -> None:
    """As when a run goes on from another's memory under a lower cap."""
    policy = MemoryConfig(initial_capacity=4, capacity=5, eviction=eviction)
    database, changes = offer(policy, [[1, 1, 1]] * 3, slots=16)
    assert int(database.entries) == 5
    assert np.count_nonzero(database.column("created") != EMPTY) == 5
    if eviction in ("none", "oldest", "smallest", "random"):
        evicted = 0 if eviction == "none" else 1
        assert changes[1] == [2 + evicted, 0, 1 - evicted, 0, evicted]
    above, changes = offer(policy, [[1, 1, 1]], initial=7, slots=16)  # above the cap to begin with
    assert int(above.entries) == 7
    assert changes == [[0, 3, 0, 0, 0] if eviction == "merge_nearest" else [0, 0, 3, 0, 0]]


@pytest.mark.parametrize("eviction", ["random", "reservoir"])
def test_every_offer_is_as_likely_to_be_there_in_the_end(eviction: Any) -> None:
    """Under `reservoir` all alike; under `random` the later ones are likelier. Seeds decide, and fix it."""
    steps, kept = [[1.0] * 4] * 10, np.zeros(40)
    policy = MemoryConfig(initial_capacity=4, capacity=12, eviction=eviction)
    for seed in range(120):
        kept[list(live_origins(offer(policy, steps, seed=seed)[0]))] += 1
    assert live_origins(offer(policy, steps, seed=1)[0]) == live_origins(offer(policy, steps, seed=1)[0])
    expected, halves = 120 * 12 / 40, kept.reshape(2, 20).sum(axis=1)
    if eviction == "reservoir":
        chi_square = np.sum((kept - expected) ** 2) / (expected * (1 - 12 / 40))
        assert chi_square < 73.4  # 99.9 % of a χ² of 40 degrees of freedom
        assert abs(halves[0] - halves[1]) < 120
    else:
        assert halves[1] > 5 * halves[0]


def test_a_reservoir_keeps_the_tokens_of_one_example_apart() -> None:
    policy = MemoryConfig(initial_capacity=4, capacity=8, eviction="reservoir")
    database, occupancy = empty_database(4, 2, 1, weighted=False), Occupancy(0, 0)
    draw = np.random.default_rng(6)
    for step in range(1, 6):
        keys = jnp.asarray(draw.normal(size=(8, 2)), jnp.float32)
        rows = Rows(keys, jnp.ones((8, 1)), None, jnp.full(8, step, jnp.int32))
        database, occupancy, _ = append(
            policy, KERNEL, database, occupancy, None, rows, Decision.everything(8), step
        )
    assert len(set(database.column("origin").tolist())) >= 3  # not one example with all its tokens


def merged(devices: Shards, candidates: int = 64) -> tuple[Database, list[list[int]], np.ndarray]:
    """40 random entries in a memory for 16, and how far the function is from that of all 40."""
    policy = MemoryConfig(
        initial_capacity=16, capacity=16, eviction="merge_nearest", merge_candidates=candidates
    )
    draw = np.random.default_rng(7)
    database, occupancy, changes = (
        empty_database(16, 2, 1, weighted=False, shards=devices),
        Occupancy(0, 0),
        [],
    )
    keys, values = draw.normal(size=(40, 2)), draw.normal(size=(40, 1))
    for step in range(10):
        chosen = slice(4 * step, 4 * step + 4)
        rows = Rows(
            jnp.asarray(keys[chosen], jnp.float32),
            jnp.asarray(values[chosen], jnp.float32),
            None,
            jnp.arange(4 * step, 4 * step + 4, dtype=jnp.int32),
        )
        database, occupancy, change = append(
            policy, KERNEL, database, occupancy, None, rows, Decision.everything(4), step + 1
        )
        changes.append(change.tolist())
    queries = draw.normal(size=(50, 2))
    coefficients = tuple(block_coefficients(block, None) for block in database.blocks)
    found = retrieve(KERNEL, database.blocks, coefficients, jnp.asarray(queries, jnp.float32), shards=devices)
    square = np.sum((keys[:, None] - queries[None]) ** 2, axis=2)
    exact = np.exp(-square / (2 * np.sqrt(2))).T @ values
    return database, changes, np.asarray(found) - exact


def test_merging_the_nearest_loses_less_of_the_function_than_forgetting() -> None:
    database, changes, difference = merged(ONE_DEVICE)
    assert int(database.entries) == 16
    assert changes[3:4] == [[4, 0, 0, 0, 0]]
    assert all(change[2] == 0 and change[0] + change[1] == 4 for change in changes)  # nothing is lost
    assert np.sum(database.column("values")) == pytest.approx(
        np.sum(np.random.default_rng(7).normal(size=120)[80:]), rel=1e-4
    )  # all values are still there, in fewer entries
    forgotten, _ = offer(MemoryConfig(initial_capacity=16, capacity=16, eviction="oldest"), [[1.0] * 4] * 10)
    assert len(live_origins(forgotten)) == 16
    assert np.sqrt(np.mean(difference**2)) < 0.5


def test_four_devices_merge_as_one() -> None:
    one, four = merged(ONE_DEVICE), merged(Shards.over(4))
    assert one[1] == four[1]
    for column in ("origin", "created", "changed"):
        np.testing.assert_array_equal(one[0].column(column), four[0].column(column))
    np.testing.assert_allclose(four[0].column("values"), one[0].column("values"), rtol=1e-5)


def test_few_candidates_still_hold_the_cap() -> None:
    database, changes, _ = merged(ONE_DEVICE, candidates=1)
    assert int(database.entries) == 16
    assert all(change[2] == 0 for change in changes)


def test_a_batch_larger_than_a_growth_step_grows_several_times() -> None:
    database, changes = offer(MemoryConfig(initial_capacity=1), [[1.0] * 200])
    assert live_origins(database) == set(range(200))
    assert [block.slots for block in database.blocks] == [1, 63, 64, 64, 128]
    assert changes == [[200, 0, 0, 0, 0]]
