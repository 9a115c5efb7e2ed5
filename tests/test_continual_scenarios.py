"""Scenarios are phases written out from a few options, and presets of them run to their end."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from lamina.continual import PRESETS, override, parse_config, preset_values
from lamina.continual.config import config_values
from lamina.errors import ConfigError
from lamina.monitoring import read_predictions, read_table
from lamina.stream import StreamConfig, open_source
from tiny_runs import command, refused, write_log

SPLIT = preset_values("digits-split")


def test_split_classes_follow_the_order_given() -> None:
    order = [9, 0, 8, 1, 7]
    config = parse_config(override(SPLIT, [f"scenario.class_order={order}"]))
    assert [phase.stream.only_classes for phase in config.phases.values()] == [(9, 0), (8, 1), (7,)]
    assert list(config.phases) == ["classes-9-0", "classes-8-1", "classes-7"]
    assert all(phase.stream.standardise.mean == 4.88 for phase in config.phases.values())


def test_a_shuffled_class_order_is_the_seeds() -> None:
    orders = []
    for seed in (0, 0, 1):
        values = override(SPLIT, ["scenario.shuffle=true", f"seed={seed}"])
        phases = parse_config(values).phases.values()
        orders.append([label for phase in phases for label in phase.stream.only_classes])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(10))


def test_a_scenario_is_written_out_once_and_then_stands_as_phases() -> None:
    config = parse_config(SPLIT)
    assert config.scenario is None
    assert parse_config(json.loads(json.dumps(config_values(config)))) == config
    rates = override(SPLIT, ["phases.classes-2-3.learner.value_rate=0.5"])
    changed = parse_config(rates)
    assert [phase.learner.value_rate for phase in changed.phases.values()] == [1, 0.5, 1, 1, 1]


def test_replay_belongs_to_all_phases_but_the_first() -> None:
    values = override(SPLIT, ["scenario.replay={kind: reservoir, examples: 4}"])
    replays = [phase.replay for phase in parse_config(values).phases.values()]
    assert replays[0] is None
    assert all(replay.examples == 4 for replay in replays[1:])


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("scenario.kind=splt_classes", ("scenario.kind", "unknown scenario", "split_classes")),
        ("scenario.class_ordr=[1]", ("scenario.class_ordr", "scenario.class_order")),
        ("scenario.classes_per_phase=0", ("scenario.classes_per_phase", "greater than 0")),
        ("scenario={phases: 3}", ("scenario.kind is missing", "permuted")),
        ("scenario={kind: rotated, phases: none}", ("scenario.phases", "integer")),
        ("scenario.class_order=[1, 99]", ("only_classes", "found 99")),
    ],
)
def test_a_wrong_scenario_is_refused_in_one_line(
    setting: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    answer = command("run", "digits-split", "--set", setting, "--run-dir", tmp_path / "run")
    refused(answer, *parts)


def test_tasks_are_evaluated_without_what_belongs_to_the_stream_alone() -> None:
    config = parse_config(preset_values("digits-drift"))
    turned = config.evaluation.tasks["turned"]
    assert (turned.drift, turned.limit, turned.rotate, turned.flatten) == (None, None, 90, True)
    with pytest.raises(ConfigError, match="noise"):
        parse_config(override(preset_values("digits-noisy"), ["stream.label_noise=2"]))


def with_logs(values: dict, folder: Path) -> dict:
    """The configuration with the log of each phase built beforehand, which takes Beam seconds."""
    values = config_values(parse_config(values))
    for name, phase in values["phases"].items():
        phase["stream"]["limit"] = 64
        phase["log"] = str(write_log(folder / "logs" / name, phase["stream"]))
    return values


@pytest.mark.parametrize("name", ["digits-split", "digits-permuted", "digits-rotated"])
def test_a_preset_runs_to_its_end(name: str, tmp_path: Path) -> None:
    values = with_logs(preset_values(name), tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    found = command("run", tmp_path / "config.yaml", "--run-dir", tmp_path / "run", "--json").json()
    continual = found["summary"]["continual"]
    assert continual["phases"] == continual["tasks"] == list(values["phases"])
    count = len(values["phases"])
    assert np.array(continual["accuracy"]).shape == (count, count)
    own = np.diag(continual["accuracy"])
    untrained = np.array(continual["untrained"])
    assert (own > untrained + 0.2).all()  # every phase teaches its own task
    if name == "digits-split":
        above = np.triu(continual["accuracy"], 1)
        assert (above == 0).all()  # a class is never right before it was seen
        assert continual["forgetting_first"] > 0.1
    for metric in ("bwt_gem", "bwt_triangular", "fwt_gem", "forgetting_max", "forgetting_first"):
        assert -1 <= continual[metric] <= 1


def test_one_process_writes_the_logs_of_all_phases(tmp_path: Path) -> None:
    settings = (
        "--set",
        "scenario.class_order=[3, 5, 6]",
        "--set",
        "stream.limit=24",
        "--set",
        "batch_size=4",
    )
    found = command("run", "digits-split", *settings, "--run-dir", tmp_path / "run", "--json").json()
    assert (found["finished"], found["examples"]) == (True, 48)
    assert sorted(p.name for p in (tmp_path / "run" / "log").iterdir()) == ["classes-3-5", "classes-6"]
    labels = read_predictions(tmp_path / "run")["label"]
    expected = [
        open_source(StreamConfig(source="digits", seed=0, only_classes=part)).read(0, 24)["y"]
        for part in ((3, 5), (6,))
    ]
    np.testing.assert_array_equal(labels, np.concatenate(expected))


@pytest.mark.parametrize("name", ["digits-drift", "digits-noisy"])
def test_a_stream_that_changes_is_one_phase(name: str, tmp_path: Path) -> None:
    values = config_values(parse_config(preset_values(name)))
    values["stream"] |= {"limit": 200}
    if name == "digits-drift":
        values["stream"]["drift"] |= {"start": 100, "length": 0}
    values |= {"log": str(write_log(tmp_path / "log", values["stream"]))}
    values["evaluation"] |= {"every_examples": 96, "examples": 100}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    found = command("run", tmp_path / "config.yaml", "--run-dir", tmp_path / "run", "--json").json()
    assert found["summary"]["continual"]["phases"] == ["online"]
    rows = [row for row in read_table(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "evaluation"]
    if name == "digits-drift":
        turned = [row["accuracy"] for row in rows if row["task"] == "turned"]
        assert turned[-1] > turned[0] + 0.1  # learnt once the stream had gone over
    assert set(PRESETS) >= {name}
