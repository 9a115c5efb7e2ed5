"""A database in the store: rows in append order, slots as they were, and only changes are written."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from lamina.memory import persist
from lamina.memory.append import Occupancy
from lamina.memory.database import EMPTY, Database, Rows, empty_database, grow, write
from lamina.memory.kernels import RBF
from lamina.memory.persist import TableMap, database_meta, load_database, table_change
from lamina.memory.pruning import prune
from lamina.memory.store import Store

COLUMNS = ("keys", "values", "weights", "created", "origin", "changed", "key_norms", "value_norms")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "memory") as store:
        yield store


def filled(
    slots: list[int], step: int, database: Database | None = None, dtype: type = np.float32
) -> Database:
    """Writes rows drawn from the step into slots of a database of blocks 4 and 5."""
    if database is None:
        database = grow(empty_database(4, 3, 2, weighted=True, dtype=dtype), 9)
    draw, count = np.random.default_rng(step), len(slots)
    rows = Rows(
        jnp.asarray(draw.normal(size=(count, 3)), dtype),
        jnp.asarray(draw.normal(size=(count, 2)), dtype),
        jnp.asarray(draw.uniform(size=count), dtype),
        jnp.asarray(10 * step + np.arange(count), jnp.int32),
    )
    live = {*np.flatnonzero(database.column("created") != EMPTY).tolist(), *slots}
    database = write(database, jnp.asarray(slots, jnp.int32), rows, jnp.int32(step))
    return replace(database, entries=jnp.int32(len(live)))


def commit(store: Store, database: Database, known: TableMap, step: int) -> TableMap:
    change, known = table_change(database, known, step)
    store.commit(step=step, tables={"layer": change}, blobs={}, meta=database_meta(database))
    return known


def load(store: Store, step: int) -> tuple[Database, TableMap]:
    with store.generation() as generation:
        return load_database(generation.tables["layer"], generation.meta, step)


def assert_same(loaded: Database, database: Database) -> None:
    """Live slots are equal in every column, bit for bit and by type; the others are empty."""
    live = database.column("created") != EMPTY
    np.testing.assert_array_equal(loaded.column("created") != EMPTY, live)
    for name in COLUMNS:
        np.testing.assert_array_equal(loaded.column(name)[live], database.column(name)[live], strict=True)
    assert [block.slots for block in loaded.blocks] == [block.slots for block in database.blocks]
    assert int(loaded.entries) == int(database.entries)
    np.testing.assert_array_equal(loaded.counters, database.counters)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_database_comes_back_slot_by_slot(store: Store, dtype: type) -> None:
    with jax.enable_x64(dtype is np.float64):
        database = filled([7, 0, 2, 3, 4], 3, dtype=dtype)
        database = replace(database, counters=jnp.asarray([5, 0, 1, 2, -3], jnp.int32))
        known = commit(store, database, TableMap.empty(), 3)
        loaded, reloaded = load(store, 3)
        assert_same(loaded, database)
    assert known.row_of_slot.tolist() == [0, -1, 1, 2, 3, -1, -1, 4, -1]
    np.testing.assert_array_equal(reloaded.row_of_slot, known.row_of_slot)
    assert (reloaded.rows, reloaded.step) == (5, 3)


@pytest.mark.parametrize("stretch", [1, 2, 3])
def test_a_table_longer_than_one_stretch(store: Store, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persist, "_READ_ROWS", stretch)
    known = commit(store, database := filled([0, 1, 2, 5, 8], 1), TableMap.empty(), 1)
    commit(store, database := filled([3, 1], 2, database), known, 2)
    assert_same(load(store, 2)[0], database)


def test_an_empty_database_is_committed_and_comes_back(store: Store) -> None:
    database = empty_database(4, 3, 2, weighted=False)
    known = commit(store, database, TableMap.empty(), 0)
    loaded, reloaded = load(store, 0)
    assert loaded.blocks[0].weights is None
    assert loaded.column("keys").shape == (4, 3)
    assert (loaded.column("created") == EMPTY).all()
    assert known.rows == reloaded.rows == 0


def test_a_commit_appends_only_what_was_written_since(store: Store) -> None:
    known = commit(store, database := filled([0, 1, 2, 3], 1), TableMap.empty(), 1)
    database = filled([2, 5], 2, database)  # replaces the entry of slot 2
    change, _ = table_change(database, known, 2)
    assert change.appended["slot"].tolist() == [2, 5]
    assert change.died.tolist() == [2]
    assert not change.replace
    known = commit(store, database, known, 2)
    assert known.row_of_slot[:6].tolist() == [0, 1, 4, 3, -1, 5]
    change, _ = table_change(database, known, 2)
    assert len(change.appended["slot"]) == len(change.died) == 0
    loaded, reloaded = load(store, 2)
    change, _ = table_change(filled([8], 3, loaded), reloaded, 3)
    assert change.appended["slot"].tolist() == [8]
    assert len(change.died) == 0


def test_what_was_pruned_is_marked_dead_and_its_slot_can_be_used_again(store: Store) -> None:
    known = commit(store, database := filled([0, 1, 2, 3], 1), TableMap.empty(), 1)
    middle = float(
        np.sort(np.maximum(database.column("value_norms"), database.column("weights"))[:4])[1:3].mean()
    )
    pruned = prune(RBF(1.0), database, Occupancy(4, 4), None, None, middle, 2)
    database, count = pruned.database, pruned.entries
    assert count == 2
    change, pruned = table_change(database, known, 2)
    assert sorted(change.died.tolist()) == np.flatnonzero(database.column("created")[:4] == EMPTY).tolist()
    assert len(change.appended["slot"]) == 0
    known = commit(store, database, known, 2)
    assert_same(load(store, 2)[0], database)
    dead = int(np.flatnonzero(database.column("created") == EMPTY)[0])
    database = filled([dead], 3, database)
    commit(store, database, known, 3)
    assert_same(load(store, 3)[0], database)
    assert pruned.rows == 4


def test_a_table_that_is_mostly_dead_is_written_anew(store: Store) -> None:
    known = commit(store, database := filled([0, 1, 2, 3], 1), TableMap.empty(), 1)
    for step, slots in ((2, [0]), (3, [1]), (4, [2]), (5, [0, 1, 2])):
        database = filled(slots, step, database)
        known = commit(store, database, known, step)
        assert known.rows <= 2 * 4 + 1
        assert_same(load(store, step)[0], database)
    assert known.rows == 4
    np.testing.assert_array_equal(known.row_of_slot, [0, 1, 2, 3, -1, -1, -1, -1, -1])


def test_a_pruned_slot_is_forgotten_when_the_table_is_written_anew(store: Store) -> None:
    known = commit(store, database := filled([0, 1, 2, 3], 1), TableMap.empty(), 1)
    largest = np.maximum(database.column("value_norms"), database.column("weights"))[:4]
    middle = float(np.sort(largest)[2:].mean())
    database = prune(RBF(1.0), database, Occupancy(4, 4), None, None, middle, 2).database
    known = commit(store, database, known, 2)
    assert known.rows == 1
    change, _ = table_change(database, known, 3)
    assert len(change.appended["slot"]) == len(change.died) == 0  # rows are now those of other entries
    commit(store, database, known, 3)
    assert_same(load(store, 3)[0], database)


def test_a_commit_that_failed_is_made_up_for_by_the_next(store: Store) -> None:
    known = commit(store, database := filled([0, 1], 1), TableMap.empty(), 1)
    database = filled([4], 2, database)
    table_change(database, known, 2)  # its commit failed: the map is not taken over
    database = filled([5], 3, database)
    commit(store, database, known, 3)
    assert_same(load(store, 3)[0], database)


def test_plain_zarr_reads_the_same_numbers(store: Store) -> None:
    commit(store, database := filled([7, 0, 2], 1), TableMap.empty(), 1)
    with store.generation() as generation:
        group = zarr.open_group(generation.path / "tables" / "layer", mode="r")
        slots = group["slot"][:]
        for name in COLUMNS:
            np.testing.assert_array_equal(group[name][:], database.column(name)[slots])


def test_the_description_tells_sizes() -> None:
    meta = database_meta(filled([7, 0, 2], 1))
    assert (meta["blocks"], meta["capacity"], meta["entries"]) == ([4, 5], 9, 3)
    assert (meta["key_features"], meta["value_features"], meta["weighted"]) == (3, 2, True)
    assert meta["bytes"] == 9 * 4 * (3 + 2 + 1 + 2 + 3)
