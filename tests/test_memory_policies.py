"""Admission, eviction and pruning: every policy against one model, through commits and reloads too."""

import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lamina.memory.coefficients import Clock, block_coefficients, device_table
from lamina.memory.database import COUNTERS, EMPTY, INITIAL, Database, Rows, empty_database, grow, write
from lamina.memory.kernels import RBF, WeightedSoftmax
from lamina.memory.nearest import nearest_square_distances
from lamina.memory.persist import TableMap, database_meta, load_database, table_change
from lamina.memory.policies import ADMISSIONS, EVICTIONS, MemoryConfig, Occupancy, admit, append, prune
from lamina.memory.retrieval import retrieve
from lamina.memory.store import Store
from memory_policy_model import DECAY, MOMENTUM, Entry, PolicyModel
from pydantic import ValidationError

# Adding a policy: teach `PolicyModel` its letter, and add it here.
NOVELTY = {"admission": "novelty", "novelty_threshold": 1.0}
# name → (policy, whether entries are weighted and fade)
POLICIES: dict[str, tuple[MemoryConfig, bool]] = {
    "unbounded": (MemoryConfig(initial_capacity=4), True),
    "novelty": (MemoryConfig(initial_capacity=4, **NOVELTY), False),
    "cap": (MemoryConfig(initial_capacity=4, capacity=7), False),
    "cap, oldest": (MemoryConfig(initial_capacity=4, capacity=7, eviction="oldest"), False),
    "cap, smallest": (MemoryConfig(initial_capacity=4, capacity=7, eviction="smallest"), False),
    "cap, smallest, fading": (MemoryConfig(initial_capacity=4, capacity=7, eviction="smallest"), True),
    "cap, novelty, oldest": (
        MemoryConfig(initial_capacity=4, capacity=7, eviction="oldest", **NOVELTY),
        True,
    ),
}
BATCH, FIRST = 3, 2  # rows per step, initial entries

nearest = jax.jit(nearest_square_distances)
answers = jax.jit(retrieve, static_argnums=0)
small = st.integers(0, 2).map(float)
offered = st.lists(
    st.tuples(st.tuples(small, small), st.integers(-3, 3), st.integers(0, 3)), min_size=BATCH, max_size=BATCH
)


def as_rows(entries: list[Entry], weighted: bool) -> Rows:
    return Rows(
        jnp.asarray([e.key for e in entries], jnp.float32),
        jnp.asarray([[e.value] for e in entries], jnp.float32),
        jnp.asarray([e.weight for e in entries], jnp.float32) if weighted else None,
        jnp.asarray([e.origin for e in entries], jnp.int32),
    )


class DatabaseMachine(RuleBasedStateMachine):
    """Any sequence of appends, prunings, commits and reloads, under one policy."""

    def __init__(self, policy: MemoryConfig, weighted: bool) -> None:
        super().__init__()
        self.policy, self.weighted, self.fading = policy, weighted, weighted
        self.kernel = WeightedSoftmax(0.7) if weighted else RBF(0.7)
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.create(Path(self.folder.name, "memory"))
        self.known, self.dirty, self.clock, self.step = TableMap.empty(), set[int](), Clock.start(), 0
        self.model = PolicyModel(policy, weighted, self.fading)

    @initialize()
    def start(self) -> None:
        self.database = empty_database(4, 2, 1, weighted=self.weighted)
        if self.weighted:
            first = [Entry((0.5 * n, 0.5), 1.0, 0.5, INITIAL, -1) for n in range(FIRST)]
            slots = jnp.arange(FIRST, dtype=jnp.int32)
            written = write(self.database, slots, as_rows(first, True), jnp.int32(INITIAL))
            self.database = replace(written, entries=jnp.int32(FIRST))
            self.model.slots = dict(enumerate(first))
            self.dirty = set(range(FIRST))
        self.occupancy = Occupancy.of(self.database, holes=False)

    @rule(rows=offered)
    def append(self, rows: list[tuple[tuple[float, float], int, int]]) -> None:
        self.step += 1
        entries = [
            Entry(key, float(value), float(weight), self.step, BATCH * self.step + number)
            for number, (key, value, weight) in enumerate(rows)
        ]
        batch = as_rows(entries, self.weighted)
        distances = nearest(self.database.blocks, batch.keys)
        table = device_table(self.clock, self.clock, jnp.float32) if self.fading else None
        before = dict(self.model.counts)
        self.database, self.occupancy, change = append(
            self.policy,
            self.database,
            self.occupancy,
            table,
            batch,
            admit(self.policy, distances, BATCH),
            self.step,
        )
        written = self.model.append(entries, self.clock)
        self.dirty = (self.dirty | written) & set(self.model.slots)
        assert change.tolist() == [self.model.counts[name] - before[name] for name in COUNTERS]
        self.clock = self.clock.advance(momentum=MOMENTUM, decay=DECAY)

    @precondition(lambda self: self.step > 0)
    @rule(epsilon=st.sampled_from([0.3, 1.0, 1.5, 4.0]))
    def prune(self, epsilon: float) -> None:
        bounds = None
        if self.fading:
            ahead = replace(self.clock, coefficients=self.clock.future_bounds(MOMENTUM))
            bounds = device_table(ahead, ahead, jnp.float32)
        before = self.model.counts["pruned"]
        self.database, self.occupancy, count, removed = prune(
            self.database, self.occupancy, bounds, epsilon, self.step
        )
        expected = self.model.prune(epsilon, self.clock)
        self.dirty &= set(self.model.slots)
        assert count == self.model.counts["pruned"] - before
        assert removed == pytest.approx(expected, rel=1e-5)

    @rule(reload=st.booleans())
    def commit(self, reload: bool) -> None:
        change, known = table_change(self.database, self.known, self.step)
        slots = change.appended["slot"].tolist()
        live = set(self.model.slots)
        assert slots == sorted(live if change.replace else self.dirty)
        meta = json.loads(json.dumps(database_meta(self.database)))
        head = self.store.commit(step=self.step, tables={"layer": change}, blobs={}, meta=meta)
        assert head.tables["layer"].alive == len(live)
        assert head.tables["layer"].rows <= 2 * len(live) + 1  # at most half of the table is dead
        assert head.tables["layer"].rows == known.rows
        self.known, self.dirty = known, set()
        if reload:
            self.reload()

    def reload(self) -> None:
        self.store.close()
        self.store = Store.open(Path(self.folder.name, "memory"), writable=True)
        with self.store.generation() as generation:
            loaded, known = load_database(generation.tables["layer"], generation.meta, generation.step)
        np.testing.assert_array_equal(known.row_of_slot, self.known.row_of_slot)
        assert (known.rows, known.step) == (self.known.rows, self.known.step)
        assert [b.slots for b in loaded.blocks] == [b.slots for b in self.database.blocks]
        np.testing.assert_array_equal(self.answer(loaded), self.answer(self.database))
        np.testing.assert_array_equal(loaded.counters, self.database.counters)
        self.database, self.known = loaded, known
        self.occupancy = Occupancy.of(loaded, holes=self.occupancy.holes)

    def answer(self, database: Database) -> jax.Array:
        table = device_table(self.clock, self.clock, jnp.float32) if self.fading else None
        coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
        queries = jnp.asarray([[0.3, 1.1], [2.0, 0.0]])
        return answers(self.kernel, database.blocks, coefficients, queries)

    @invariant()
    def every_slot_holds_what_the_model_says(self) -> None:
        columns = {name: self.database.column(name) for name in ("created", "origin", "keys", "values")}
        live = np.flatnonzero(columns["created"] != EMPTY)
        found = {
            int(slot): Entry(
                tuple(columns["keys"][slot].tolist()),
                float(columns["values"][slot, 0]),
                float(self.database.column("weights")[slot]) if self.weighted else 0.0,
                int(columns["created"][slot]),
                int(columns["origin"][slot]),
            )
            for slot in live
        }
        unweighted = {s: e._replace(weight=0.0) for s, e in self.model.slots.items()}
        assert found == (self.model.slots if self.weighted else unweighted)

    @invariant()
    def counts_add_up(self) -> None:
        counters = dict(zip(COUNTERS, self.database.counters.tolist(), strict=True))
        initial = FIRST if self.weighted else 0
        entries = int(self.database.entries)
        assert counters == self.model.counts
        assert counters["admitted"] - counters["pruned"] - counters["evicted"] == entries - initial
        assert counters["admitted"] + counters["rejected"] == BATCH * self.step
        assert self.occupancy.least <= entries <= self.occupancy.most

    @invariant()
    def never_above_the_cap(self) -> None:
        """There is no slot beyond the cap, so not even inside a batch can an entry lie there."""
        if self.policy.capacity is not None:
            assert self.database.capacity <= self.policy.capacity

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


@pytest.mark.parametrize("name", POLICIES)
def test_any_history_is_the_models(name: str) -> None:
    run_state_machine_as_test(
        partial(DatabaseMachine, *POLICIES[name]),
        settings=settings(
            max_examples=8,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_every_policy_is_in_the_suite() -> None:
    assert {policy.admission for policy, _ in POLICIES.values()} == set(ADMISSIONS)
    assert {policy.eviction for policy, _ in POLICIES.values()} == set(EVICTIONS)


# Novelty


def admitted_by(threshold: float, keys: Any, queries: Any) -> list[bool]:
    policy = MemoryConfig(admission="novelty", novelty_threshold=threshold)
    database = empty_database(4, 2, 1, weighted=False)
    keys = jnp.asarray(keys, jnp.float32).reshape(-1, 2)
    count = len(keys)
    new = Rows(keys, jnp.zeros((count, 1)), None, jnp.arange(count, dtype=jnp.int32))
    database = write(database, jnp.arange(count, dtype=jnp.int32), new, jnp.int32(1))
    queries = jnp.asarray(queries, jnp.float32)
    found: list[bool] = admit(policy, nearest(database.blocks, queries), len(queries)).tolist()
    return found


def test_novel_is_what_is_farther_than_the_threshold_strictly() -> None:
    keys, queries = [[0, 0], [10, 0]], [[5, 0], [3, 4], [5.01, 0], [4, 4], [0, 0], [-6, 0]]
    # Distances to the nearest key: 5, 5, 4.99, √32, 0, 6.
    assert admitted_by(5, keys, queries) == [False, False, False, True, False, True]


def test_threshold_zero_rejects_only_exact_duplicates() -> None:
    assert admitted_by(0, [[1, 2], [3, 4]], [[1, 2], [1, 2.0001], [3, 4]]) == [False, True, False]


def test_an_infinite_threshold_admits_nothing() -> None:
    assert admitted_by(np.inf, [], [[0, 0], [1, 1]]) == [False, False]
    assert admitted_by(np.inf, [[0, 0]], [[1e6, 0]]) == [False]


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1e30])
def test_everything_is_novel_to_an_empty_database(threshold: float) -> None:
    assert admitted_by(threshold, [], [[0, 0], [0, 0]]) == [True, True]  # both: the batch is not looked at


# Caps


def offer(
    policy: MemoryConfig, steps: list[list[float]], *, initial: int = 0, slots: int | None = None
) -> tuple[Database, list[list[int]]]:
    """Offers values step by step; returns the database and what changed at each step."""
    database = empty_database(slots or policy.initial_capacity, 2, 1, weighted=False)
    if initial:
        first = Rows(jnp.zeros((initial, 2)), jnp.zeros((initial, 1)), None, jnp.full(initial, -1))
        database = write(database, jnp.arange(initial), first, jnp.int32(INITIAL))
        database = replace(database, entries=jnp.int32(initial))
    occupancy, changes, origin = Occupancy.of(database, holes=False), [], 0
    for step, values in enumerate(steps, 1):
        count = len(values)
        column = jnp.asarray(values, jnp.float32)[:, None]
        new = Rows(jnp.zeros((count, 2)), column, None, jnp.arange(origin, origin + count, dtype=jnp.int32))
        database, occupancy, change = append(
            policy, database, occupancy, None, new, jnp.ones(count, bool), step
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


@pytest.mark.parametrize("eviction", ["none", "oldest", "smallest"])
def test_a_batch_larger_than_the_cap_fills_it(eviction: Any) -> None:
    policy = MemoryConfig(initial_capacity=4, capacity=6, eviction=eviction)
    database, changes = offer(policy, [[1.0] * 9, [2.0] * 9])
    assert live_origins(database) == ({*range(6)} if eviction == "none" else {*range(9, 15)})
    assert [sum(change[:3]) for change in changes] == [9, 9]


@pytest.mark.parametrize("eviction", ["oldest", "smallest"])
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


@pytest.mark.parametrize("eviction", ["none", "oldest", "smallest"])
def test_a_cap_below_the_slots_of_a_loaded_database_holds(eviction: Any) -> None:
    """As when a run goes on from another's memory under a lower cap."""
    policy = MemoryConfig(initial_capacity=4, capacity=5, eviction=eviction)
    database, changes = offer(policy, [[1, 1, 1]] * 3, slots=16)
    assert int(database.entries) == 5
    assert np.count_nonzero(database.column("created") != EMPTY) == 5
    evicted = 0 if eviction == "none" else 1
    assert changes[1] == [2 + evicted, 0, 1 - evicted, 0, evicted]
    above, changes = offer(policy, [[1, 1, 1]], initial=7, slots=16)  # above the cap to begin with
    assert int(above.entries) == 7
    assert changes == [[0, 0, 3, 0, 0]]


def test_a_batch_larger_than_a_growth_step_grows_several_times() -> None:
    database, changes = offer(MemoryConfig(initial_capacity=1), [[1.0] * 200])
    assert live_origins(database) == set(range(200))
    assert [block.slots for block in database.blocks] == [1, 63, 64, 64, 128]
    assert changes == [[200, 0, 0, 0, 0]]


# Pruning


def faded(steps: int, momentum: float, decay: float) -> Clock:
    clock = Clock.start()
    for _ in range(steps):
        clock = clock.advance(momentum=momentum, decay=decay)
    return clock


def table_of(clock: Clock, coefficients: np.ndarray) -> Any:
    clock = replace(clock, coefficients=coefficients)
    return device_table(clock, clock, jnp.float32)


def test_an_entry_that_momentum_will_raise_is_not_pruned() -> None:
    policy = MemoryConfig(initial_capacity=4)
    database, _ = offer(policy, [[0.4]])
    clock = faded(1, 0.9, 0.0)  # of coefficient 1 now, 10 in the end
    bounds = table_of(clock, clock.future_bounds(0.9))
    database, occupancy, count, removed = prune(database, Occupancy(1, 1), bounds, 0.5, 1)
    assert (count, removed, occupancy.holes) == (0, 0.0, False)
    database, occupancy, count, removed = prune(database, occupancy, bounds, 4.1, 1)
    assert (count, occupancy, int(database.entries)) == (1, Occupancy(0, 0, True), 0)
    assert removed == pytest.approx(4.0)


def test_pruning_needs_both_value_and_weight_to_be_small() -> None:
    database = empty_database(4, 2, 1, weighted=True)
    values, weights = jnp.asarray([[0.1], [2.0], [0.1], [0.1]]), jnp.asarray([0.1, 0.1, 2.0, 0.1])
    new = Rows(jnp.zeros((4, 2)), values, weights, jnp.arange(4, dtype=jnp.int32))
    database = write(database, jnp.arange(4), new, jnp.int32(1))
    database = replace(database, entries=jnp.int32(4))
    before = [block.keys.unsafe_buffer_pointer() for block in database.blocks]
    database, _, count, _ = prune(database, Occupancy(4, 4), None, 1.0, 5)
    assert count == 2
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
    bounds = table_of(clock, clock.future_bounds(momentum))
    database, _, count, bound = prune(database, Occupancy(32, 32), bounds, 0.3, 8)
    assert 0 < count < 32
    queries = jnp.asarray(random.normal(size=(64, 2)), jnp.float32)
    largest = 0.0
    for _ in range(12):
        table = device_table(clock, clock, jnp.float32)
        before, after = (
            answers(RBF(0.7), blocks, tuple(block_coefficients(b, table) for b in blocks), queries)
            for blocks in (whole, database.blocks)
        )
        largest = max(largest, float(jnp.max(jnp.abs(before - after))))
        clock = clock.advance(momentum=momentum, decay=decay)
    assert 0 < largest <= bound


def test_pruned_slots_are_filled_again() -> None:
    policy = MemoryConfig(initial_capacity=4)
    database, _ = offer(policy, [[1, 0.1, 1]])
    database, occupancy, *_ = prune(database, Occupancy(3, 3), None, 0.5, 1)
    new = Rows(jnp.ones((2, 2)), jnp.ones((2, 1)), None, jnp.asarray([7, 8], jnp.int32))
    database, occupancy, change = append(policy, database, occupancy, None, new, jnp.ones(2, bool), 2)
    assert database.column("origin").tolist() == [0, 7, 2, 8]
    assert change.tolist() == [2, 0, 0, 0, 0]
    assert database.capacity == 4


# Configuration


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"admission": "novelty"}, "belong together"),
        ({"novelty_threshold": 1.0}, "belong together"),
        ({"eviction": "oldest"}, "set capacity too"),
        ({"admission": "novelty", "novelty_threshold": -1.0}, "greater than or equal to 0"),
        ({"admission": "novelty", "novelty_threshold": float("nan")}, "greater than or equal to 0"),
        ({"capacity": 0}, "greater than 0"),
        ({"eviction": "random", "capacity": 4}, "'none', 'oldest' or 'smallest'"),
        ({"prune_epsilon": -0.1}, "greater than or equal to 0"),
        ({"prune_every": 0}, "greater than 0"),
        ({"capcity": 4}, "capcity"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        MemoryConfig(**options)
