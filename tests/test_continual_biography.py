"""Decoders in a run: phases, evaluations, resuming, explaining, forgetting, writing."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from lamina.continual.scores import Score, judged_values, recorded, score
from lamina.learners import Task
from lamina.learners.language import Tokens
from lamina.monitoring import read_predictions, read_table
from lamina.stream import StreamConfig, no_knowledge_level, open_source
from tiny_runs import changed, command, contents, refused, write_log

STREAM: dict[str, Any] = {
    "source": "biography",
    "limit": 40,
    "segment_length": 16,
    "biography": {
        "people": 6,
        "length": 64,
        "templates_per_attribute": 3,
        "held_out_templates": 1,
        "names": [16, 16, 16],
    },
}
OTHERS = {"biography": {"people": 4, "population": "finetune"}, "limit": 24}
RUN: dict[str, Any] = {
    "name": "texts",
    "stream": STREAM,
    "learner": {
        "kind": "decoder",
        "width": 8,
        "heads": 2,
        "geglu": {"width": 8},
        "ffn": ["geglu", "rbf"],
        "rbf": {"memory": {"initial_capacity": 1024}, "tokens": {"admission": "values"}},
        "optimiser": {"kind": "adamw", "learning_rate": 0.01},
    },
    "batch_size": 4,
    "record_every": 2,
    "evaluation": {"every_examples": 16, "examples": 8},
    "commit": {"every_steps": 3},
}


def written(folder: Path, **changes: Any) -> Path:
    """The configuration with two phases, over logs that are there."""
    logs = {"pretrain": STREAM, "finetune": changed(STREAM, OTHERS)}
    for name, stream in logs.items():
        if not (folder / name).exists():
            write_log(folder / name, stream)
    phases = {
        "pretrain": {"log": str(folder / "pretrain")},
        "finetune": {
            "stream": OTHERS,
            "log": str(folder / "finetune"),
            "replay": {"kind": "phase", "phase": "pretrain", "examples": 2, "weight": 0.25},
            "learner": {"optimiser": {"kind": "adamw", "learning_rate": 0.001}},
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(changed({**RUN, "phases": phases}, changes), sort_keys=False))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    answer = command("run", written(folder), "--run-dir", folder / "run", "--quiet")
    assert answer.code == 0, answer.err
    return folder


def test_evaluations_tell_of_values(folder: Path) -> None:
    rows = [row for row in read_table(folder / "run" / "metrics.jsonl") if row["kind"] == "evaluation"]
    assert {row["task"] for row in rows} == {"pretrain", "finetune"}
    level = no_knowledge_level(StreamConfig(**STREAM).with_seed(0))
    for row in rows:
        attributes = row["attributes"]
        assert len(attributes) == 6
        assert row["attribute_loss"] == pytest.approx(np.mean([a["loss"] for a in attributes.values()]))
        # Each text tells one value of each attribute, so that the means agree.
        assert row["accuracy"] == pytest.approx(np.mean([a["accuracy"] for a in attributes.values()]))
        assert 0 < row["attribute_loss"] < row["loss"]
        assert (row["no_knowledge_level"] == pytest.approx(level)) == (row["task"] == "pretrain")
    first, last = (row for row in rows if row["task"] == "pretrain" and row["step"] in (0, 16))
    assert last["attribute_loss"] < first["attribute_loss"]


def test_predictions_count_the_values_of_a_text(folder: Path) -> None:
    records = read_predictions(folder / "run")
    assert len(records) == 64
    assert set(records["label"].tolist()) == {6}
    assert (records["prediction"] <= records["label"]).all()
    assert records["origin"].tolist() == list(range(64))


def test_the_summary_tells_costs_and_attributes(folder: Path) -> None:
    summary = json.loads((folder / "run" / "summary.json").read_text())
    entries = summary["layers"]["ffn1"]["entries"]
    d, w, words, context = 8, 8, len(open_source(StreamConfig(**STREAM).with_seed(0)).schema.vocabulary), 64
    costs = {name: cost["flops"] for name, cost in summary["costs"].items()}
    # Four products of D² numbers, and for each token looked back on two of D and an exponential a head.
    assert costs["attention0"] == 8 * d * d + context * (4 * d + 2)
    assert costs["ffn0"] == 6 * d * w + 2 * w
    assert costs["ffn1"] == entries * (4 * d + 4)
    assert costs["readout"] == 2 * words * d
    assert len(summary["attributes"]) == 6
    text = command("inspect", folder / "run").out
    assert "birth_place" in text
    assert f"{costs['ffn1']:,}" in text
    printed = command("run", folder / "config.yaml", "--print-config").out
    assert "decoder" in printed


@pytest.mark.parametrize("steps", [4, 12])
def test_resumed_within_either_phase_equals_uninterrupted(folder: Path, steps: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert command("run", folder / "config.yaml", "--run-dir", run, "--quiet", "--steps", steps).code == 0
    assert command("resume", run, "--quiet").code == 0
    assert contents(run) == contents(folder / "run")


def test_explain_shows_the_texts_behind_a_word(folder: Path) -> None:
    found = command("explain", folder / "run", "--phase", "pretrain", "--index", 2, "--json").json()
    source = open_source(StreamConfig(**STREAM).with_seed(0), split="test")
    example = source.read(2, 3)
    token = int(np.flatnonzero(example["y"][0, :, 1] >= 0)[0])
    word = source.schema.vocabulary[example["y"][0, token, 0]]
    assert (found["token"], found["layer"], found["label"]) == (token, "ffn1", word)
    assert word in found["text"]
    assert len(found["contributions"]) == 5
    for each in found["contributions"]:
        name = " ".join(each["label"].split()[:12])
        assert each["label"].endswith(".")
        assert name
        assert each["phase"] in ("pretrain", "finetune")
    shown = command("explain", folder / "run", "--phase", "pretrain", "--index", 2).out
    assert found["contributions"][0]["label"] in shown
    refused(command("explain", folder / "run", "--token", 63), "--token", "found 63")


def test_a_forgotten_texts_entries_go(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    found = command("forget", tmp_path / "run", 3, 5, "--json").json()
    tokens = open_source(StreamConfig(**STREAM).with_seed(0)).read(3, 6)["y"][[0, 2], :, 1] >= 0
    # The second phase replays the first twelve texts, each once.
    assert found["entries"] == {"ffn1": 2 * int(tokens.sum())}
    assert found["largest_change"] > 0


def test_a_fork_freezes_what_it_is_told(folder: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    settings = ["--set", "phases.finetune.freeze=[memory]", "--set", "phases.finetune.replay=null"]
    answer = command("fork", f"{folder / 'run'}@pretrain", fork, *settings, "--quiet")
    assert answer.code == 0, answer.err
    parent, child = (
        json.loads((run / "summary.json").read_text())["layers"] for run in (folder / "run", fork)
    )
    values = open_source(StreamConfig(**STREAM).with_seed(0)).read(0, 40)["y"][..., 1] >= 0
    assert child["ffn1"]["entries"] == values.sum()
    assert parent["ffn1"]["entries"] > values.sum()


def test_generate_goes_on_with_a_text(folder: Path) -> None:
    found = command("generate", folder / "run", "--prompt", "The company of", "--words", 6, "--json").json()
    assert found["prompt"] == "The company of"
    again = command("generate", folder / "run", "--prompt", "The company of", "--words", 6).out
    assert again == f"The company of {found['text']}\n"
    refused(command("generate", folder / "run", "--prompt", " "), "at least one word")
    refused(command("generate", folder / "run", "--prompt", "The", "--temperature", -1), "--temperature")


def test_a_layer_read_where_values_stand_writes_nothing(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    values = {**RUN, "log": str(folder / "pretrain")}
    values["learner"] = changed(RUN["learner"], {"rbf": {"tokens": {"reading": "values"}}})
    path.write_text(yaml.safe_dump(values))
    assert command("run", path, "--run-dir", tmp_path / "run", "--quiet", "--steps", 2).code == 0
    refused(command("generate", tmp_path / "run", "--prompt", "The"), "ffn1 is read only where")


def test_other_words_in_a_later_phase_are_refused(folder: Path, tmp_path: Path) -> None:
    changes = {"phases": {"finetune": {"stream": {"biography": {"templates_per_attribute": 4}}}}}
    other = tmp_path / "other"
    other.mkdir()
    for name in ("pretrain", "finetune"):
        (other / name).symlink_to(folder / name)
    path = written(other, **changes)
    path.write_text(path.read_text().replace(f"log: {other / 'finetune'}", "log: null"))
    refused(command("run", path, "--run-dir", tmp_path / "run"), "the same words")


# Scores


def test_a_value_is_right_if_all_its_words_are() -> None:
    y = np.full((2, 6, 2), -1)
    y[0, 1:3] = [[5, 0], [6, 0]]  # a value of two words, and one of one
    y[0, 4] = [7, 1]
    y[1, 0:2] = [[5, 0], [8, 1]]  # two values without a word between them
    predicted = np.zeros((2, 6), int)
    predicted[0, 1:3], predicted[0, 4] = [5, 9], 7
    predicted[1, 0:2] = [5, 8]
    losses = np.arange(12, dtype=float).reshape(2, 6)
    task, tokens = Task(10, classification=True, attributes=("a", "b", "c")), Tokens(predicted, losses)
    values = judged_values(tokens, y)
    assert values.examples.tolist() == [0, 0, 1, 1]
    assert values.attributes.tolist() == [0, 1, 0, 1]
    assert values.right.tolist() == [False, True, True, True]
    assert values.losses.tolist() == [3.0, 4.0, 6.0, 7.0]
    found = score(task, tokens, losses.sum(axis=1), y)
    assert found == Score(2, 3, 66.0, (2, 2, 0), (1, 2, 0), (9.0, 11.0, 0.0))
    assert found.accuracy(task) == 0.75
    assert found.attribute_loss() == (9 / 2 + 11 / 2) / 2
    assert found.by_attribute(task) == {
        "a": {"accuracy": 0.5, "loss": 4.5},
        "b": {"accuracy": 1.0, "loss": 5.5},
    }
    assert [column.tolist() for column in recorded(task, tokens, y)] == [[2, 2], [1, 2]]
    assert Score() + found == found
    assert (found + found).accuracy(task) == 0.75
