"""Runs whose memories exceed their byte budget: on disk, resumed bit for bit, shown, and refused when damaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamina.continual.config import parse_config
from lamina.continual.run import Run
from tiny_runs import TINY, changed, contents

ROW = 4 * (64 + 10 + 5)  # bytes of a row of the readout: digits, ten classes, five numbers
BUDGET = 32 * ROW  # two entries a chunk, twenty in memory; the stream has 96


def config(memory: dict[str, Any] | None = None, **learner: Any) -> dict[str, Any]:
    bounds = {"initial_capacity": 16, "budget_bytes": BUDGET} | (memory or {})
    return changed(TINY, {"learner": {**TINY["learner"], **learner, "memory": bounds}})


def whole_run(values: dict[str, Any], folder: Path) -> Path:
    with Run.create(parse_config(values), folder) as run:
        assert run.execute(quiet=True).finished
    return folder


LEARNERS: dict[str, dict[str, Any]] = {
    "rbf": config(momentum=0.5, decay=0.01),
    "pruned": config({"prune_epsilon": 0.02, "prune_every": 3}, decay=0.2),
    "novel": config({"admission": "novelty", "novelty_threshold": 3.0}),
    "window": config({"capacity": 60, "eviction": "oldest"}),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_resumed_run_ends_like_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    whole = whole_run(LEARNERS[name], tmp_path / "whole")
    broken = tmp_path / "broken"
    with Run.create(parse_config(LEARNERS[name]), broken) as run:
        run.execute(7, quiet=True)
    for steps in (2, 1, None):
        with Run.resume(broken) as run:
            run.execute(steps, quiet=True)
    assert contents(broken) == contents(whole)


def test_a_budget_changes_no_prediction(tmp_path: Path) -> None:
    budget = whole_run(changed(LEARNERS["rbf"], {"precision": "float64"}), tmp_path / "budget")
    values = changed(LEARNERS["rbf"], {"precision": "float64"})
    values["learner"]["memory"] = {"initial_capacity": 128}
    plain = whole_run(values, tmp_path / "plain")
    ours, theirs = (np.fromfile(path / "predictions.bin", np.uint8) for path in (budget, plain))
    assert len(ours) == len(theirs)
    rows = [[row for row in _rows(path)] for path in (budget, plain)]
    for one, other in zip(*rows, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-9)


def _rows(path: Path) -> list[dict[str, Any]]:
    from lamina.monitoring import read_table

    return [row for row in read_table(path / "metrics.jsonl")]
