"""Blocks, slots and growth: nothing is ever copied, and capacities are few."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.admission import Decision
from lamina.memory.append import Occupancy, append
from lamina.memory.database import (
    EMPTY,
    INITIAL,
    Database,
    Rows,
    empty_database,
    grow,
    write,
)
from lamina.memory.kernels import RBF
from lamina.memory.policy import MemoryConfig

COLUMNS = ("keys", "values", "weights", "created", "origin", "changed", "key_norms", "value_norms")


def rows(count: int, first: int = 0, *, weighted: bool = True) -> Rows:
    """Rows whose numbers tell which example they came from: `first`, `first + 1`, …"""
    number = jnp.arange(first, first + count)
    columns = jnp.stack([number, number + 0.5, -number], axis=1).astype(jnp.float32)
    return Rows(columns, columns[:, :2] + 1, columns[:, 0] if weighted else None, number.astype(jnp.int32))


def addresses(database: Database) -> list[dict[str, int]]:
    """Where each column of each block lies in memory."""
    return [
        {name: getattr(block, name).unsafe_buffer_pointer() for name in COLUMNS if name != "weights"}
        for block in database.blocks
    ]


def test_an_empty_database_holds_nothing() -> None:
    database = empty_database(5, 3, 2, weighted=True)
    assert (database.capacity, database.key_features, database.value_features) == (5, 3, 2)
    assert int(database.entries) == 0
    assert not database.blocks[0].live.any()
    assert (database.column("created") == EMPTY).all()
    assert (database.column("origin") == -1).all()
    # keys, values, weights and two norms in float32; created, origin and changed in int32.
    assert database.nbytes == 5 * 4 * (3 + 2 + 1 + 2 + 3)
    assert empty_database(5, 3, 2, weighted=False).nbytes == database.nbytes - 5 * 4


def test_float64_is_kept() -> None:
    with jax.enable_x64(True):
        database = grow(empty_database(2, 3, 2, weighted=True, dtype=jnp.float64))
        database = write(database, jnp.arange(3), rows(3), jnp.int32(1))
        floating = {name for name in COLUMNS if database.column(name).dtype == np.float64}
    assert floating == {"keys", "values", "weights", "key_norms", "value_norms"}


def test_growth_is_geometric_with_two_capacities_per_doubling() -> None:
    database = empty_database(1024, 1, 1, weighted=False)
    capacities = [database.capacity]
    while database.capacity < 2**15:
        database = grow(database)
        capacities.append(database.capacity)
    assert len(capacities) == 11
    assert all(1.4 < after / before < 1.5 for before, after in pairwise(capacities))
    assert all(capacity % 64 == 0 for capacity in capacities)


def test_growth_stops_at_the_limit() -> None:
    database = grow(grow(empty_database(4, 1, 1, weighted=False), 70), 70)
    assert [block.slots for block in database.blocks] == [4, 60, 6]
    with pytest.raises(ValueError, match=r"70 slots is at its limit of 70"):
        grow(database, 70)


def test_growth_keeps_the_very_same_blocks() -> None:
    database = write(empty_database(4, 3, 2, weighted=True), jnp.arange(4), rows(4), jnp.int32(1))
    grown = grow(database)
    assert grown.blocks[0] is database.blocks[0]
    assert not grown.blocks[1].live.any()


def test_written_rows_lie_in_their_slots_of_all_blocks() -> None:
    database = grow(empty_database(4, 3, 2, weighted=True), 9)
    slots = np.array([8, 3, 99, 4, 9])  # the third and the last are past the end: dropped
    before = addresses(database)
    database = write(database, jnp.asarray(slots, jnp.int32), rows(5, first=10), jnp.int32(7))
    assert addresses(database) == before
    expected = {8: 10, 3: 11, 4: 13}
    keys, values = database.column("keys"), database.column("values")
    for slot in range(9):
        if slot not in expected:
            assert database.column("created")[slot] == EMPTY
            assert not keys[slot].any()
            continue
        number = expected[slot]
        np.testing.assert_array_equal(keys[slot], [number, number + 0.5, -number])
        np.testing.assert_array_equal(values[slot], [number + 1, number + 1.5])
        assert database.column("weights")[slot] == number
        assert [database.column(n)[slot] for n in ("created", "origin", "changed")] == [7, number, 7]
        np.testing.assert_allclose(database.column("key_norms")[slot], np.sum(keys[slot] ** 2), rtol=1e-6)
        np.testing.assert_allclose(
            database.column("value_norms")[slot], np.linalg.norm(values[slot]), rtol=1e-6
        )


def test_writing_spares_the_blocks_before_the_first() -> None:
    database = grow(empty_database(4, 3, 2, weighted=False), 9)
    database = write(database, jnp.arange(4), rows(4, weighted=False), jnp.int32(1))
    first = database.blocks[0]
    slots = jnp.asarray([2, 5], jnp.int32)  # slot 2 lies in the spared block: dropped
    written = write(database, slots, rows(2, 50, weighted=False), jnp.int32(2), first=1)
    assert written.blocks[0] is first
    assert written.column("origin").tolist() == [0, 1, 2, 3, -1, 51, -1, -1, -1]


def test_writing_consumes_the_written_blocks() -> None:
    database = grow(empty_database(4, 3, 2, weighted=False), 9)
    write(database, jnp.arange(4, 6), rows(2, weighted=False), jnp.int32(1), first=1)
    assert not database.blocks[0].keys.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(database.blocks[1].keys)


def test_a_long_run_of_appends_copies_nothing() -> None:
    policy = MemoryConfig(initial_capacity=8)
    database = empty_database(8, 3, 2, weighted=True)
    occupancy = Occupancy.of(database, holes=False)
    for step in range(1, 40):
        before, blocks = addresses(database), database.blocks
        entries = int(database.entries)
        new = rows(8, 8 * step)
        database, occupancy, _ = append(
            policy, RBF(1.0), database, occupancy, None, new, Decision.everything(8), step
        )
        assert addresses(database)[: len(before)] == before
        begin = 0
        for number, block in enumerate(blocks):
            begin += block.slots
            if begin <= entries:  # full before this append
                assert database.blocks[number] is block
    assert len(database.blocks) > 4
    assert int(database.entries) == 8 * 39
    np.testing.assert_array_equal(database.column("origin")[: 8 * 39], np.arange(8, 8 * 40))
    np.testing.assert_array_equal(database.column("created")[: 8 * 39], np.repeat(np.arange(1, 40), 8))
    assert INITIAL not in database.column("created")
