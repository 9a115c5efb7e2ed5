"""Labels that arrive late, and the detectors that watch the errors made meanwhile."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from lamina.continual.config import parse_config, read_config
from lamina.continual.detecting import AdwinConfig, DriftWatch, PageHinkleyConfig
from lamina.learners import Task, build_learner, initial_key
from lamina.monitoring.history import History
from lamina.monitoring.predictions import read_predictions
from lamina.stream import StreamReader
from tiny_runs import STREAM, TINY, changed, command, contents, write_log

BATCH = TINY["batch_size"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("delay") / "log", STREAM)


def config_file(folder: Path, log: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(changed(TINY, {"log": str(log), **changes}), sort_keys=False))
    return path


@pytest.mark.parametrize("delay", [1, 3 * BATCH])
def test_predictions_are_of_what_was_learnt_before_the_labels_came(
    delay: int, log: Path, tmp_path: Path
) -> None:
    """Against the plainest loop: predict the newest batch, then learn from the one whose labels arrived."""
    path = config_file(tmp_path / "config", log, label_delay=delay)
    assert command("run", path, "--run-dir", tmp_path / "run", "--quiet").code == 0
    config, batches = parse_config(read_config(path)), -(-delay // BATCH)
    reader = StreamReader.from_config(log, BATCH, config.stream.with_seed(config.seed))
    schema = reader.log.schema
    learner = build_learner(
        config.learner,
        features=schema.x.size,
        task=Task(len(schema.classes), classification=True),
        batch_size=BATCH,
        seed=config.seed,
    )
    state, seen, expected = learner.init(initial_key(config.seed)), [], []
    for batch in reader:
        expected.append(np.argmax(learner.predict(state, batch.x), axis=1))
        seen.append(batch)
        if len(seen) > batches:
            state, _ = learner.update(state, seen[len(seen) - 1 - batches])
    records = read_predictions(tmp_path / "run")
    np.testing.assert_array_equal(records["prediction"], np.concatenate(expected))
    np.testing.assert_array_equal(records["origin"], np.concatenate([batch.origins for batch in seen]))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] == len(seen)  # the last labels arrive at the end
    assert summary["examples"] == len(records)


def test_an_interrupted_run_keeps_the_batches_that_wait(log: Path, tmp_path: Path) -> None:
    path = config_file(
        tmp_path / "config", log, label_delay=20, drift_detection={"kind": "adwin", "delta": 0.5, "clock": 1}
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command("run", path, "--run-dir", whole, "--quiet").code == 0
    assert command("run", path, "--run-dir", parts, "--quiet", "--steps", 2).code == 0
    while not (parts / "summary.json").exists():
        assert command("resume", parts, "--quiet", "--steps", 5).code == 0
    assert contents(parts) == contents(whole)
    assert json.loads((whole / "summary.json").read_text())["drifts"]


def test_a_fork_with_less_delay_learns_from_those_that_wait(log: Path, tmp_path: Path) -> None:
    path = config_file(tmp_path / "config", log, label_delay=40)
    assert command("run", path, "--run-dir", tmp_path / "run", "--quiet", "--steps", 8).code == 0
    answer = command("fork", tmp_path / "run", tmp_path / "fork", "--set", "label_delay=0", "--quiet")
    assert answer.code == 0, answer.err
    summary = json.loads((tmp_path / "fork" / "summary.json").read_text())
    assert summary["steps"] * BATCH == summary["examples"]


@pytest.mark.parametrize("wanted", [AdwinConfig(kind="adwin"), PageHinkleyConfig(kind="page_hinkley")])
def test_a_change_of_the_error_is_signalled_soon_after_it(wanted: AdwinConfig | PageHinkleyConfig) -> None:
    draw = np.random.default_rng(0)
    errors = np.concatenate([draw.random(3000) < 0.1, draw.random(3000) < 0.5])
    found = DriftWatch(wanted).see(errors)
    assert found
    assert 3000 < found[0] < 3300
    parts = DriftWatch(wanted)
    joined = [start + place for start in range(0, 6000, 7) for place in parts.see(errors[start : start + 7])]
    assert joined == found
    assert DriftWatch(None).see(errors) == []


def test_a_drifting_stream_is_noticed_and_shown(tmp_path: Path) -> None:
    """Labels change their meaning half-way: the run says so in its table, its summary and its charts."""
    stream = STREAM | {"limit": 1200, "drift": {"permute": 5, "start": 600}}
    values = changed(TINY, {"stream": stream, "drift_detection": {"kind": "page_hinkley", "threshold": 20}})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    answer = command("run", tmp_path / "config.yaml", "--run-dir", tmp_path / "run", "--quiet")
    assert answer.code == 0, answer.err
    [first, *_] = json.loads((tmp_path / "run" / "summary.json").read_text())["drifts"]
    assert 600 <= first < 760
    history = History(tmp_path / "run" / "metrics.jsonl")
    history.update()
    assert first < history.drifts[0] <= first + BATCH * TINY["record_every"]
