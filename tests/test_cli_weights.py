"""`lamina weights`: its numbers, its picture, and what it refuses."""

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamina.cli import _SCHEDULES, main
from lamina.continual.entry_weights import SCHEDULES, compare
from PIL import Image


def test_the_command_knows_every_schedule() -> None:
    assert _SCHEDULES == SCHEDULES


def test_json_holds_every_weight(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--steps", "20", "--learning-rate", "0.5", "--momentum", "0.5", "--decay", "0.2", "--json"]
    assert main(["weights", "--schedule", "linear", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["learning_rate"]) == (20, 0.5)
    rules = found["rules"]
    assert list(rules) == ["linear learning rate", "decay 0.2", "momentum 0.5", "all together"]
    rates = 0.5 * (1 - np.arange(20) / 20)
    np.testing.assert_allclose(rules["linear learning rate"]["weights"], rates, rtol=1e-6)
    ages = np.arange(19, -1, -1)
    np.testing.assert_allclose(rules["decay 0.2"]["weights"], 0.5 * 0.9**ages, rtol=1e-12)
    np.testing.assert_allclose(rules["momentum 0.5"]["weights"], 1 - 0.5 ** (ages + 1), rtol=1e-12)
    assert rules["decay 0.2"]["initial"] == pytest.approx(0.9**20)
    assert rules["all together"]["initial"] == pytest.approx(np.prod(1 - 0.2 * rates), rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "first", "last"),
    [
        ("constant", 1, 1),
        ("linear", 1, 0.01),
        ("cosine", 1, 0.0002467),
        ("warmup-cosine", 0, 0.0003046),
        ("exponential", 1, 0.010471),
    ],
)
def test_a_schedule_starts_and_ends_where_it_says(schedule: str, first: float, last: float) -> None:
    relative = compare(100, 0.3, schedule, 0.9, 0.1).relative[f"{schedule} learning rate"]
    np.testing.assert_allclose(relative[[0, -1]], [first, last], rtol=1e-3, atol=1e-7)
    assert relative.max() == pytest.approx(1)


def test_coupled_decay_passes_through_momentum() -> None:
    """What is decayed goes on being decayed: less is left of W₀ than without momentum."""
    apart, coupled = (compare(50, 0.1, "constant", 0.9, 0.1, coupled=c) for c in (False, True))
    assert coupled.weights["coupled decay 0.1"][0] == pytest.approx(apart.weights["decay 0.1"][0])
    assert coupled.weights["all together"][0] < 0.5 * apart.weights["all together"][0]


def test_the_text_says_what_became_of_old_and_new_entries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "--steps", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["relative", "to", "plain", "descent", "W0", "oldest", "middle", "newest"]
    assert lines[3].split() == ["momentum", "0.9", "1.000", "10.000", "9.948", "1.000"]


def test_a_picture_shades_more_and_less(tmp_path: Path) -> None:
    path = tmp_path / "weights.png"
    assert main(["weights", "--steps", "50", "--picture", str(path)]) == 0
    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    red, blue = picture[..., 0] - picture[..., 2], picture[..., 2] - picture[..., 0]
    assert picture.shape[0] > 400
    # The momentum row is red nearly everywhere, decay and the end of the schedule are blue.
    assert (red > 50).sum() > 20_000
    assert (blue > 50).sum() > 20_000


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--momentum", "1"], "momentum: expected a number from 0 to below 1; found 1.0"),
        (["--decay", "-1"], "decay: expected a number from 0 to below inf; found -1.0"),
        (["--learning-rate", "0"], "learning_rate: expected a number above 0; found 0.0"),
        (["--learning-rate", "nan"], "learning_rate: expected a number above 0; found nan"),
        (["--picture", "weights.abc"], "expected a picture's name, as weights.png, in a folder that exists"),
        (["--picture", "nowhere/weights.png"], "in a folder that exists"),
        (["--steps", "0"], "--steps"),
        (["--schedule", "sine"], "invalid choice: 'sine'"),
    ],
)
def test_a_mistake_is_one_line(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["weights", *options])
    except SystemExit as error:
        code = error.code
    assert code == 2
    errors = capsys.readouterr().err
    assert complaint in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    original = builtins.__import__

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert main(["weights", "--steps", "3", "--picture", str(tmp_path / "w.png")]) == 2
    assert "pip install 'lamina[plots]'" in capsys.readouterr().err
