"""Admission, eviction and pruning: every policy against one model, through commits and reloads too."""

import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from lamina.memory.admission import decide
from lamina.memory.append import Occupancy, append
from lamina.memory.coefficients import Clock, Clocks, block_coefficients, device_table
from lamina.memory.database import COUNTERS, EMPTY, INITIAL, Database, Rows, empty_database, write
from lamina.memory.kernels import RBF, WeightedSoftmax
from lamina.memory.persist import TableMap, database_meta, load_database, table_change
from lamina.memory.policy import ADMISSIONS, EVICTIONS, MemoryConfig
from lamina.memory.pruning import prune
from lamina.memory.retrieval import retrieve
from lamina.memory.sharding import Shards
from lamina.memory.store import Store
from memory_policy_model import DECAY, MOMENTUM, TEMPERATURE, Entry, PolicyModel

# Adding a policy: teach `PolicyModel` its letter, and add it here.
NOVELTY = {"admission": "novelty", "novelty_threshold": 1.0}
# name → (policy, whether entries are weighted and fade)
CAP = {"initial_capacity": 4, "capacity": 7}
POLICIES: dict[str, tuple[MemoryConfig, bool]] = {
    "unbounded": (MemoryConfig(initial_capacity=4), True),
    "novelty": (MemoryConfig(initial_capacity=4, **NOVELTY), False),
    "cap": (MemoryConfig(**CAP), False),
    "cap, oldest": (MemoryConfig(**CAP, eviction="oldest"), False),
    "cap, smallest": (MemoryConfig(**CAP, eviction="smallest"), False),
    "cap, smallest, fading": (MemoryConfig(**CAP, eviction="smallest"), True),
    "cap, novelty, oldest": (MemoryConfig(**CAP, eviction="oldest", **NOVELTY), True),
    "cap, random": (MemoryConfig(**CAP, eviction="random"), False),
    "cap, reservoir": (MemoryConfig(**CAP, eviction="reservoir"), False),
    "cap, reservoir, fading": (MemoryConfig(**CAP, eviction="reservoir"), True),
    "cap, merge_nearest": (MemoryConfig(**CAP, eviction="merge_nearest"), False),
    "novelty among the batch": (MemoryConfig(initial_capacity=4, admission_scope="batch", **NOVELTY), False),
    "novelty and error": (MemoryConfig(initial_capacity=4, error_threshold=1.5, **NOVELTY), False),
    "novelty times error": (MemoryConfig(initial_capacity=4, error_weighted=True, **NOVELTY), True),
    "rising novelty": (MemoryConfig(**CAP, threshold_rise=1.5, **NOVELTY), False),
    "coherence": (MemoryConfig(initial_capacity=4, admission="coherence", coherence_threshold=0.5), False),
    "coherence among the batch": (
        MemoryConfig(**CAP, admission="coherence", coherence_threshold=0.5, admission_scope="batch"),
        True,
    ),
    "quantize": (MemoryConfig(initial_capacity=4, admission="quantize", quantize_radius=1.0), False),
    "cap, quantize among the batch": (
        MemoryConfig(**CAP, admission="quantize", quantize_radius=1.0, admission_scope="batch"),
        False,
    ),
    "ald": (MemoryConfig(initial_capacity=4, admission="ald", ald_threshold=0.3), False),
    "ald among the batch": (
        MemoryConfig(**CAP, eviction="random", admission="ald", ald_threshold=0.3, admission_scope="batch"),
        True,
    ),
    "surprise": (
        MemoryConfig(initial_capacity=4, admission="surprise", surprise_least=0.77, surprise_most=7.07),
        False,
    ),
}
DEVICES = (1, 4)
BATCH, FIRST, SEED = 3, 2, 11  # rows per step, initial entries, of random evictions

judge = jax.jit(decide, static_argnums=(0, 1))
answers = jax.jit(retrieve, static_argnums=0, static_argnames="shards")
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
        self.kernel = WeightedSoftmax(TEMPERATURE) if weighted else RBF(TEMPERATURE)
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.create(Path(self.folder.name, "memory"))
        self.known, self.dirty, self.clock, self.step = TableMap.empty(), set[int](), Clock.start(), 0
        self.resharded = False
        self.model = PolicyModel(policy, weighted, self.fading, seed=SEED)

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
            Entry(self.key(key, number), float(value), float(weight), self.step, BATCH * self.step + number)
            for number, (key, value, weight) in enumerate(rows)
        ]
        batch = as_rows(entries, self.weighted)
        errors = [abs(float(value)) for _, value, _ in rows]
        table = device_table(Clocks.both(self.clock), jnp.float32) if self.fading else None
        decision = judge(
            self.policy, self.kernel, self.database, table, batch.keys, jnp.asarray(errors, jnp.float32)
        )
        before = dict(self.model.counts)
        self.database, self.occupancy, change = append(
            self.policy,
            self.kernel,
            self.database,
            self.occupancy,
            table,
            batch,
            decision,
            self.step,
            seed=SEED,
        )
        written = self.model.append(entries, errors, self.clock)
        self.dirty = (self.dirty | written) & set(self.model.slots)
        assert change.tolist() == [self.model.counts[name] - before[name] for name in COUNTERS]
        self.clock = self.clock.advance(momentum=MOMENTUM, decay=DECAY)

    def key(self, key: tuple[float, float], number: int) -> tuple[float, float]:
        """Moved a little where pairs are compared: on the grid many would be equally close."""
        if self.policy.eviction != "merge_nearest":
            return key
        moved = np.add(key, 0.2 * np.modf([0.6180 * (BATCH * self.step + number), 0.7321 * self.step])[0])
        return tuple(np.float32(moved).tolist())

    @precondition(lambda self: self.step > 0)
    @rule(epsilon=st.sampled_from([0.3, 1.0, 1.5, 4.0]))
    def prune(self, epsilon: float) -> None:
        table = bounds = None
        if self.fading:
            ahead = self.clock.bounded(MOMENTUM)
            table, bounds = (device_table(Clocks.both(clock), jnp.float32) for clock in (self.clock, ahead))
        before = self.model.counts["pruned"]
        pruned = prune(self.kernel, self.database, self.occupancy, table, bounds, epsilon, self.step)
        self.database, self.occupancy = pruned.database, pruned.occupancy
        expected = self.model.prune(epsilon, self.clock)
        self.dirty &= set(self.model.slots)
        assert pruned.entries == self.model.counts["pruned"] - before
        if not self.weighted:
            assert pruned.bound == pytest.approx(expected, rel=1e-5)

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

    @rule(devices=st.sampled_from(DEVICES))
    def reshard(self, devices: int) -> None:
        """Commits, and reopens over another number of devices."""
        self.commit(reload=False)
        before = [block.slots for block in self.database.blocks]
        shards = Shards.over(devices)
        loaded, self.known = self.reopen(shards)
        after = [shards.rounded(size) for size in before]
        assert [block.slots for block in loaded.blocks] == after
        assert self.known.moved == (after != before and self.known.rows > 0)
        self.resharded = True
        if after != before:  # the blocks behind one that was rounded up begin later
            begins, moved = (np.cumsum([0, *sizes]) for sizes in (before, after))
            self.model.slots = {
                slot + int((moved - begins)[np.searchsorted(begins, slot, "right") - 1]): entry
                for slot, entry in self.model.slots.items()
            }
            self.dirty = set(self.model.slots)
        np.testing.assert_allclose(self.answer(loaded), self.answer(self.database), rtol=1e-5, atol=1e-6)
        self.occupancy = Occupancy.of(loaded, holes=self.occupancy.holes or self.known.moved)
        self.database = loaded

    def reload(self) -> None:
        loaded, known = self.reopen(self.database.shards)
        if not self.known.moved:
            np.testing.assert_array_equal(known.row_of_slot, self.known.row_of_slot)
            assert (known.rows, known.step) == (self.known.rows, self.known.step)
        assert [b.slots for b in loaded.blocks] == [b.slots for b in self.database.blocks]
        np.testing.assert_array_equal(self.answer(loaded), self.answer(self.database))
        self.database, self.known = loaded, known
        self.occupancy = Occupancy.of(loaded, holes=self.occupancy.holes)

    def reopen(self, shards: Shards) -> tuple[Database, TableMap]:
        self.store.close()
        self.store = Store.open(Path(self.folder.name, "memory"), writable=True)
        with self.store.generation() as generation:
            loaded, known = load_database(
                generation.tables["layer"], generation.meta, generation.step, shards
            )
        np.testing.assert_array_equal(loaded.counters, self.database.counters)
        return loaded, known

    def answer(self, database: Database) -> jax.Array:
        table = device_table(Clocks.both(self.clock), jnp.float32) if self.fading else None
        coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
        queries = jnp.asarray([[0.3, 1.1], [2.0, 0.0]])
        return answers(self.kernel, database.blocks, coefficients, queries, shards=database.shards)

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
        assert counters["admitted"] + counters["merged"] + counters["rejected"] == BATCH * self.step
        assert self.occupancy.least <= entries <= self.occupancy.most

    @invariant()
    def never_above_the_cap(self) -> None:
        """There is hardly a slot beyond the cap, so not even inside a batch can many entries lie there."""
        if self.policy.capacity is not None:
            rounding = (max(DEVICES) - 1) * len(self.database.blocks)  # up to a multiple of the devices
            assert self.database.capacity <= self.policy.capacity + (rounding if self.resharded else 0)
            assert int(self.database.entries) <= self.policy.capacity

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


@pytest.mark.parametrize("name", POLICIES)
def test_any_history_is_the_models(name: str) -> None:
    run_state_machine_as_test(
        partial(DatabaseMachine, *POLICIES[name]),
        settings=settings(
            max_examples=3,
            stateful_step_count=10,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_every_policy_is_in_the_suite() -> None:
    assert {policy.admission for policy, _ in POLICIES.values()} == set(ADMISSIONS)
    assert {policy.eviction for policy, _ in POLICIES.values()} == set(EVICTIONS)
