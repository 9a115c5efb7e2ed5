"""Learners whose memories exceed their byte budget learn what learners without a budget learn."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, State, Task, build_learner
from lamina.learners.growing_config import LinearConfig, RBFConfig, SoftmaxConfig
from lamina.memory.database import COUNTERS, EMPTY
from lamina.memory.policy import MemoryConfig
from lamina.memory.sharding import ONE_DEVICE, Shards

D, C, B = 4, 3, 3
BUDGET = 5000  # about sixty entries of a block in float64, of which some forty are in memory


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def growing(kind: str, memory: dict[str, Any], shards: Shards = ONE_DEVICE, **options: Any) -> Learner:
    make: dict[str, Callable[..., Any]] = {
        "linear": lambda **o: LinearConfig(kind="linear", value_rate=0.1, **o),
        "rbf": lambda **o: RBFConfig(kind="rbf", value_rate=0.4, temperature=1.5, **o),
        "softmax": lambda **o: SoftmaxConfig(
            kind="softmax", value_rate=0.3, weight_rate=0.2, temperature=0.9, **o
        ),
    }
    config = make[kind](memory=MemoryConfig(**{"initial_capacity": 16} | memory), **{"blocks": 0} | options)
    task = Task(C, classification=True)
    return build_learner(config, features=D, task=task, batch_size=B, seed=0, shards=shards)


def stream(steps: int, seed: int = 0) -> Iterator[Batch]:
    draw = np.random.default_rng(seed)
    for step in range(steps):
        labels = draw.integers(0, C, B)
        yield Batch(draw.normal(size=(B, D)), labels, np.arange(step * B, step * B + B))


def assert_budget(state: State) -> None:
    for memory in state.memories.values():
        assert memory.cold is not None
        chunk = memory.database.nbytes // memory.database.capacity * memory.cold.layout.rows_per_chunk
        assert memory.database.nbytes + 6 * chunk <= BUDGET
        assert memory.cold.entries > 20


@pytest.mark.parametrize(
    ("kind", "memory", "options"),
    [
        ("linear", {}, {"momentum": 0.6, "decay": 0.05}),
        ("rbf", {}, {"blocks": 1}),
        ("rbf", {"admission": "novelty", "novelty_threshold": 0.3}, {"decay": 0.01}),
        ("rbf", {"prune_epsilon": 1e-3, "prune_every": 7}, {"decay": 0.05}),
        ("rbf", {"capacity": 81}, {}),
        ("softmax", {}, {"momentum": 0.6, "decay": 0.05, "blocks": 1}),
        ("softmax", {"capacity": 81, "eviction": "oldest"}, {}),
    ],
)
def test_learning_is_the_same_with_a_budget(
    kind: str, memory: dict[str, Any], options: dict[str, Any]
) -> None:
    bounded = growing(kind, memory | {"budget_bytes": BUDGET}, **options)
    # One that need not grow: every growth would be another program.
    plain = growing(kind, memory | {"initial_capacity": 128}, **options)
    ours, theirs = bounded.init(jax.random.key(0)), plain.init(jax.random.key(0))
    for batch in stream(40):
        ours, found = bounded.update(ours, batch)
        theirs, expected = plain.update(theirs, batch)
        np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-9, atol=1e-11)
        assert found.changes.keys() == expected.changes.keys()
        for name, change in expected.changes.items():
            assert found.changes[name].tolist() == change.tolist()
        for name, bound in expected.pruning_bounds.items():
            assert found.pruning_bounds[name] == pytest.approx(bound, rel=1e-9)
    assert_budget(ours)
    x = np.random.default_rng(3).normal(size=(9, D))
    np.testing.assert_allclose(bounded.predict(ours, x), plain.predict(theirs, x), rtol=1e-9, atol=1e-11)
    for name, memory_ in theirs.memories.items():
        database, other = ours.memories[name].database, memory_.database
        assert ours.memories[name].entries == memory_.entries
        assert database.counters.tolist() == other.counters.tolist()
        answers = [learner.query(state, name, x) for learner, state in ((bounded, ours), (plain, theirs))]
        np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-11)
        assert_same_contributions(bounded, ours, plain, theirs, name, x[0])


def assert_same_contributions(
    one: Learner, ours: State, other: Learner, theirs: State, layer: str, x: np.ndarray
) -> None:
    found, expected = one.explain(ours, x, layer, count=8), other.explain(theirs, x, layer, count=8)
    for a, b in zip(found, expected, strict=True):
        assert (a.created, a.origin) == (b.created, b.origin)
        assert (a.share, a.similarity, a.amount) == pytest.approx((b.share, b.similarity, b.amount), rel=1e-8)


def test_spilling_compiles_nothing(caplog: pytest.LogCaptureFixture) -> None:
    learner = growing("rbf", {"budget_bytes": BUDGET})
    state = learner.init(jax.random.key(0))
    batches = list(stream(40))
    for batch in batches[:25]:
        state, _ = learner.update(state, batch)
    before, chunks = learner.compilations, len(state.memories["readout"].cold.chunks)
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        for batch in batches[25:]:
            state, _ = learner.update(state, batch)
    assert learner.compilations == before
    assert [record for record in caplog.records if "Compiling" in record.getMessage()] == []
    assert len(state.memories["readout"].cold.chunks) > chunks + 8


def test_a_batch_that_does_not_fit_is_refused() -> None:
    learner = growing("rbf", {"budget_bytes": BUDGET})
    draw = np.random.default_rng(0)
    batch = Batch(draw.normal(size=(64, D)), np.zeros(64, np.int64), np.arange(64))
    with pytest.raises(
        ConfigError, match=r"memory\.budget_bytes: expected room for the 64 entries of a batch"
    ):
        learner.update(learner.init(jax.random.key(0)), batch)


@pytest.mark.parametrize(
    ("memory", "options", "message"),
    [
        ({"budget_bytes": 100}, {}, r"expected room for 16 entries of \d+ bytes, \d+; found 100: raise it"),
        ({"budget_bytes": BUDGET}, {"initial_entries": 50}, "room for the 50 initial entries"),
        (
            {"budget_bytes": BUDGET, "capacity": 90, "eviction": "smallest"},
            {},
            "memory.eviction: expected none",
        ),
    ],
)
def test_budgets_that_make_no_sense_are_refused(
    memory: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        growing("softmax", memory, **options)


def test_pruned_chunks_go_and_half_empty_ones_are_joined() -> None:
    """With strong decay only the last steps' entries stay, and so do few chunks."""
    learner = growing("rbf", {"budget_bytes": BUDGET, "prune_epsilon": 1e-3, "prune_every": 5}, decay=0.15)
    state = learner.init(jax.random.key(0))
    for batch in stream(60):
        state, _ = learner.update(state, batch)
    for memory in state.memories.values():
        counts = [int(live.sum()) for live in memory.cold.live]
        rows = memory.cold.layout.rows_per_chunk
        assert all(0 < one <= rows for one in counts)
        assert all(one + other > rows for one, other in pairwise(counts))
        assert int(memory.database.counters[COUNTERS.index("pruned")]) == 180 - memory.entries > 0


@pytest.mark.skipif(jax.device_count() < 4, reason="needs four devices")
def test_entries_spread_over_devices_are_spilled_alike() -> None:
    spread = growing("softmax", {"budget_bytes": 4 * BUDGET}, Shards.over(4), decay=0.05)
    plain = growing("softmax", {}, decay=0.05)
    ours, theirs = spread.init(jax.random.key(0)), plain.init(jax.random.key(0))
    for batch in stream(90):
        ours, found = spread.update(ours, batch)
        theirs, expected = plain.update(theirs, batch)
        np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-9, atol=1e-11)
    memory = ours.memories["readout"]
    assert memory.cold.rows % 4 == 0 < memory.cold.entries
    assert {len(each.devices()) for each in (memory.database.blocks[0].keys,)} == {4}
    live = memory.database.column("created") != EMPTY
    assert int(live.sum()) == int(memory.database.entries)


_RESIDENT = """
import json, resource
from pathlib import Path
import jax, numpy as np
from lamina.learners import Batch, Task, build_learner
from lamina.learners.growing_config import RBFConfig
from lamina.memory.policy import MemoryConfig

D, B, BUDGET = 2048, 256, 48 << 20
memory = MemoryConfig(budget_bytes=BUDGET)
config = RBFConfig(kind="rbf", value_rate=0.1, temperature=5, blocks=0, memory=memory)
learner = build_learner(config, features=D, task=Task(D, classification=False), batch_size=B, seed=0)
state, draw = learner.init(jax.random.key(0)), np.random.default_rng(0)


def resident(name="VmRSS"):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def learn(steps):
    global state
    for _ in range(steps):
        batch = Batch(draw.normal(size=(B, D)), draw.normal(size=(B, D)), np.arange(B))
        state, result = learner.update(state, batch)
        jax.block_until_ready(result.losses)


learn(20)
before = resident()
learn(30)
memory = state.memories["readout"]
live = sum(array.nbytes for array in jax.live_arrays())
print(json.dumps({"before": before, "after": resident(), "peak": resident("VmHWM"), "live": live,
                  "cold": memory.cold.nbytes, "hot": memory.database.nbytes}))
"""


def test_what_is_in_memory_stays_within_the_budget() -> None:
    """200 MiB of entries, 48 MiB of them resident; the process does not grow as the disk fills."""
    run = subprocess.run([sys.executable, "-c", _RESIDENT], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    budget = 48 << 20
    assert found["hot"] + found["cold"] > 190 << 20
    assert found["live"] < budget
    assert found["after"] - found["before"] < budget // 2
