"""What phases do to memories: what is left, what it answers, and where entries came from."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml
from lamina.continual.actions import brought_forward, cap, decay, merge, prune_all
from lamina.learners import Batch, Learner, State, build_learner
from lamina.learners.growing_config import RBFConfig, SoftmaxConfig
from lamina.learners.losses import Task
from lamina.memory import MemoryConfig, Store
from lamina.monitoring import read_table
from tiny_runs import STREAM, TINY, changed, command, contents, refused, saved_progress, write_log

TASK, FEATURES, BATCH = Task(3, classification=True), 4, 5
FADING = {"momentum": 0.5, "decay": 0.1}
KINDS = {
    "rbf": RBFConfig(kind="rbf", blocks=1, temperature=1, value_rate=1),
    "fading": RBFConfig(kind="rbf", blocks=1, temperature=1, value_rate=1, **FADING),
    "softmax": SoftmaxConfig(
        kind="softmax", blocks=1, temperature=1, value_rate=1, weight_rate=0.5, initial_entries=2, **FADING
    ),
}


def learner_of(kind: str, **memory: Any) -> Learner:
    config = replace(KINDS[kind], memory=MemoryConfig(initial_capacity=8, **memory))
    return build_learner(config, features=FEATURES, task=TASK, batch_size=BATCH, seed=0)


def taught(learner: Learner, steps: int, seed: int = 0) -> State:
    draw, state = np.random.default_rng(seed), learner.init(jax.random.key(0))
    for step in range(steps):
        x = draw.normal(size=(BATCH, FEATURES)).astype(np.float32)
        origins = np.arange(step * BATCH, (step + 1) * BATCH)
        state, _ = learner.update(state, Batch(x, draw.integers(0, 3, BATCH), origins))
    return state


QUERIES = np.random.default_rng(9).normal(size=(7, FEATURES)).astype(np.float32)


def answers(learner: Learner, state: State) -> dict[str, np.ndarray]:
    return {name: learner.query(state, name, QUERIES) for name in learner.layers}


@pytest.mark.parametrize("kind", ["rbf", "fading"])
def test_decay_scales_what_entries_contribute_for_good(kind: str) -> None:
    learner = learner_of(kind)
    state = taught(learner, 3)
    before = answers(learner, state)
    faded = decay(taught(learner, 3), 0.25)
    for name, answer in answers(learner, faded).items():
        np.testing.assert_allclose(answer, before[name] / 4, rtol=1e-5, atol=1e-7)
    clocks = [each.memories["readout"].clocks for each in (faded, state)]
    if kind == "fading":  # momentum that is not yet paid out is scaled too
        later = [each.values.advance(momentum=0.5, decay=0.1).coefficients[:3] for each in clocks]
        np.testing.assert_allclose(later[0], later[1] / 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cap_keeps_the_most_effective_entries_and_the_initial_ones(kind: str) -> None:
    learner = learner_of(kind)
    state = taught(learner, 4)
    database = state.memories["readout"].database
    created, norms = database.column("created"), database.column("value_norms")
    sizes = norms if not database.weighted else np.maximum(norms, np.abs(database.column("weights")))
    clocks = state.memories["readout"].clocks
    clock = None if clocks is None else clocks.values
    worth = sizes * (
        1 if clock is None else np.append(clock.initial, clock.coefficients)[np.maximum(created, 0)]
    )
    expected = sorted(worth[created > 0])[-(7 - (created == 0).sum()) :]
    capped = cap(state, learner, 7).memories["readout"]
    left = capped.database.column("created") >= 0
    assert left.sum() == int(capped.database.entries) == capped.occupancy.most == 7
    assert capped.occupancy.holes
    np.testing.assert_allclose(sorted(worth[left & (created > 0)]), expected)
    assert (created[left] == 0).sum() == (created == 0).sum()
    assert int(capped.database.counters[4]) == 4 * BATCH + (created == 0).sum() - 7
    assert (capped.database.column("changed")[(created > 0) & ~left] == 4).all()
    unchanged = cap(taught(learner, 1), learner, 100)
    assert int(unchanged.memories["readout"].database.entries) == BATCH + (created == 0).sum()


def test_pruning_leaves_what_may_still_matter() -> None:
    learner = learner_of("fading")
    state = taught(learner, 4)
    clock, database = state.memories["readout"].clocks.values, state.memories["readout"].database
    bound = (clock.coefficients + clock.velocities)[database.column("created")[:20] - 1]  # μ/(1 − μ) = 1
    worth = bound * database.column("value_norms")[:20]
    epsilon = float(np.median(worth))
    pruned = prune_all(state, learner, epsilon).memories["readout"].database
    np.testing.assert_array_equal(pruned.column("created")[:20] >= 0, worth >= np.float32(epsilon))


@pytest.mark.parametrize("kind", ["rbf", "fading"])
def test_merged_memories_answer_the_sum(kind: str) -> None:
    learner = learner_of(kind)
    one, other = taught(learner, 3), taught(learner, 5, seed=1)
    expected = {name: answers(learner, one)[name] + answers(learner, other)[name] for name in learner.layers}
    both = merge(one, other, learner, shift=100)
    assert both.step == 4
    for name, answer in answers(learner, both).items():
        np.testing.assert_allclose(answer, expected[name], rtol=1e-5, atol=1e-6)
    origins = both.memories["readout"].database.column("origin")
    assert sorted(origins[origins >= 0]) == [*range(15), *range(100, 125)]
    if kind == "fading":  # what was merged has no momentum of its own
        clock = both.memories["readout"].clocks.values.advance(momentum=0.5, decay=0.1)
        assert clock.coefficients[3] == pytest.approx(0.9)


def test_merging_softmax_memories_is_attention_over_both() -> None:
    learner = learner_of("softmax")
    one, other = taught(learner, 3), taught(learner, 5, seed=1)

    def parts(state: State, initial: bool) -> tuple[np.ndarray, np.ndarray]:
        memory = state.memories["readout"]
        database, clock = memory.database, memory.clocks.values
        created = database.column("created")
        keep = (created > 0) | (initial & (created == 0))
        now = np.append(clock.initial, clock.coefficients)[np.maximum(created, 0)][keep]
        scores = np.exp(QUERIES @ database.column("keys")[keep].T / np.sqrt(FEATURES))
        values, weights = database.column("values")[keep], database.column("weights")[keep]
        return scores @ (values * now[:, None]), scores @ (weights * now)

    (above, below), (more, beneath) = parts(one, True), parts(other, False)
    expected = (above + more) / (below + beneath)[:, None]
    both = merge(one, other, learner, shift=0)
    np.testing.assert_allclose(answers(learner, both)["readout"], expected, rtol=1e-4)


def test_merging_keeps_to_the_cap() -> None:
    learner = learner_of("rbf", capacity=20, eviction="oldest")
    both = merge(taught(learner, 3), taught(learner, 3, seed=1), learner, shift=100)
    database = both.memories["readout"].database
    created = database.column("created")
    assert int(database.entries) == (created >= 0).sum() == 20
    assert (created == 4).sum() == 15


def test_an_earlier_state_comes_back_unfaded() -> None:
    learner = learner_of("fading")
    past = taught(learner, 2)
    expected = answers(learner, past)
    back = brought_forward(past, 6)
    assert (back.step, back.memories["readout"].clocks.values.step) == (6, 6)
    for name, answer in answers(learner, back).items():
        np.testing.assert_array_equal(answer, expected[name])


# In runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("actions")
    write_log(folder / "log", STREAM)
    return folder


def run(
    folder: Path, path: str, phases: dict[str, Any], run_name: str = "tiny", **changes: Any
) -> dict[str, Any]:
    """A run whose phases all stream the same 96 digits."""
    every = {phase: {"log": str(folder / "log"), **more} for phase, more in phases.items()}
    config = folder / f"{path}.yaml"
    values = changed(TINY, {"name": run_name, "phases": every, **changes})
    config.write_text(yaml.safe_dump(values, sort_keys=False))
    return command("run", config, "--run-dir", folder / path, "--json").json()


def test_phases_act_on_their_memories_in_order(folder: Path) -> None:
    again = {"freeze": ["memory"]}
    found = run(
        folder,
        "acted",
        {
            "learn": {},
            "capped": {**again, "begin": [{"cap": 30}]},
            "back": {**again, "begin": [{"restore": "learn"}], "end": [{"decay": 0.0}]},
            "more": {"learner": {"momentum": 0.5}, "begin": [{"prune": 1e-6}]},
        },
        evaluation={"every_examples": None, "examples": None},
    )
    matrix = found["summary"]["continual"]["accuracy"]
    assert matrix[0][0] == matrix[2][0] != matrix[1][0]  # restored, then decayed after its evaluation
    with Store.open(folder / "acted" / "memory") as store:
        entries = {tag: head.meta["layers"]["readout"]["entries"] for tag, head in store.tags().items()}
    assert entries == {"learn": 96, "capped": 30, "back": 96, "end": 96}
    one, other = (contents_of(folder / "acted", tag) for tag in ("learn", "back"))
    assert one == other
    assert command("inspect", folder / "acted", "--json").json()["problems"] == []
    rows = [r for r in read_table(folder / "acted" / "metrics.jsonl") if r["kind"] == "step"]
    assert [r["layers"]["readout"]["entries"] for r in rows if r["step"] == 12] == [96, 30]
    layer = found["summary"]["layers"]["readout"]
    assert (layer["evicted"], layer["pruned"], layer["admitted"]) == (66, 96, 192)


def contents_of(path: Path, at: str) -> dict[str, bytes]:
    with Store.open(path / "memory") as store, store.generation(at) as generation:
        table = generation.tables["readout"]
        order = np.argsort(table.read("slot")[table.alive()])
        return {
            name: table.read(name)[table.alive()][order].tobytes() for name in ("keys", "values", "origin")
        }


def test_a_merged_memory_is_traced_to_its_own_run(folder: Path) -> None:
    run(folder, "donor", {"given": {}}, run_name="donor")
    run(folder, "heir", {"own": {}, "both": {"begin": [{"merge": str(folder / "donor")}]}})
    spans = saved_progress(folder / "heir")["spans"]
    assert [(s["start"], s["run"], s["phase"]) for s in spans] == [
        (0, "tiny", "own"),
        (96, "donor", "given"),
        (192, "tiny", "both"),
    ]
    found = command("explain", folder / "heir", "--count", 40, "--json").json()["contributions"]
    assert {(each["run"], each["phase"]) for each in found} == {
        ("tiny", "own"),
        ("donor", "given"),
        ("tiny", "both"),
    }
    for each in found:
        assert each["origin"] - each["offset"] == {"own": 0, "given": 96, "both": 192}[each["phase"]]
    refused_run(folder, {"own": {"begin": [{"merge": str(folder / "nobody")}]}}, "nobody", "no memory")


def test_a_phase_with_too_small_a_cap_says_how_to_go_on(folder: Path) -> None:
    small = {"learner": {"memory": {"capacity": 50, "eviction": "oldest"}}}
    refused_run(folder, {"one": {}, "two": small}, "phase two", "96 entries", "begin with a cap")
    found = run(folder, "fitted", {"one": {}, "two": {**small, "begin": [{"cap": 50}]}})
    assert found["summary"]["layers"]["readout"]["entries"] == 50
    refused_run(folder, {"one": {}, "two": {"begin": [{"restore": "three"}]}}, "one", "'three'")


def refused_run(folder: Path, phases: dict[str, Any], *parts: str) -> None:
    every = {phase: {"log": str(folder / "log"), **more} for phase, more in phases.items()}
    config = folder / "refused.yaml"
    config.write_text(yaml.safe_dump(changed(TINY, {"phases": every}), sort_keys=False))
    path = folder / f"refused-{len(list(folder.iterdir()))}"
    answer = command("run", config, "--run-dir", path, "--quiet")
    refused(answer, *parts)


def test_an_interrupted_run_acts_the_same(folder: Path) -> None:
    phases = {
        "one": {"end": [{"cap": 40}]},
        "two": {"begin": [{"decay": 0.5}], "replay": {"kind": "memory", "examples": 3}},
        "three": {"begin": [{"restore": "one"}, {"merge": str(folder / "donor2")}, {"prune": 0.01}]},
    }
    run(folder, "donor2", {"given": {}})
    run(folder, "whole", phases)
    every = {phase: {"log": str(folder / "log"), **more} for phase, more in phases.items()}
    config = folder / "parts.yaml"
    config.write_text(yaml.safe_dump(changed(TINY, {"phases": every}), sort_keys=False))
    assert command("run", config, "--run-dir", folder / "parts", "--steps", 1, "--quiet").code == 0
    for steps in (10, 1, 1, 10, 2, 6):
        assert command("resume", folder / "parts", "--steps", steps, "--quiet").code == 0
    done = json.loads(command("resume", folder / "parts", "--json").out)
    assert done["finished"]
    ours, theirs = contents(folder / "parts"), contents(folder / "whole")
    assert ours == theirs
