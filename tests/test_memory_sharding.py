"""A memory spread over devices is the same memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.continual.checkpoint import load, save
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, State, Task, build_learner, initial_key
from lamina.learners.config import LearnerConfig
from lamina.learners.growing_config import RBFConfig, SoftmaxConfig
from lamina.memory import RBF, Decision, MemoryConfig, Occupancy, Store, append, empty_database, prune
from lamina.memory.database import Database, Rows
from lamina.memory.neighbours import nearest
from lamina.memory.orientation import QUERIES_FIRST
from lamina.memory.persist import TableMap, database_meta, load_database, table_change
from lamina.memory.plan import Plan
from lamina.memory.retrieval import retrieve
from lamina.memory.scores import Coefficients
from lamina.memory.sharding import AXIS, ONE_DEVICE, Shards
from memory_reference import KERNELS, KernelCase, following

STEPS, BATCH, FEATURES = 20, 4, 6
MEMORIES = {
    "unbounded": {},
    "smallest": {"capacity": 50, "eviction": "smallest"},
    "novelty": {"admission": "novelty", "novelty_threshold": 1.5, "capacity": 30, "eviction": "oldest"},
    "pruned": {"prune_epsilon": 0.05, "prune_every": 7},
}


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)


def filled(shards: Shards, entries: int, weighted: bool) -> Database:
    """Rows that do not divide over the devices, in two blocks."""
    draw = np.random.default_rng(3)
    database = empty_database(16, FEATURES, 3, weighted=weighted, shards=shards)
    policy, occupancy = MemoryConfig(initial_capacity=16), Occupancy(0, 0)
    for step in range(1, entries + 1):
        rows = Rows(
            jnp.asarray(draw.normal(size=(1, FEATURES)), jnp.float32),
            jnp.asarray(draw.normal(size=(1, 3)), jnp.float32),
            jnp.asarray(draw.uniform(size=1), jnp.float32) if weighted else None,
            jnp.array([step], jnp.int32),
        )
        database, occupancy, _ = append(
            policy, RBF(1.0), database, occupancy, None, rows, Decision.everything(1), step
        )
    return database


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_rows_lie_on_their_devices(devices: int) -> None:
    shards = Shards.over(devices)
    database = filled(shards, 37, weighted=False)
    for block in database.blocks:
        held = block.keys.addressable_shards
        assert len({shard.device for shard in held}) == devices
        assert {shard.data.shape[0] for shard in held} == {block.slots // devices}
    origins = np.asarray(database.blocks[0].origin).reshape(devices, -1)
    np.testing.assert_array_equal(origins[1], np.arange(16)[1::devices] + 1)
    balance = [np.sum(np.asarray(s.data) >= 0) for s in database.blocks[0].created.addressable_shards]
    assert max(balance) - min(balance) <= 1


CHUNKED = Plan(QUERIES_FIRST, 3, 3)  # of 4 to 8 rows of a block on a device


@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_retrieval_equals_one_device(case: KernelCase, devices: int, draw: np.random.Generator) -> None:
    queries = jnp.asarray(draw.normal(size=(BATCH, FEATURES)), jnp.float32)
    found = [answers(case, filled(Shards.over(n), 37, case.kernel.normalised), queries) for n in (1, devices)]
    for expected, spread in zip(*found, strict=True):
        np.testing.assert_allclose(spread, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_chunks_on_devices_equal_one_device(case: KernelCase, draw: np.random.Generator) -> None:
    queries = jnp.asarray(draw.normal(size=(BATCH, FEATURES)), jnp.float32)
    expected = answers(case, filled(ONE_DEVICE, 37, case.kernel.normalised), queries)
    with following(CHUNKED):
        found = answers(case, filled(Shards.over(4), 37, case.kernel.normalised), queries)
    for one, spread in zip(expected, found, strict=True):
        np.testing.assert_allclose(spread, one, rtol=2e-4, atol=1e-4 * np.abs(one).max())


def answers(case: KernelCase, database: Database, queries: jax.Array) -> tuple[np.ndarray, ...]:
    """Output, gradient in the queries, and the three nearest entries."""
    coefficients = tuple(
        Coefficients(b.live * jnp.float32(0.7), b.live * jnp.float32(0.9) if database.weighted else None)
        for b in database.blocks
    )

    @jax.jit
    def run(blocks: object, queries: jax.Array) -> tuple[jax.Array, ...]:
        def output(q: jax.Array) -> jax.Array:
            return retrieve(case.kernel, blocks, coefficients, q, shards=database.shards)

        gradient = jax.grad(lambda q: jnp.sum(jnp.sin(output(q))))(queries)
        found = nearest(blocks, queries, count=3, shards=database.shards)
        return output(queries), gradient, found.scores, found.slots, found.keys

    return tuple(np.asarray(x) for x in run(database.blocks, queries))


@pytest.mark.parametrize("plan", [None, CHUNKED], ids=["whole", "chunks"])
@pytest.mark.parametrize(("kind", "collective"), [("RBF", "all-reduce"), ("WeightedSoftmax", "all-gather")])
def test_one_collective_each_way(kind: str, collective: str, plan: Plan | None) -> None:
    case = next(case for case in KERNELS if str(case) == kind)
    database = filled(Shards.over(4), 37, case.kernel.normalised)
    ones = tuple(
        Coefficients(b.live * jnp.float32(1), b.live * jnp.float32(1) if database.weighted else None)
        for b in database.blocks
    )
    queries = jnp.zeros((BATCH, FEATURES))

    def output(q: jax.Array, blocks: object) -> jax.Array:
        return jnp.sum(retrieve(case.kernel, blocks, ones, q, shards=database.shards))

    with following(plan):
        forward = jax.jit(output).lower(queries, database.blocks).compile().as_text()
        both = jax.jit(jax.grad(output)).lower(queries, database.blocks).compile().as_text()
    assert count(forward, collective) == 1
    assert count(forward, "all-reduce") + count(forward, "all-gather") == 1
    assert count(both, "all-reduce") + count(both, "all-gather") <= 2


def count(program: str, operation: str) -> int:
    return sum(f" {operation}(" in line or f" {operation}-start(" in line for line in program.splitlines())


def learnt(config: LearnerConfig, devices: int) -> tuple[np.ndarray, State, Learner]:
    learner = build_learner(
        config,
        features=FEATURES,
        task=Task(3, classification=True),
        batch_size=BATCH,
        seed=0,
        shards=Shards.over(devices),
    )
    draw, outputs = np.random.default_rng(5), []
    state = learner.init(initial_key(0))
    for step in range(STEPS):
        x = draw.normal(size=(BATCH, FEATURES)).astype(np.float32)
        batch = Batch(x, draw.integers(0, 3, BATCH), np.arange(BATCH) + BATCH * step)
        state, result = learner.update(state, batch)
        outputs.append(np.asarray(result.outputs))
    return np.stack(outputs), state, learner


def configs() -> Iterator[object]:
    for name, memory in MEMORIES.items():
        common = {"blocks": 1, "temperature": 1.5, "value_rate": 0.3, "momentum": 0.5, "decay": 0.01}
        bounded = MemoryConfig(initial_capacity=20, **memory)
        yield pytest.param(RBFConfig(kind="rbf", memory=bounded, **common), id=f"rbf-{name}")
        softmax = SoftmaxConfig(kind="softmax", weight_rate=0.03, memory=bounded, **common)
        yield pytest.param(softmax, id=f"softmax-{name}")


@pytest.mark.parametrize("config", list(configs()))
def test_learning_equals_one_device(config: LearnerConfig) -> None:
    expected, one, _ = learnt(config, 1)
    found, four, _ = learnt(config, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for name, memory in one.memories.items():
        spread = four.memories[name].database
        for column in ("created", "origin"):
            # More slots may be allocated, so that they divide; what lies in the others is the same.
            known = memory.database.column(column)
            np.testing.assert_array_equal(spread.column(column)[: len(known)], known)


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (8, 2)])
def test_reopens_on_other_devices(before: int, after: int, tmp_path: Path) -> None:
    config = RBFConfig(kind="rbf", blocks=0, temperature=1.5, value_rate=0.3,
                       memory=MemoryConfig(initial_capacity=10, capacity=50))  # fmt: skip
    _, state, learner = learnt(config, before)
    queries = np.random.default_rng(1).normal(size=(5, FEATURES)).astype(np.float32)
    database = state.memories["readout"].database
    with Store.create(tmp_path / "memory") as store:
        change, _ = table_change(database, TableMap.empty(), state.step)
        meta = {"layer": database_meta(database)}
        store.commit(step=state.step, tables={"layer": change}, blobs={}, meta=meta)
        view = store.generation()
        shards = Shards.over(after)
        loaded, known = load_database(view.tables["layer"], view.meta["layer"], state.step, shards)
        assert len(loaded.blocks[0].keys.sharding.device_set) == after
        learner.shards = shards
        moved = replace(state, memories={"readout": replace(state.memories["readout"], database=loaded)})
        np.testing.assert_allclose(
            learner.predict(moved, queries), learner.predict(state, queries), rtol=1e-4, atol=1e-5
        )
        # The next commit keeps the table whole, also where slots had to move.
        change, _ = table_change(loaded, known, state.step + 1)
        store.commit(
            step=state.step + 1, tables={"layer": change}, blobs={}, meta={"layer": database_meta(loaded)}
        )
        again, _ = load_database(
            store.generation().tables["layer"], store.generation().meta["layer"], state.step + 1
        )
        live = loaded.column("created") >= 0
        np.testing.assert_array_equal(again.column("keys")[: len(live)][live], loaded.column("keys")[live])


@pytest.mark.parametrize(("before", "after"), [(1, 4), (2, 4), (4, 1)])
def test_learning_goes_on_behind_blocks_that_were_rounded_up(before: int, after: int, tmp_path: Path) -> None:
    """Slots move there, and leave gaps: no later entry may take the place of one that lives."""
    config = RBFConfig(kind="rbf", blocks=0, temperature=1.5, value_rate=0.3,
                       memory=MemoryConfig(initial_capacity=10))  # fmt: skip
    _, state, learner = learnt(config, before)
    save(state, tmp_path / "memory")
    learner.shards = Shards.over(after)
    moved = load(tmp_path / "memory", learner)
    _, whole, one = learnt(config, 1)
    draw = np.random.default_rng(7)
    for number in range(6):
        x = draw.normal(size=(BATCH, FEATURES)).astype(np.float32)
        batch = Batch(x, draw.integers(0, 3, BATCH), 1000 + BATCH * number + np.arange(BATCH))
        moved, found = learner.update(moved, batch)
        whole, expected = one.update(whole, batch)
        np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-3, atol=1e-4)
    origins = [
        np.sort(
            s.memories["readout"].database.column("origin")[
                s.memories["readout"].database.column("created") > 0
            ]
        )
        for s in (moved, whole)
    ]
    np.testing.assert_array_equal(*origins)


def test_unbalanced_after_pruning_still_equal() -> None:
    """All entries of one device go; what is left and what comes after answer as on one device."""
    results = []
    for shards in (ONE_DEVICE, Shards.over(4)):
        database = filled(shards, 37, weighted=False)
        blocks = tuple(
            replace(b, value_norms=jnp.where(b.origin % 4 == 1, 0, b.value_norms)) for b in database.blocks
        )
        pruned = prune(RBF(1.0), replace(database, blocks=blocks), Occupancy(37, 37), None, None, 1e-3, 40)
        assert pruned.entries == 10
        rows = Rows(jnp.ones((5, FEATURES)), jnp.ones((5, 3)), None, jnp.arange(5, dtype=jnp.int32) + 100)
        policy = MemoryConfig(initial_capacity=16)
        database, _, _ = append(
            policy, RBF(1.0), pruned.database, pruned.occupancy, None, rows, Decision.everything(5), 41
        )
        results.append((database.column("origin"), database.column("created"), int(database.entries)))
    for one, four in zip(*results, strict=True):
        np.testing.assert_array_equal(one, four)


def test_too_many_devices_is_said() -> None:
    with pytest.raises(ConfigError, match="expected 64 devices"):
        Shards.over(64)


def test_axis_is_the_one_documented() -> None:
    assert Shards.over(2).mesh.axis_names == (AXIS,)
