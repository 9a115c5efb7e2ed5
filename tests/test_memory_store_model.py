"""Any sequence of commits, tags, branches and reopenings agrees with the NumPy model."""

import os
import shutil
import tempfile
from pathlib import Path

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
from lamina.memory import layout
from lamina.memory.store import Store, TableChange
from memory_store_model import Model, commit, rows

TABLES = st.sampled_from(["layer0", "layer1"])


class StoreMachine(RuleBasedStateMachine):
    """A store, the changes not yet committed, and what the model says of head, tags and parents."""

    @initialize()
    def create(self):
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store.create(self.folder / "store-0")
        self.model = Model()
        self.tagged: dict[str, Model] = {}
        self.pending: dict[str, TableChange] = {}
        self.parents: list[tuple[Path, Model, dict[str, Model]]] = []
        self.seed = 0

    def fresh(self, count):
        self.seed += 1
        return rows(count, self.seed)

    @rule(table=TABLES, count=st.integers(0, 11), replace=st.booleans())
    def append(self, table, count, replace):
        self.pending[table] = TableChange(self.fresh(count), replace=replace)

    @rule(table=TABLES, data=st.data())
    def die(self, table, data):
        change = self.pending.get(table, TableChange({}))
        known = 0 if change.replace or table not in self.model.tables else 1
        count = len(self.model.tables[table][1]) if known else 0
        count += len(change.appended.get("created", ()))
        if count and (known or change.appended):
            died = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
            self.pending[table] = TableChange(change.appended, np.array(died, np.int64), change.replace)

    @rule(tag=st.none() | st.sampled_from(["a", "b", "c"]))
    def commit(self, tag):
        if tag in self.tagged:
            tag = None
        self.model = commit(self.store, self.model, self.pending, tag=tag)
        if tag is not None:
            self.tagged[tag] = self.model
        self.pending = {}

    @precondition(lambda self: self.tagged)
    @rule(data=st.data())
    def untag(self, data):
        tag = data.draw(st.sampled_from(sorted(self.tagged)))
        self.store.untag(tag)
        del self.tagged[tag]

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store.open(self.store.path, writable=True)

    @precondition(lambda self: self.model.step > 0 and len(self.parents) < 3)
    @rule(data=st.data())
    def branch(self, data):
        at = data.draw(st.sampled_from([None, *sorted(self.tagged)]))
        target = self.folder / f"store-{len(self.parents) + 1}"
        child = self.store.branch(target, at)
        self.store.close()
        self.parents.append((self.store.path, self.model, self.tagged))
        self.store, self.pending = child, {}
        self.model = self.model if at is None else self.tagged[at]
        self.tagged = {}

    @invariant()
    def head_and_tags_agree(self):
        self.check(self.store, self.model, self.tagged)

    @staticmethod
    def check(store, model, tagged):
        assert (store.head is None) == (model.step == 0)
        if store.head is not None:
            with store.generation() as generation:
                model.assert_equals(generation)
        assert set(store.tags()) == set(tagged)
        for tag, expected in tagged.items():
            with store.generation(tag) as generation:
                expected.assert_equals(generation)
        named = {head.generation for head in store.tags().values()}
        named |= {store.head.generation} if store.head is not None else set()
        assert {int(p.name) for p in (store.path / "generations").iterdir()} == named

    def teardown(self):
        self.store.close()
        for path, model, tagged in self.parents:
            with Store.open(path) as parent:
                self.check(parent, model, tagged)
                assert parent.verify(deep=True) == []
        shutil.rmtree(self.folder)


@pytest.mark.parametrize("chunk_bytes", [12, 48])
def test_any_sequence_of_operations_agrees_with_the_model(monkeypatch, chunk_bytes):
    monkeypatch.setattr(layout, "_WIDE_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # durability has its own tests
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
