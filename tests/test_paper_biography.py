"""The biography experiments' figures and remarks, from tables and numbers made by hand."""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def row(step: int, task: str, accuracy: float, loss: float, phase: str = "pretrain") -> dict[str, Any]:
    values = {"kind": "evaluation", "step": step, "task": task, "phase": phase}
    return {**values, "accuracy": accuracy, "attribute_loss": loss}


TRUNK = [row(100, "pretrain", 0.0, 6.0), row(200, "pretrain", 0.1, 4.0), row(300, "pretrain", 0.9, 2.0)]
FORK = [
    *TRUNK,
    *(row(300 + 20 * k, "pretrain", 0.9 - 0.1 * k, 2.0, "finetune") for k in range(1, 6)),
    row(420, "pretrain", 0.6, 2.0, "finetune"),
    *(row(300 + 20 * k, "finetune", 0.15 * k, 2.0, "finetune") for k in range(1, 7)),
]


def test_figures_of_learning() -> None:
    from benchmarks.paper.people import learnt

    found = learnt(TRUNK, 4.0)
    assert (found["accuracy"], found["attribute_loss"], found["level"]) == (90, 2.0, 4.0)
    assert found["plateau_start"] == pytest.approx(100 + 100 * (6 - 4.2) / 2)
    assert found["plateau_end"] == pytest.approx(200 + 100 * 0.2 / 2)
    assert found["plateau_length"] == pytest.approx(found["plateau_end"] - found["plateau_start"])
    assert found["attribute_accuracy_curve"] == [[100, 0], [200, 10], [300, 90]]
    assert learnt(TRUNK, 1.0)["plateau_end"] is None


def test_figures_of_forgetting() -> None:
    from benchmarks.paper.people import kept

    found = kept(FORK)
    assert found["accuracy"] == pytest.approx(60)
    assert (found["old_before"], found["old_lowest"]) == pytest.approx((90, 40))
    assert found["old_recovered"] == pytest.approx(20)
    assert (found["old_at_60"], found["old_at_100"], found["old_at_400"]) == (60, 40, None)
    assert (found["new_at_60"], found["new_at_100"]) == pytest.approx((45, 75))
    assert found["old_curve"][0] == [0, 90]
    assert found["new_curve"][-1] == [120, 90]


def mean(**figures: float | None) -> Any:
    from benchmarks.paper.experiment import Mean

    return Mean((figures.get("accuracy") or 0.0,), ({"level": 4.0, **figures},))


def test_what_was_asked_is_judged() -> None:
    from benchmarks.paper.experiments import EXPERIMENTS

    means = {
        "geglu": mean(accuracy=95.0, plateau_end=1000.0),
        "rbf": mean(plateau_end=600.0),
        "cos-2048": mean(plateau_end=900.0),
        "cos-384": mean(plateau_end=None),
    }
    text = "\n".join(EXPERIMENTS["biography"].remarks(means))
    assert "at least 93 %; found 95 %: met" in text
    assert "RBF over GeGLU's at most 0.7; found 0.6: met" in text
    assert "wide Cos-Bochner over GeGLU's at most 0.8; found 0.9: not met" in text
    assert "`cos-384`: in 1 of 1 runs" in text

    means = {
        "geglu-none": mean(old_before=90.0, old_at_100=55.0, old_at_400=30.0, old_recovered=1.0),
        "geglu-replay-0.25": mean(old_at_400=49.0, old_recovered=25.0),
        "rbf-none": mean(old_before=76.0, old_at_100=74.0, new_at_60=89.0, old_recovered=2.0),
    }
    text = "\n".join(EXPERIMENTS["biography_finetune"].remarks(means))
    assert "at least 30 points; found 35 points: met" in text
    assert "at least 20 points; found 19 points: not met" in text
    assert "at least 90 %; found 89 %: not met" in text
    assert "at most 5 points; found 2 points: met" in text
    assert "rises again by at most 2.0 points after its lowest (`rbf-none`)" in text


def test_the_plateau_s_exponent_is_fitted() -> None:
    from benchmarks.paper.experiments import EXPERIMENTS

    remarks = EXPERIMENTS["biography_people"].remarks
    means = {f"geglu-{n}": mean(plateau_end=0.5 * n**0.9) for n in (256, 512, 1024, 2048)}
    text = "\n".join(remarks(means))
    assert "0.5·N^0.90 steps (exponent 0.90 ± 0.00 from 4 sizes)" in text
    assert f"at least 1.7; found {2**0.9:.3g}: met" in text
    means["geglu-2048"] = mean(plateau_end=None)
    assert "from 3 sizes" in "\n".join(remarks(means))
    assert remarks({"geglu-256": means["geglu-256"]}) == []


def test_what_a_budget_buys_is_said() -> None:
    from benchmarks.paper.experiments import EXPERIMENTS

    means = {
        "oldest-4096": mean(accuracy=20.0, old_before=40.0),
        "oldest-65536": mean(accuracy=50.0, old_before=80.0),
    }
    (sentence,) = EXPERIMENTS["biography_memory"].remarks(means)
    assert "from a cap of 4,096 to one of 65,536" in sentence
    assert "from 40.0 to 80.0 % right after" in sentence
    assert "from 20.0 to 50.0 % after" in sentence
