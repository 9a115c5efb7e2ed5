"""The slow obvious model of the store that its tests compare with: NumPy arrays and a dict."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from lamina.memory.store import Generation, Store, TableChange

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """One state of a store: table name → (columns, liveness), and the blobs."""

    step: int = 0
    tables: dict[str, tuple[Rows, np.ndarray]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def after(self, step: int, changes: dict[str, TableChange], blobs: dict[str, bytes]) -> "Model":
        """The state that a commit of these changes must reach."""
        tables = dict(self.tables)
        for name, change in changes.items():
            rows = {column: np.array(part) for column, part in change.appended.items()}
            alive = np.ones(len(next(iter(rows.values()), ())), bool)
            if name in tables and not change.replace:
                old, old_alive = tables[name]
                rows = {c: np.concatenate([old[c], rows[c]]) if rows else old[c] for c in old}
                alive = np.concatenate([old_alive, alive])
            alive[change.died] = False
            tables[name] = (rows, alive)
        return replace(self, step=step, tables=tables, blobs=dict(blobs))

    def assert_equals(self, generation: Generation) -> None:
        """Compares everything that can be read, bit for bit."""
        assert generation.step == self.step
        assert generation.meta == {"step": self.step}
        assert {name: generation.blob(name) for name in generation.blobs} == self.blobs
        assert set(generation.tables) == set(self.tables)
        for name, (rows, alive) in self.tables.items():
            table = generation.tables[name]
            assert (table.rows, table.alive_rows) == (len(alive), int(alive.sum()))
            np.testing.assert_array_equal(table.alive(), alive)
            assert set(table.columns) == set(rows)
            for column, expected in rows.items():
                np.testing.assert_array_equal(table.read(column), expected, strict=True)


def commit(store: Store, model: Model, changes: dict[str, TableChange], **options: Any) -> Model:
    """Commits the changes as the step after the model's; returns the model after it."""
    step = model.step + 1
    blobs = {"state": b"%d" % step * 5}
    store.commit(step=step, tables=changes, blobs=blobs, meta={"step": step}, **options)
    return model.after(step, changes, blobs)


def rows(count: int, seed: int, width: int = 3) -> Rows:
    """Rows of a small database, drawn from a seed."""
    draw = np.random.default_rng(seed)
    return {
        "keys": draw.standard_normal((count, width), np.float32),
        "created": draw.integers(0, 99, count, dtype=np.int32),
    }


def scripted_change(step: int, alive: np.ndarray) -> dict[str, TableChange]:
    """What step `step` of the crash tests commits, given the liveness of the table before it."""
    fresh = rows(step % 4 + 1, step)
    if step % 7 == 0:
        return {"layer": TableChange(fresh, replace=True)}
    died = np.flatnonzero(alive)[:: 3 + step % 3]
    changes = {"layer": TableChange(fresh, died)}
    return changes | ({"late": TableChange(rows(2, -step % 1000))} if step % 5 == 0 else {})


def scripted(step: int) -> Model:
    """The state after steps 1..step of the crash tests."""
    model = Model()
    for number in range(1, step + 1):
        model = model.after(*scripted_commit(number, model))
    return model


def scripted_commit(step: int, model: Model) -> tuple[int, dict[str, TableChange], dict[str, bytes]]:
    """The arguments of `Model.after` for one step of the crash tests."""
    alive = model.tables["layer"][1] if "layer" in model.tables else np.zeros(0, bool)
    return step, scripted_change(step, alive), {"state": b"%d" % step * 5}
