"""Reports: the page's document agrees with inspection and table, and nothing in a run can harm the page."""

import html
import os
import re
import shlex

import pytest
from lamina.errors import StorageError
from lamina.monitoring import (
    LayerRow,
    inspect_run,
    read_table,
    write_comparison,
    write_report,
)
from lamina.monitoring.charts import charts
from lamina.monitoring.history import History
from made_runs import NASTY, finish, make_run, report_document, report_documents, step_row


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "demo")


def test_report_agrees_with_inspection_and_table(run_dir):
    finish(run_dir)
    run, found = report_document(write_report(run_dir)), inspect_run(run_dir)
    layer, totals = found["layers"]["block0"], found["totals"]
    assert run["layers"]["rows"][0][:4] == [
        "block0",
        f"{layer['entries']:,}",
        f"{layer['initial_entries']:,}",
        f"{layer['capacity']:,}",
    ]
    assert run["layers"]["foot"][1] == f"{totals['entries']:,}"
    figures = {name: value for name, value, _ in run["figures"]}
    assert figures["entries"] == f"{totals['entries']:,}"
    assert figures["held-out accuracy"] == "0.8750"
    assert figures["examples per second"] == "8"  # 40 examples in ten rows of half a second
    assert ["jax", "1.2.3"] in run["versions"]  # the run's, not this page's
    assert run["histograms"][0]["of"]["age, steps"]["counts"] == layer["ages"]["counts"]
    evaluations = [row[:3] for row in run["evaluations"]["rows"]]
    assert evaluations == [["test", "online", "10"], ["test", "online", "5"]]
    assert ["learner.kind", "rbf"] in run["configuration"]
    data = {chart["key"]: chart for chart in run["charts"]}
    assert list(data) == ["accuracy", "loss", "entries", "bytes", "throughput", "split"]
    rows = [row for row in read_table(run_dir / "metrics.jsonl") if row["kind"] == "step"]
    entries = next(series for series in data["entries"]["series"] if series["name"] == "block0")
    assert entries["x"] == [row["examples"] for row in rows]
    assert entries["y"] == [row["layers"]["block0"]["entries"] for row in rows]
    held_out = next(series for series in data["accuracy"]["series"] if series["style"] == "points")
    assert (held_out["x"], held_out["y"]) == ([20, 40], [0.875, 0.875])
    assert data["bytes"]["y_title"] == "memory, KiB"
    assert data["bytes"]["series"][0]["y"][-1] * 1024 == layer["bytes"]
    split = {series["name"]: series["y"] for series in data["split"]["series"]}
    assert split["compute"] == pytest.approx([200.0] * 10)
    assert sum(y[0] for y in split.values()) == pytest.approx(500.0)  # 0.5 s a step, in milliseconds
    assert "maintain" in split
    assert "evaluate" not in split  # no time was spent there


def test_report_is_self_contained_and_not_large(run_dir):
    page = write_report(run_dir).read_text()
    assert page.count("<html") == 1
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'>]*)""", markup) == ["data:,", "#main"]
    assert "default-src 'none'" in page
    assert len(page) < 700_000  # most of it is plotly, compressed


def test_nothing_in_a_run_is_markup(tmp_path):
    folder = make_run(
        tmp_path / "demo",
        name=NASTY,
        config={"learner": {NASTY: NASTY}},
        phase=NASTY,
        layers={NASTY: LayerRow(1, 2, 3), "b": LayerRow(1, 2, 3)},
    )
    path = write_report(folder)
    page, run = path.read_text(), report_document(path)
    assert "<img" not in page
    assert f"<title>{html.escape(NASTY)} · Lamina</title>" in page
    assert run["charts"][2]["series"][0]["name"] == NASTY
    assert page.count("</script>") == page.count("<script")


def test_report_of_a_run_that_recorded_nothing(tmp_path):
    path = write_report(make_run(tmp_path / "r", steps=0), tmp_path / "elsewhere.html")
    run = report_document(path)
    assert (run["charts"], run["layers"], run["evaluations"]) == ([], None, None)
    assert len(path.read_text()) < 100_000  # no plots, so no plotting library
    assert not (tmp_path / "r" / "report.html").exists()


def test_report_of_regression_has_no_accuracy(tmp_path):
    folder = make_run(tmp_path / "r", prequential_accuracy=None, window_accuracy=None)
    table = (folder / "metrics.jsonl").read_text().replace('"accuracy":0.875', '"accuracy":null')
    (folder / "metrics.jsonl").write_text(table)
    run = report_document(write_report(folder))
    assert run["charts"][0]["key"] == "loss"
    assert "held-out accuracy" not in [name for name, *_ in run["figures"]]
    assert run["matrix"] is None


def test_report_says_how_to_go_on(tmp_path):
    folder = make_run(tmp_path / "a run's folder")
    assert report_document(write_report(folder))["go_on"][1] == f"lamina resume {shlex.quote(str(folder))}"
    finish(folder)
    command = report_document(write_report(folder))["go_on"][1]
    assert command == f"lamina run CONFIG.yaml --from {shlex.quote(str(folder))}"


def test_report_on_a_full_disk(run_dir, monkeypatch):
    page = write_report(run_dir).read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full"):
        write_report(run_dir)
    assert (run_dir / "report.html").read_text() == page


def test_a_comparison_holds_all_its_runs(tmp_path):
    runs = [make_run(tmp_path / name, name=name, steps=steps) for name, steps in (("a", 10), ("b", 20))]
    found = report_documents(write_comparison(runs, tmp_path / "both.html"))
    assert [run["run"] for run in found] == ["a", "b"]
    for run, steps in zip(found, (10, 20), strict=True):
        line = run["compare"]["entries"]
        assert line["x"] == [4 * step for step in range(1, steps + 1)]
        assert line["y"] == [2 * (8 + 4 * step) + 1 for step in range(1, steps + 1)]


def test_phases_are_marked():
    rows = [step_row(step, phase="pretrain" if step < 6 else "finetune").row() for step in range(1, 11)]
    assert charts(History.of(rows))[0].marks == [(0.0, "pretrain"), (20.0, "finetune")]
    assert charts(History.of(rows[:5]))[0].marks == []


def test_split_of_a_fork_begins_at_its_parents_step():
    rows = [step_row(step).row() for step in range(1001, 1011)]
    [split] = [chart for chart in charts(History.of(rows)) if chart.key == "split"]
    compute = next(series for series in split.series if series.name == "compute")
    assert compute.y == pytest.approx([200.0] * 10)


def test_a_long_first_step_does_not_flatten_the_others():
    rows = [step_row(step).row() for step in range(1, 11)]
    rows[0] |= {"compute_seconds": 20.0, "wall_seconds": 20.3}
    split = charts(History.of(rows))[-1]
    assert split.y_range == (0.0, pytest.approx(2000.0))  # four times the usual 500 ms
    assert "the longest stretch has 20,300 ms" in split.note
    assert charts(History.of(rows[1:]))[-1].y_range is None


def test_charts_of_a_long_run_stay_small_and_keep_extremes():
    rows = [step_row(step).row() for step in range(1, 20_001)]
    rows[7777]["loss"] = 99.0
    layers = rows[12_345]["layers"]
    rows[12_345]["layers"] = layers | {"block0": layers["block0"] | {"entries": 10**6}}
    drawn = {chart.key: chart for chart in charts(History.of(rows))}
    for chart in drawn.values():
        for series in chart.series:
            assert len(series.x) == len(series.y) <= 2 * 2048 + 16
            assert series.x[-1] == 80_000
    assert 99.0 in drawn["loss"].series[0].y
    assert drawn["loss"].series[0].y[0] == 1.0
    assert 10**6 in drawn["entries"].series[0].y
    means = [sum(parts) for parts in zip(*(series.y for series in drawn["split"].series), strict=True)]
    assert means == pytest.approx([500.0] * len(means))
