"""lamina compare: figures agree with the runs' own, and runs that differ only in their seed are averaged."""

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml
from made_runs import embedded
from tiny_runs import STREAM, TINY, changed, command, refused, write_log


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two seeds of one configuration, and another configuration stopped in its last phase."""
    folder = tmp_path_factory.mktemp("compare")
    paths = {}
    for name, seed, settings in (("a", 0, {}), ("b", 1, {}), ("c", 0, {"value_rate": 0.5})):
        phases = {}
        for phase, labels in (("low", [0, 1, 2]), ("high", [5, 6, 7])):
            stream = {"only_classes": labels, "limit": 48}
            log = folder / f"{phase}{seed}"
            if not log.exists():
                write_log(log, STREAM | stream, seed)
            phases[phase] = {"stream": stream, "log": str(log)}
        values = changed(TINY, {"name": f"run {name}", "seed": seed, "phases": phases, "learner": settings})
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        paths[name] = folder / name
        steps = ["--steps", 9] if name == "c" else []
        answer = command("run", folder / f"{name}.yaml", "--run-dir", folder / name, "--quiet", *steps)
        assert answer.code == 0, answer.err
    return paths


def test_seeds_are_averaged_and_figures_are_the_runs_own(runs: dict[str, Path]) -> None:
    first, second = command("compare", runs["a"], runs["c"], runs["b"], "--json").json()
    assert (first["runs"], first["seeds"]) == ([str(runs["a"]), str(runs["b"])], [0, 1])
    own = [json.loads((runs[name] / "summary.json").read_text()) for name in "ab"]
    for name in ("average_accuracy", "anytime_accuracy", "bwt_gem", "forgetting_max", "fwt_gem"):
        values = [summary["continual"][name] for summary in own]
        assert first[name] == {"mean": pytest.approx(fmean(values)), "std": pytest.approx(stdev(values))}
    assert first["prequential_accuracy"]["mean"] == fmean(s["prequential_accuracy"] for s in own)
    assert first["entries"] == {"mean": 96, "std": 0}
    assert second["runs"] == [str(runs["c"])]
    assert second["entries"] == {"mean": 72, "std": None}
    assert second["average_accuracy"]["std"] is None
    assert second["bwt_gem"] is None  # only one phase has ended


def test_the_table_is_for_people(runs: dict[str, Path]) -> None:
    head, *lines = command("compare", runs["a"], runs["b"], runs["c"]).out.splitlines()
    assert re.split(r"\s{2,}", head)[:3] == ["run", "average accuracy", "anytime accuracy"]
    assert lines[0].startswith("run a (2 seeds)")
    assert " ± " in lines[0]
    assert lines[1].startswith("run c")
    assert lines[1].rstrip().endswith("72")


def test_the_page_holds_the_table_matrices_and_curves(runs: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    answer = command("compare", *runs.values(), "--output", page)
    assert answer.out.endswith(f"page: {page}\n")
    found = embedded(page)
    assert [line[0] for line in found["table"]["rows"]] == ["run a (2 seeds)", "run c"]
    assert len(found["table"]["head"]) == len(found["table"]["rows"][0])
    assert [run["run"] for run in found["runs"]] == ["run a", "run b", "run c"]
    for name, run in zip("ab", found["runs"], strict=False):
        summary = json.loads((runs[name] / "summary.json").read_text())["continual"]
        assert [run["matrix"][part] for part in ("phases", "tasks")] == [summary["phases"], summary["tasks"]]
        ends = run["matrix"]["accuracy"]
        assert ends == summary["accuracy"]
        first, mean = run["compare"]["first task"], run["compare"]["tasks so far"]
        assert first["x"] == [0, 40, 48, 80, 96]
        assert first["y"][-1] == ends[-1][0]
        assert (mean["x"], mean["y"][-1]) == ([40, 48, 80, 96], fmean(ends[-1]))
    page = tmp_path / "one.html"
    command("compare", runs["a"], "--output", page)
    assert len(embedded(page)["table"]["rows"]) == 1


def test_what_is_no_run_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    refused(command("compare", runs["a"], tmp_path), "expected a run's folder")
    refused(command("compare", runs["a"], "--output", tmp_path), "--output")
    refused(command("compare"), "RUN_DIR")
