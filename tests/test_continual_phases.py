"""Runs over several phases: equal to runs chained by hand, evaluated on every task, traced to streams."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from lamina.continual import parse_config
from lamina.continual.config import config_values
from lamina.memory import Store
from lamina.monitoring import read_predictions, read_table
from lamina.stream import StreamConfig, open_source
from tiny_runs import STREAM, TINY, changed, command, refused, saved_progress, write_log

FIRST, SECOND = STREAM, STREAM | {"limit": 48, "seed": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phases")
    write_log(folder / "first", FIRST)
    write_log(folder / "second", SECOND)
    return folder


def phased(folder: Path, second: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A run of two phases, the second on 48 examples in another order."""
    phases = {
        "one": {"log": str(folder / "first")},
        "two": changed({"stream": {"limit": 48, "seed": 5}, "log": str(folder / "second")}, second or {}),
    }
    return changed(TINY, {"phases": phases, **changes})


def run(values: dict[str, Any], path: Path, *options: object) -> dict[str, Any]:
    config = path.with_suffix(".yaml")
    config.write_text(yaml.safe_dump(values))
    return command("run", config, "--run-dir", path, "--json", *options).json()


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    run(phased(folder), folder / "finished")
    return folder / "finished"


def columns(path: Path, at: str | None = None) -> dict[str, np.ndarray]:
    with Store.open(path / "memory") as store, store.generation(at) as generation:
        table = generation.tables["readout"]
        return {name: table.read(name)[table.alive()] for name in table.columns}


def test_phases_are_the_runs_chained_by_hand(folder: Path, finished: Path) -> None:
    run(TINY | {"log": str(folder / "first")}, folder / "a")
    second = TINY | {"stream": SECOND, "log": str(folder / "second")}
    run(second, folder / "b", "--from", folder / "a")
    ours, theirs = columns(finished), columns(folder / "b")
    assert set(ours) == set(theirs)
    for name, column in ours.items():
        np.testing.assert_array_equal(column, theirs[name], strict=True, err_msg=name)
    assert sorted(ours["origin"].tolist()) == list(range(144))
    mine = read_predictions(finished)
    before, after = read_predictions(folder / "a"), read_predictions(folder / "b")
    assert np.array_equal(mine, np.concatenate([before, after]))
    np.testing.assert_array_equal(columns(finished, "one")["keys"], columns(folder / "a")["keys"])


def test_the_matrix_is_that_of_the_evaluations_at_the_ends(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())["continual"]
    rows = [row for row in read_table(finished / "metrics.jsonl") if row["kind"] == "evaluation"]
    full = [row for row in rows if row["evaluated_examples"] == 359]
    assert [(row["step"], row["phase"], row["task"]) for row in full] == [
        (step, phase, task)
        for step, phase in ((0, "one"), (12, "one"), (18, "two"))
        for task in ("one", "two")
    ]
    accuracies = np.array([row["accuracy"] for row in full]).reshape(3, 2).tolist()
    assert [summary["untrained"], *summary["accuracy"]] == accuracies
    assert summary["phases"] == summary["tasks"] == ["one", "two"]
    assert summary["bwt_gem"] == accuracies[2][0] - accuracies[1][0] == -summary["forgetting_first"]
    assert summary["fwt_gem"] == accuracies[1][1] - accuracies[0][1]
    steps = [row for row in read_table(finished / "metrics.jsonl") if row["kind"] == "step"]
    assert {row["phase"] for row in steps} == {"one", "two"}
    assert steps[-1]["offset"] == 48
    assert steps[-1]["examples"] == 144


def test_any_time_accuracy_is_the_mean_over_the_tasks_taught_so_far(finished: Path) -> None:
    points: dict[tuple[int, str], dict[str, float]] = {}
    for row in read_table(finished / "metrics.jsonl"):
        if row["kind"] == "evaluation" and row["step"] > 0:
            points.setdefault((row["step"], row["phase"]), {})[row["task"]] = row["accuracy"]
    means = [
        point["one"] if phase == "one" else (point["one"] + point["two"]) / 2
        for (_, phase), point in points.items()
    ]
    assert len(means) == 5  # after 40 and 80 examples, at the end, after 120, at the end
    summary = json.loads((finished / "summary.json").read_text())["continual"]
    assert summary["anytime_accuracy"] == pytest.approx(np.mean(means), abs=1e-12)


def test_one_phase_has_no_transfer_and_says_null(folder: Path) -> None:
    found = run(TINY | {"log": str(folder / "first")}, folder / "alone")["summary"]
    assert found["continual"]["accuracy"] == [[found["test_accuracy"]]]
    assert found["continual"]["average_accuracy"] == found["test_accuracy"]
    for name in ("bwt_gem", "bwt_triangular", "fwt_gem", "forgetting_max", "forgetting_first"):
        assert found["continual"][name] is None


def test_entries_are_traced_to_the_phase_they_came_by_in(folder: Path, finished: Path) -> None:
    sources = {"one": open_source(StreamConfig(**FIRST, seed=0)), "two": open_source(StreamConfig(**SECOND))}
    run(
        TINY | {"stream": SECOND, "log": str(folder / "second"), "name": "later"},
        folder / "c",
        "--from",
        finished,
    )
    places: set[tuple[str, str]] = set()
    for path in (finished, folder / "c"):
        for index in range(4):
            found = command("explain", path, "--index", index, "--count", 8, "--json").json()
            for each in found["contributions"]:
                places.add((each["run"], each["phase"]))
                source = sources["one" if each["phase"] == "one" else "two"]
                y = source.read(each["offset"], each["offset"] + 1)["y"]
                assert each["label"] == source.schema.classes[int(y[0])]
    assert places == {("tiny", "one"), ("tiny", "two"), ("later", "online")}
    refused(command("explain", finished, "--phase", "three"), "one, two", "'three'")


def test_a_frozen_memory_stays_byte_for_byte(folder: Path, finished: Path) -> None:
    rates = {"momentum": 0.5, "decay": 0.1}
    values = phased(folder, {"freeze": ["memory"]}, learner=rates)
    found = run(values, folder / "frozen")
    assert found["steps"] == 18
    before, after = columns(folder / "frozen", "one"), columns(folder / "frozen")
    assert {name: each.tobytes() for name, each in after.items()} == {
        name: each.tobytes() for name, each in before.items()
    }
    matrix = found["summary"]["continual"]["accuracy"]
    assert matrix[0] == matrix[1]  # nothing faded either
    thawed = run(phased(folder, learner=rates), folder / "thawed")["summary"]["continual"]["accuracy"]
    assert thawed[0] == matrix[0] != thawed[1]
    refused(
        command(
            "run", _file(phased(folder, {"freeze": ["block7"]}), folder / "x.yaml"), "--run-dir", folder / "x"
        ),
        "memory, parameters, readout",
        "'block7'",
    )


def test_frozen_parameters_are_not_trained(folder: Path) -> None:
    mlp = {"kind": "mlp", "blocks": 1, "width": 16}
    for name, freeze in (("kept", ["parameters"]), ("trained", [])):
        values = phased(folder, {"freeze": freeze}) | {"learner": mlp}
        matrix = run(values, folder / name)["summary"]["continual"]["accuracy"]
        assert (matrix[0] == matrix[1]) == (name == "kept")


def test_rates_may_change_between_phases(folder: Path, finished: Path) -> None:
    run(phased(folder, {"learner": {"value_rate": 0.5}}), folder / "slower")
    ours, theirs = columns(folder / "slower"), columns(finished)
    first = ours["created"] == 13  # the first step of the second phase: the same memory, half the rate
    np.testing.assert_allclose(ours["values"][first], theirs["values"][first] / 2, rtol=1e-6)
    np.testing.assert_array_equal(ours["keys"][first], theirs["keys"][first])


def test_the_budget_of_evaluations_is_counted_in_examples(folder: Path) -> None:
    values = phased(folder, evaluation={"every_examples": 40, "examples": None, "share": 0.25})
    run(values, folder / "budget")
    rows = [r for r in read_table(folder / "budget" / "metrics.jsonl") if r["kind"] == "evaluation"]
    on_the_way = [r["evaluated_examples"] for r in rows if r["evaluated_examples"] < 359]
    assert on_the_way == [10] * 6  # two tasks at half the cost of learning: 2·10·½ = ¼·40


def test_a_phase_evaluates_on_the_way_only_the_tasks_it_names(folder: Path) -> None:
    extra = {"easy": {"split": "test", "limit": 20}}
    values = phased(folder, {"evaluate": ["easy"]}, evaluation={"tasks": extra})
    found = run(values, folder / "named")["summary"]["continual"]
    rows = [r for r in read_table(folder / "named" / "metrics.jsonl") if r["kind"] == "evaluation"]
    way = [(r["phase"], r["task"]) for r in rows if r["step"] in (5, 10, 15)]
    assert way == [("one", task) for task in ("one", "two", "easy")] * 2 + [("two", "easy")]
    assert found["tasks"] == ["one", "two", "easy"]
    assert [len(row) for row in found["accuracy"]] == [3, 3]


def _file(values: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(values))
    return path


def test_phases_say_only_what_differs(folder: Path) -> None:
    config = parse_config(phased(folder, {"learner": {"memory": {"capacity": 70}}}))
    assert config.phases["two"].stream.limit == 48
    assert config.phases["two"].stream.flatten
    assert config.phases["two"].learner.memory.capacity == 70
    assert config.phases["two"].learner.temperature == 5
    assert config.phases["one"].learner == config.learner
    assert parse_config(json.loads(json.dumps(config_values(config)))) == config
    other = parse_config(phased(folder, {"learner": {"kind": "linear", "value_rate": 1}}))
    assert other.phases["two"].learner.memory.initial_capacity == 1024  # another kind begins from nothing


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("phases.two.stream.sorce=x", ("phases.two.stream.sorce", "phases.two.stream.source")),
        ("phases.two.lerner=1", ("phases.two.lerner", "phases.two.learner")),
        ("phases.two.learner.memory.capacty=1", ("phases.two.learner.memory.capacty", "capacity")),
        ("phases.two.begin=[{prune: 0.1, cap: 3}]", ("phases.two.begin.0", "exactly one of")),
        ("phases.two.begin=[{prun: 0.1}]", ("phases.two.begin.0.prun", "phases.two.begin.0.prune")),
        ("phases.end={}", ("'end'", "finished run")),
        ("phases.two.evaluate=[three]", ("phases.two.evaluate", "one, two", "'three'")),
        ("phases.two.replay={kind: phase, examples: 2, phase: two}", ("earlier phase", "'two'")),
        ("phases.two.replay={kind: reservoir}", ("phases.two.replay.examples is missing",)),
        ("phases.two.replay={kind: reservoir, examples: 2, phase: one}", ("replay", "set both or neither")),
        ("phases.two.stream.standardise=running", ("'running'", "all of them or for none")),
        ("evaluation.tasks.one={}", ("evaluation.tasks", "'one'")),
        ("log=x", ("log", "give each phase its own log")),
        ("phases.two.stream.drop_consumed=true", ("two: log", "set one only")),
        ("phases.two={stream: {classes: 11}, log: null}", ("phase two", "10)", "11)")),
        ("phases.two.learner={kind: mlp}", ("phase two", "layers []", "['readout']")),
    ],
)
def test_a_wrong_phase_is_refused_in_one_line(
    setting: str, parts: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    config = _file(phased(folder), tmp_path / "config.yaml")
    answer = command("run", config, "--set", setting, "--run-dir", tmp_path / "run", "--quiet")
    refused(answer, *parts)


def test_where_a_run_is_stands_in_its_commit(folder: Path) -> None:
    run(phased(folder), folder / "part", "--steps", 14)
    saved = saved_progress(folder / "part")
    assert (saved["number"], saved["offset"], saved["examples"]) == (1, 16, 112)
    assert [(span["start"], span["phase"]) for span in saved["spans"]] == [(0, "one"), (96, "two")]
    with Store.open(folder / "part" / "memory") as store:
        assert store.head.meta["phase"] == "two"
        assert set(store.tags()) == {"one"}
    done = command("resume", folder / "part", "--json").json()
    assert (done["finished"], done["steps"]) == (True, 18)
