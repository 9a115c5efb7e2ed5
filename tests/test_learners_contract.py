"""What every learner promises, whatever grows in it and whatever is trained."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from drawn_batches import learnt
from lamina.continual.checkpoint import load, save
from lamina.learners import LEARNERS, Batch, Learner, State, Task, build_learner
from lamina.memory.sharding import ONE_DEVICE, Shards
from smallest_learners import SMALLEST, parse

D, B, STEPS = 3, 4, 4
TASKS = {"classification": Task(3, True), "regression": Task(2, False)}

RBF = {"kind": "rbf", "temperature": 1.0, "value_rate": 0.4, "memory": {"initial_capacity": 8}}
TRAIN = {"optimiser": {"kind": "adam", "learning_rate": 0.01}}
# Beside the smallest of each kind: entries that are trained, rows that give way, parts of both sorts.
RICHER: dict[str, dict[str, Any]] = {
    "hybrid softmax": {"kind": "softmax", **SMALLEST["softmax"], "train": TRAIN},
    "hybrid rbf": {"kind": "rbf", **SMALLEST["rbf"], "train": TRAIN},
    "novel hybrid": {
        "kind": "softmax",
        **SMALLEST["softmax"],
        "train": TRAIN,
        "memory": {"admission": "novelty", "novelty_threshold": 1.0},
    },
    "bounded rbf": {
        "kind": "rbf",
        **SMALLEST["rbf"],
        "momentum": 0.5,
        "decay": 0.01,
        "memory": {"capacity": 8, "eviction": "oldest"},
    },
    "fading softmax": {"kind": "softmax", **SMALLEST["softmax"], "momentum": 0.5, "decay": 0.01},
    "mixed with growing": {
        "kind": "mixed",
        "layers": {
            "front": {"kind": "mlp", "width": 5},
            "store": {**RBF, "memory": {"initial_capacity": 8, "capacity": 8, "eviction": "oldest"}},
            "weighted": {"kind": "softmax", **SMALLEST["softmax"]},
            "entries": {"kind": "parametric_softmax", "entries": 4, "temperature": 1.0},
            "out": {"kind": "dense"},
        },
    },
    "vit with growing": {
        "kind": "vit",
        **SMALLEST["vit"],
        "ffn": {"kind": "softmax", **SMALLEST["softmax"], "memory": {"initial_capacity": 24}},
    },
}
LEARNING = {kind: {"kind": kind, **options} for kind, options in SMALLEST.items()} | RICHER
# Of these an entry depends on its example and on what was there before the step alone.
PURE = [
    name
    for name, options in LEARNING.items()
    if name in SMALLEST and "grows: nothing" not in LEARNERS[name] and options["kind"] not in ("mixed", "vit")
]


@cache
def learner(name: str, task: str = "classification", precision: str = "float32", devices: int = 1) -> Learner:
    """One of each, compiled once for all contracts; `precision` keeps those of the two modes apart."""
    return fresh(name, task, devices)


def fresh(name: str, task: str = "classification", devices: int = 1) -> Learner:
    """One that has compiled nothing."""
    options = LEARNING[name]
    if "value_rate" in options:  # a block below the readout
        options = {**options, "blocks": 1}
    if "value_rate" in options or name == "knn":  # room that must grow
        options = dict(options)
        options["memory"] = {"initial_capacity": 8, **options.get("memory", {})}
    shards = ONE_DEVICE if devices == 1 else Shards.over(devices)
    return build_learner(parse(options), features=D, task=TASKS[task], batch_size=B, seed=0, shards=shards)


def stream(task: str = "classification", seed: int = 0, steps: int = STEPS) -> list[Batch]:
    draw = np.random.default_rng(seed)
    batches = []
    for step in range(steps):
        x = draw.normal(size=(B, D))
        y = draw.integers(0, 3, B) if TASKS[task].classification else draw.normal(size=(B, 2))
        batches.append(Batch(x, y, np.arange(step * B, step * B + B)))
    return batches


def contents(state: State) -> Mapping[str, Any]:
    """All that is learnt, as arrays of numpy by path: entries by slot, and parameters."""
    found: dict[str, Any] = {}
    for name, memory in state.memories.items():
        live = memory.database.column("created") >= 0
        names = ["keys", "values", "created", "origin"] + ["weights"] * memory.database.weighted
        found |= {f"{name}.{column}": memory.database.column(column)[live] for column in names}
    leaves = jax.tree_util.tree_leaves_with_path(state.parameters)
    return found | {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", LEARNING)
def test_saved_and_loaded_at_every_step_equals_never_stopping(name: str, task: str, tmp_path: Path) -> None:
    """And outputs are as wide as the task says, finite, and those that `predict` gives before the update."""
    subject, batches = learner(name, task), stream(task)
    whole, expected = learnt(subject, batches)
    state, outputs = subject.init(jax.random.key(0)), []
    for number, batch in enumerate(batches):
        before = subject.predict(state, batch.x)
        assert before.shape == (B, TASKS[task].outputs)
        state, result = subject.update(state, batch)
        np.testing.assert_allclose(result.outputs, before, rtol=1e-5, atol=1e-6)
        assert np.isfinite(result.losses).all()
        outputs.append(np.asarray(result.outputs))
        save(state, tmp_path / str(number))
        state = load(tmp_path / str(number), subject)
    np.testing.assert_array_equal(outputs, expected)
    assert state.step == whole.step == STEPS
    ours, theirs = contents(state), contents(whole)
    assert ours.keys() == theirs.keys()
    for path, array in theirs.items():
        np.testing.assert_array_equal(ours[path], array, err_msg=path)


@pytest.mark.parametrize("name", LEARNING)
def test_an_update_depends_on_the_state_and_the_batch_alone(name: str) -> None:
    """Predicting, and other states of the same learner, leave no trace; programs are one per capacity."""
    subject, batches = fresh(name), stream()
    state, other = subject.init(jax.random.key(0)), subject.init(jax.random.key(0))
    capacities = set()
    for batch, elsewhere in zip(batches, stream(seed=1), strict=True):
        capacities |= {
            tuple(memory.database.capacity for memory in each.memories.values()) for each in (state, other)
        }
        before = contents(state)
        first = subject.predict(state, elsewhere.x)
        np.testing.assert_array_equal(subject.predict(state, elsewhere.x), first)
        for path, array in contents(state).items():
            np.testing.assert_array_equal(array, before[path], err_msg=path)
        state, result = subject.update(state, batch)
        assert result.changes.keys() == state.memories.keys()
        other, _ = subject.update(other, elsewhere)
    assert subject.compilations == len(capacities)
    again, _ = learnt(subject, batches)
    assert subject.compilations == len(capacities)
    for path, array in contents(again).items():
        np.testing.assert_array_equal(array, contents(state)[path], err_msg=path)


@pytest.mark.parametrize("name", LEARNING)
def test_answers_are_as_wide_as_the_declared_classes(name: str) -> None:
    """Also where only one class was ever seen, and it becomes likelier."""
    subject, [batch] = learner(name), stream(steps=1)
    batch = batch._replace(y=np.full(B, 2))
    state, first = subject.update(subject.init(jax.random.key(0)), batch)
    for _ in range(8):
        state, last = subject.update(state, batch)
    assert np.asarray(last.outputs).shape == (B, 3)
    assert np.mean(last.losses) < np.mean(first.losses)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", LEARNING)
def test_float64_is_used_throughout(name: str) -> None:
    state, outputs = learnt(learner(name, precision="float64"), stream())
    assert outputs[0].dtype == np.float64
    for path, array in contents(state).items():
        assert array.dtype == np.float64 or not np.issubdtype(array.dtype, np.floating), path


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", PURE)
def test_the_order_within_a_batch_only_orders_rows(name: str) -> None:
    subject, batches, order = learner(name, precision="float64"), stream(), np.array([2, 0, 3, 1])
    straight, expected = learnt(subject, batches)
    shuffled, found = learnt(subject, [Batch(*(column[order] for column in batch)) for batch in batches])
    np.testing.assert_allclose(found, np.asarray(expected)[:, order], rtol=1e-8, atol=1e-11)
    for layer, memory in straight.memories.items():
        other = shuffled.memories[layer].database
        ours, theirs = (np.argsort(d.column("origin"), kind="stable") for d in (memory.database, other))
        for column in ("keys", "values", "origin", "created"):
            np.testing.assert_allclose(
                memory.database.column(column)[ours], other.column(column)[theirs], rtol=1e-8, atol=1e-11
            )


@pytest.mark.parametrize("name", [name for name in LEARNING if name != "mlp"])
def test_four_devices_learn_as_one(name: str) -> None:
    batches = stream()
    one, expected = learnt(learner(name), batches)
    four, found = learnt(learner(name, devices=4), batches)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    for layer, memory in one.memories.items():
        other = four.memories[layer].database
        assert len(other.blocks[0].keys.sharding.device_set) == 4
        ours, theirs = (
            sorted(zip(d.column("created").tolist(), d.column("origin").tolist(), strict=True))
            for d in (memory.database, other)
        )
        assert [row for row in ours if row[0] >= 0] == [row for row in theirs if row[0] >= 0]
