"""Scores of what a run learnt from and what it did not, and of its network with a linear exponential."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamina.continual.ablating import ablate
from lamina.continual.config import parse_config
from lamina.continual.run import Run
from lamina.errors import MissingDataError
from lamina.learners.ablation import linearised
from tiny_runs import TINY, command

SOFTMAX = {"kind": "softmax", "temperature": 2.0, "value_rate": 1.0, "weight_rate": 0.1}


def learnt(directory: Path, **learner: Any) -> Path:
    values = {name: value for name, value in TINY.items() if name != "learner"}
    with Run.create(parse_config({**values, "learner": {**learner, "blocks": 1}}), directory) as run:
        run.execute(quiet=True)
    return directory


def test_both_networks_are_scored_on_both_parts(tmp_path: Path) -> None:
    run_dir = learnt(tmp_path / "run", **SOFTMAX)
    found = ablate(run_dir, examples=40)
    assert {name: scores.examples for name, scores in found.items()} == {"training": 40, "test": 40}
    with Run.resume(run_dir) as run:
        x, y = run.stage.first_examples(40)
        fixed, parameters = linearised(run.learner, run.state)
        accuracies = [
            np.mean(np.argmax(learner.predict(state, x), axis=1) == y)
            for learner, state in ((run.learner, run.state), (fixed, parameters))
        ]
    assert [found["training"].accuracy, found["training"].linear_accuracy] == pytest.approx(accuracies)
    assert accuracies[0] > accuracies[1]


def test_networks_without_an_exponential_are_scored_once_and_all_is_counted(tmp_path: Path) -> None:
    found = ablate(learnt(tmp_path / "run", **TINY["learner"]))  # type: ignore[arg-type]
    assert {name: scores.examples for name, scores in found.items()} == {"training": 96, "test": 359}
    assert {(scores.linear_accuracy, scores.linear_loss) for scores in found.values()} == {(None, None)}


def test_from_the_command_line(tmp_path: Path) -> None:
    run_dir = learnt(tmp_path / "run", **SOFTMAX)
    told = command("ablate", run_dir, "--examples", 30)
    header, training, test = told.out.splitlines()
    assert header.startswith("examples   number  accuracy")
    assert training.split()[:2] == ["training", "30"]
    values = command("ablate", run_dir, "--examples", 30, "--json").json()
    assert f"{values['test']['accuracy']:.4f}" == test.split()[2]
    assert f"{values['test']['linear_loss']:.4g}" == test.split()[5]


def test_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError):
        ablate(tmp_path)
