"""The paper's experiments: each runs, sweeps resume, and the pages are those of the committed results."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"


def paper(*arguments: object, folder: Path | None = None) -> str:
    """What a command prints; results and runs go to `folder`."""
    places = [] if folder is None else ["--results", folder / "data", "--work", folder / "work"]
    words = [str(word) for word in (*arguments, *places)]
    command = [sys.executable, "-m", "benchmarks.paper", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cheapest cell of every experiment, at smoke size."""
    folder = tmp_path_factory.mktemp("smoke")
    paper("run", "all", "--smoke", "--cheapest", folder=folder)
    return folder


def names() -> list[str]:
    return sorted(path.name for path in (RESULTS / "data").iterdir())


@pytest.mark.timeout(600)
def test_the_cheapest_cell_of_each_experiment_is_what_it_was(smoke: Path) -> None:
    """As committed: the same settings and entries, and accuracies up to rounding on another machine."""
    found = sorted(path.relative_to(smoke / "data") for path in smoke.glob("data/*/smoke*/*.json"))
    assert sorted({path.parts[0] for path in found}) == names()
    for path in found:
        ours, theirs = read(smoke / "data" / path), read(RESULTS / "data" / path)
        assert ours["settings"] == theirs["settings"]
        assert {"machine", "versions", "wall_seconds"} <= set(ours)
        figures, expected = ours["figures"], theirs["figures"]
        assert set(figures) == set(expected)
        assert figures["entries"] == expected["entries"]
        for name in {"accuracy", "loss"} & set(figures):
            assert figures[name] == pytest.approx(
                expected[name], rel=0.02, abs=2 if name == "accuracy" else 0
            )


def test_a_sweep_goes_on_with_what_is_left(smoke: Path, tmp_path: Path) -> None:
    shutil.copytree(smoke / "data", tmp_path / "data")
    file = next(tmp_path.glob("data/depth/smoke-digits/*.json"))
    before = file.read_bytes()
    assert paper("run", "depth", "--smoke", "--cheapest", folder=tmp_path) == ""  # nothing is left
    assert file.read_bytes() == before
    changed = read(file)
    changed["settings"]["batch_size"] = 5  # of another version of the experiment
    file.write_text(json.dumps(changed))
    left = paper("run", "depth", "--smoke", "--cheapest", "--dry-run", folder=tmp_path)
    assert left == f"depth/smoke-digits/{file.stem}\n"


def test_pages_are_those_of_the_committed_results(tmp_path: Path) -> None:
    written = paper("render", "--pages", tmp_path).split()
    assert written
    for path in map(Path, written):
        committed = RESULTS / path.relative_to(tmp_path)
        assert path.read_text() == committed.read_text(), (
            f"{committed}: run python -m benchmarks.paper render"
        )
    pictures = {path.name for path in (RESULTS / "figures").glob("*")}
    assert pictures == {path.name for path in (tmp_path / "figures").glob("*")}


def test_every_file_of_results_belongs_to_a_declared_cell() -> None:
    cells = set(re.findall(r"^    (\S+)", paper("list", "--cells"), re.MULTILINE))
    for path in (RESULTS / "data").rglob("*.json"):
        result = read(path)
        assert result["cell"] in cells or result["size"] == "full", path
        assert path.parts[-3] == result["experiment"]
        assert path.parts[-2].startswith(result["size"])
        assert "/" not in json.dumps(result["settings"]), path  # no path of a machine


def test_commands_on_the_pages_are_understood() -> None:
    pages = [*RESULTS.glob("*.md"), ROOT / "docs" / "benchmarks.md"]
    text = "\n".join(page.read_text() for page in pages)
    shown = {tuple(words.split()) for words in re.findall(r"python -m benchmarks.paper ([^`]+)`", text)}
    commands = [
        [*words, "--smoke", "--dry-run"] for words in shown if words[0] == "run" and "EXPERIMENT" not in words
    ]
    assert len(commands) > 10
    program = f"from benchmarks.paper.__main__ import main\nassert not any(map(main, {commands}))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
