"""Views of a run's folder: inspection and report agree with each other and with the arrays on disk."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import yaml
import zarr
from hypothesis import given, settings
from lamina.durable import FolderLock
from lamina.errors import FormatError, MissingDataError, StorageError
from lamina.memory.store import Store, TableChange
from lamina.monitoring import (
    EvaluationRow,
    LayerRow,
    Recorder,
    RunState,
    RunView,
    StepRow,
    Summary,
    format_inspection,
    format_summary,
    inspect_run,
    read_table,
    write_report,
    write_summary,
)
from lamina.monitoring.inspect import histogram
from lamina.monitoring.report_charts import charts, thin

LAYERS = ("block0", "readout")
COUNTS = [40, 0, 1, 0, 0]
NASTY = 'a </script><img src=x onerror="document.title=1"> & \u2028 “b”'


def step_row(step: int, layers=LAYERS, **changes) -> StepRow:
    held = {
        name: LayerRow(8 + step * 4 + place, 256, 256 * 100, *COUNTS) for place, name in enumerate(layers)
    }
    values = dict.fromkeys(("wait_seconds", "append_seconds", "maintain_seconds", "commit_seconds"), 0.01)
    values |= {"step": step, "examples": 4 * step, "offset": 4 * step, "phase": "online", "layers": held}
    values |= {"prequential_accuracy": 0.5, "window_accuracy": 0.5 + 0.4 * (step % 2), "loss": 1 / step}
    values |= {"skipped_examples": 0, "compilations": 2, "compute_seconds": 0.2, "evaluate_seconds": 0.0}
    values |= {"wall_seconds": 0.5, "examples_per_second": 8.0}
    return StepRow(**(values | changes))


def table_change(rows: int, step: int) -> TableChange:
    rng = np.random.default_rng(rows)
    created = np.sort(rng.integers(0, step + 1, rows)).astype(np.int32)
    return TableChange(
        {
            "keys": rng.normal(size=(rows, 3)).astype(np.float32),
            "values": rng.normal(size=(rows, 2)).astype(np.float32),
            "created": created,
            "key_norms": rng.gamma(3, 2, rows).astype(np.float32),
            "value_norms": rng.gamma(2, 1, rows).astype(np.float32),
        }
    )


def meta(examples: int, layers=LAYERS) -> dict:
    layer = {"capacity": 256, "bytes": 25600, "counters": COUNTS}
    return {"examples": examples, "offset": examples, "layers": dict.fromkeys(layers, layer)}


def make_run(
    folder: Path, *, steps: int = 10, committed: int | None = None, name: str = "demo", config=None, **changes
) -> Path:
    """A run's folder whose table, predictions and memory agree."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "name": name,
        "seed": 3,
        "stream": {"source": "digits"},
        "learner": {"kind": "rbf", "cap": None},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values | (config or {}), sort_keys=False))
    committed = steps if committed is None else committed
    with Recorder(folder, name, "classification") as recorder:
        for step in range(1, steps + 1):
            recorder.predictions([4 * step], [1], [1], [0.5])
            recorder.step(step_row(step, **changes))
            if step % 5 == 0:
                recorder.evaluation(EvaluationRow(step, 4 * step, "online", "test", 0.875, 0.4, 100, 0.2))
        if committed:
            with Store.create(folder / "memory") as store:
                tables = {
                    layer: table_change(8 + committed * 4 + place, committed)
                    for place, layer in enumerate(LAYERS)
                }
                store.commit(step=committed, tables=tables, blobs={}, meta=meta(4 * committed))
    return folder


def finish(folder: Path, steps: int = 10) -> Summary:
    layers = dict(step_row(steps).layers)
    summary = Summary(
        4 * steps,
        steps,
        0.5,
        0.875,
        0.4,
        layers,
        5.0,
        {"p50": 0.5, "p95": 0.5},
        10**8,
        2,
        3,
        {"jax": "1.2.3"},
    )
    write_summary(folder, summary)
    return summary


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "demo")


# The folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "is not a folder"),
        (lambda path: path.mkdir(), "is an empty folder"),
        (lambda path: (path.mkdir(), (path / "x").touch()), "is not a run"),
        (lambda path: path.touch(), "is not a folder"),
    ],
)
@pytest.mark.parametrize("look", [inspect_run, write_report])
def test_what_is_not_a_run(tmp_path, make, message, look):
    make(tmp_path / "x")
    with pytest.raises(MissingDataError, match=rf"^\S+x {message}: expected the folder of a run") as caught:
        look(tmp_path / "x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"a: [", b"- 1", b"", b"\xff\xfe", b"a: !!python/object:os.system {}"])
def test_damaged_configuration(run_dir, content):
    (run_dir / "config.yaml").write_bytes(content)
    with pytest.raises(FormatError, match=r"config.yaml is damaged: expected a YAML mapping"):
        inspect_run(run_dir)


HOLDER = """
import sys
from pathlib import Path
from lamina.durable import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
lock.close()
print("freed", flush=True)
import time
time.sleep(60)
"""


def test_state_follows_the_process_that_holds_the_folder(run_dir):
    view = RunView(run_dir)
    assert view.state() == RunState.INTERRUPTED
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        assert view.state() == RunState.RUNNING
        assert inspect_run(run_dir)["state"] == "running"
        process.stdin.close()
        assert process.stdout.readline() == "freed\n"
        assert view.state() == RunState.INTERRUPTED  # the process lives on, the folder is free
        process.send_signal(signal.SIGKILL)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGKILL)
    assert view.state() == RunState.INTERRUPTED


def test_state_of_a_finished_run(run_dir):
    finish(run_dir)
    view = RunView(run_dir)
    assert view.state(committed_step=10) == RunState.FINISHED
    assert view.state(committed_step=11) == RunState.INTERRUPTED  # taken up again since
    with FolderLock(run_dir):  # as while the run's own process writes the report
        assert view.state(committed_step=10) == RunState.FINISHED
        assert view.state(committed_step=11) == RunState.RUNNING


@pytest.mark.parametrize("content", ["", "process ", "process x", "process -1", "process 9" + "9" * 20])
def test_strange_lock_files(run_dir, content):
    (run_dir / ".lock").write_text(content)
    assert RunView(run_dir).state() == RunState.INTERRUPTED


def test_looking_changes_nothing_and_takes_no_lock(run_dir, tmp_path):
    def everything() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(run_dir.rglob("*"))
        }

    before = everything()
    with FolderLock(run_dir), Store.open(run_dir / "memory", writable=True):
        held = everything()
        inspect_run(run_dir, deep=True)
        write_report(run_dir, tmp_path / "out.html")
        assert everything() == held
    assert {name: held[name] for name in before if not name.endswith(".lock")} == {
        name: facts for name, facts in before.items() if not name.endswith(".lock")
    }


# Inspection


def test_inspection_agrees_with_plain_zarr(run_dir):
    with Store.open(run_dir / "memory", writable=True) as store:
        rows = store.generation().tables["block0"].rows
        gone = {"block0": TableChange({}, died=np.array([0, 7, rows - 1]))}
        store.commit(step=11, tables=gone, blobs={}, meta=meta(44))
    found = inspect_run(run_dir, deep=True)
    assert found["problems"] == []
    assert (found["step"], found["examples"], found["offset"], found["generation"]) == (11, 44, 44, 2)
    for name in LAYERS:
        layer = found["layers"][name]
        folder = run_dir / f"memory/generations/{found['generation']:09d}/tables/{name}"
        group = zarr.open_group(folder, mode="r")
        alive = group["alive"][:].astype(bool)
        created = group["created"][:][alive]
        assert layer["entries"] == alive.sum() == (45 if name == "block0" else 49)
        assert layer["initial_entries"] == (created == 0).sum()
        assert (layer["capacity"], layer["bytes"]) == (256, 25600)
        assert (layer["admitted"], layer["rejected"]) == (40, 1)
        assert layer["disk_bytes"] == sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        for key, values in {
            "ages": 11 - created,
            "key_norms": np.sqrt(group["key_norms"][:][alive]),
            "value_norms": group["value_norms"][:][alive],
        }.items():
            edges, counts = layer[key]["edges"], layer[key]["counts"]
            assert sum(counts) == layer["entries"]
            assert edges[0] <= values.min() <= values.max() <= edges[-1]
            assert counts == np.histogram(values, edges)[0].tolist()
    assert found["totals"]["entries"] == 94
    assert found["totals"]["bytes"] == 51200
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_inspection_of_rows_evaluations_and_summary(run_dir):
    summary = finish(run_dir)
    found = inspect_run(run_dir)
    assert found["run"] == "demo"
    assert found["state"] == "finished"
    assert found["config"]["stream"] == {"source": "digits"}
    assert found["recorded"]["step"] == 10
    assert found["predictions"] == 10
    assert [(row["task"], row["step"]) for row in found["evaluations"]] == [("test", 10)]
    assert found["summary"] == summary.document()


def test_totals_of_the_run_come_before_the_databases_counters(run_dir):
    with Store.open(run_dir / "memory", writable=True) as store:
        store.commit(
            step=11, tables={}, blobs={}, meta=meta(44) | {"totals": {"block0": [2**33, 1, 2, 3, 4]}}
        )
    layers = inspect_run(run_dir)["layers"]
    assert (layers["block0"]["admitted"], layers["block0"]["evicted"]) == (2**33, 4)
    assert layers["readout"]["admitted"] == 40


def test_inspection_before_the_first_commit(tmp_path):
    found = inspect_run(make_run(tmp_path / "r", steps=0))
    assert (found["step"], found["layers"], found["recorded"]) == (None, {}, None)
    assert found["problems"] == []
    assert "nothing committed yet" in format_inspection(found)
    Store.create(tmp_path / "r" / "memory").close()
    assert inspect_run(tmp_path / "r")["step"] is None


def test_inspection_names_every_damage(run_dir):
    chunk = next((run_dir / "memory").rglob("readout/created/c.0"))
    content = bytearray(chunk.read_bytes())
    content[3] ^= 1
    chunk.unlink()
    chunk.write_bytes(content)
    table = (run_dir / "metrics.jsonl").read_bytes()
    (run_dir / "metrics.jsonl").write_bytes(b"x" + table)
    (run_dir / "summary.json").write_text("{")
    (run_dir / "predictions.json").write_text("{")
    found = inspect_run(run_dir, deep=True)
    text = "\n".join(found["problems"])
    for name in ("readout/created/c.0", "metrics.jsonl line 1", "summary.json", "predictions.json"):
        assert name in text
    assert found["state"] == "damaged"
    assert found["layers"]["block0"]["entries"] == 48
    assert "readout" not in found["layers"]
    assert all("\n" not in line for line in found["problems"])
    assert len(found["problems"]) == len(set(found["problems"]))
    page = write_report(run_dir).read_text()
    assert all(html.escape(line) in page for line in inspect_run(run_dir)["problems"])


@pytest.mark.parametrize("victim", ["HEAD.json", "generations"])
def test_inspection_of_a_broken_memory(run_dir, victim):
    path = run_dir / "memory" / victim
    shutil.rmtree(path) if path.is_dir() else path.write_text("{}")
    found = inspect_run(run_dir)
    assert found["problems"]
    assert found["layers"] == {}
    write_report(run_dir)


def test_table_and_memory_that_disagree(run_dir):
    table = (run_dir / "metrics.jsonl").read_text()
    (run_dir / "metrics.jsonl").write_text(table.replace('"entries":48,', '"entries":47,'))
    assert inspect_run(run_dir)["problems"] == [
        "layer block0 at step 10: metrics.jsonl records 47 entries, the memory holds 48; "
        "one of them was changed by hand"
    ]


def test_inspection_while_the_run_commits(run_dir):
    stop, failures, seen = threading.Event(), [], set()

    def look() -> None:
        while not stop.is_set():
            found = inspect_run(run_dir)
            failures.extend(found["problems"])
            seen.add((found["step"], found["layers"]["block0"]["entries"]))

    thread = threading.Thread(target=look)
    with Store.open(run_dir / "memory", writable=True) as store:
        thread.start()
        for step in range(11, 300):
            if len(seen) > 5:
                break
            store.commit(step=step, tables={"block0": table_change(4, step)}, blobs={}, meta=meta(step))
        stop.set()
        thread.join()
    assert failures == []
    assert len(seen) > 2
    assert all(entries == 48 + 4 * (step - 10) for step, entries in seen)  # never half a commit


@given(st.lists(st.integers(-5, 10**6), max_size=60), st.integers(1, 15))
def test_histogram_counts_whole_numbers(values, bins):
    found = histogram(np.array(values, np.int32), bins)
    assert sum(found["counts"]) == len(values)
    assert len(found["counts"]) <= bins + 1
    assert len(found["edges"]) == len(found["counts"]) + bool(values)
    for low, high, count in zip(found["edges"], found["edges"][1:], found["counts"], strict=False):
        assert low.is_integer()
        assert count == sum(low <= value < high for value in values)


@given(st.lists(st.floats(allow_nan=True, width=32), max_size=60))
@settings(deadline=None)
def test_histogram_counts_finite_numbers(values):
    array = np.array(values, np.float32)
    found = histogram(array.astype(np.float64))
    assert sum(found["counts"]) == np.isfinite(array).sum()
    assert found["edges"] == sorted(set(found["edges"]))


def test_histogram_of_normalised_keys_is_one_bar():
    norms = 8 + np.random.default_rng(0).normal(0, 1e-6, 50)
    assert histogram(norms)["counts"] == [50]
    assert len(histogram(norms * np.linspace(1, 1.001, 50))["counts"]) == 12


def test_text_for_people(run_dir):
    finish(run_dir)
    text = format_inspection(inspect_run(run_dir))
    assert "demo · finished" in text
    assert "committed at step 10 · 40 examples · stream offset 40 · generation 1" in text
    assert re.search(r"learner.kind +rbf\n", text)
    assert re.search(r"\nblock0 +48 +\d+ +256 +25.0 KiB +\S+ \S+ +40 +0 +1 +0 +0\n", text)
    assert re.search(r"\nall +97 ", text)
    assert text.count("█" * 28) >= 6  # the longest bar of each histogram; ties have more
    assert "integrity: no problem found" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_summary_for_people(run_dir):
    text = format_summary(finish(run_dir))
    assert re.search(r"^test accuracy +0.8750$", text, re.M)
    assert re.search(r"^block0 +48 +256 +25.0 KiB +40 +0 +1 +0 +0$", text, re.M)


# Report


def page_data(page: str) -> list[dict]:
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def test_report_agrees_with_inspection_and_table(run_dir):
    finish(run_dir)
    page = write_report(run_dir).read_text()
    found = inspect_run(run_dir)
    layer, totals = found["layers"]["block0"], found["totals"]
    cells = re.search(r'<th scope="row">block0</th>(.*?)</tr>', page).group(1)
    assert re.findall(r"<td>(.*?)</td>", cells)[:3] == [
        f"{layer['entries']:,}",
        f"{layer['initial_entries']:,}",
        f"{layer['capacity']:,}",
    ]
    assert f"<dd>{totals['entries']:,}</dd>" in page
    assert "<dd>0.8750</dd>" in page
    assert "1.2.3" in page  # the run's versions
    data = {chart["key"]: chart for chart in page_data(page)}
    assert list(data) == ["accuracy", "loss", "entries", "bytes", "throughput", "split"]
    rows = [row for row in read_table(run_dir / "metrics.jsonl") if row["kind"] == "step"]
    entries = next(series for series in data["entries"]["series"] if series["name"] == "block0")
    assert entries["x"] == [row["examples"] for row in rows]
    assert entries["y"] == [row["layers"]["block0"]["entries"] for row in rows]
    held_out = next(series for series in data["accuracy"]["series"] if series["style"] == "points")
    assert (held_out["x"], held_out["y"]) == ([20, 40], [0.875, 0.875])
    assert data["bytes"]["y_title"] == "memory, KiB"
    allocated = next(series for series in data["bytes"]["series"] if series["style"] == "stairs")
    assert allocated["y"][-1] * 1024 == layer["bytes"]
    split = {series["name"]: series["y"] for series in data["split"]["series"]}
    assert split["compute"] == pytest.approx([200.0] * 10)
    assert sum(y[0] for y in split.values()) == pytest.approx(500.0)  # 0.5 s a step, in milliseconds
    assert "maintain" in split
    assert "evaluate" not in split  # no time was spent there


def test_report_is_self_contained(run_dir):
    page = write_report(run_dir).read_text()
    assert page.count("<html") == 1
    markup = page.split("<script>")[0]  # what follows are plotly and our script
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'>]*)""", markup) == ["data:,"]
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_report_escapes_everything(tmp_path):
    folder = make_run(
        tmp_path / "demo",
        name=NASTY,
        config={"learner": {NASTY: NASTY}},
        phase=NASTY,
        layers={NASTY: LayerRow(1, 2, 3), "b": LayerRow(1, 2, 3)},
    )
    page = write_report(folder).read_text()
    assert "<img" not in page
    assert page.count(html.escape(NASTY)) >= 4
    assert page_data(page)[2]["series"][0]["name"] == NASTY
    before_plotly = page.split("<script>")[0]
    assert before_plotly.count("</script>") == 1  # of the data


def test_report_of_a_run_that_recorded_nothing(tmp_path):
    page = write_report(make_run(tmp_path / "r", steps=0), tmp_path / "elsewhere.html").read_text()
    assert "The run has not recorded a row yet." in page
    assert "Nothing is committed yet." in page
    assert len(page) < 100_000  # no plots, so no plotting library
    assert not (tmp_path / "r" / "report.html").exists()


def test_report_of_regression_has_no_accuracy(tmp_path):
    folder = make_run(tmp_path / "r", prequential_accuracy=None, window_accuracy=None)
    table = (folder / "metrics.jsonl").read_text().replace('"accuracy":0.875', '"accuracy":null')
    (folder / "metrics.jsonl").write_text(table)
    page = write_report(folder).read_text()
    assert page_data(page)[0]["key"] == "loss"
    assert "held-out accuracy" not in page


def test_report_says_how_to_go_on(tmp_path):
    folder = make_run(tmp_path / "a run's folder")
    path = html.escape("'" + str(folder).replace("'", "'\"'\"'") + "'")
    assert f"lamina resume {path}" in write_report(folder).read_text()
    finish(folder)
    assert f"lamina run CONFIG.yaml --from {path}" in write_report(folder).read_text()


def test_report_on_a_full_disk(run_dir, monkeypatch):
    page = write_report(run_dir).read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full"):
        write_report(run_dir)
    assert (run_dir / "report.html").read_text() == page


def test_phases_are_marked():
    rows = [step_row(step, phase="pretrain" if step < 6 else "finetune").row() for step in range(1, 11)]
    assert charts(rows)[0].marks == [(0.0, "pretrain"), (20.0, "finetune")]
    assert charts(rows[:5])[0].marks == []


def test_split_of_a_fork_begins_at_its_parents_step():
    rows = [step_row(step).row() for step in range(1001, 1011)]
    [split] = [chart for chart in charts(rows) if chart.key == "split"]
    compute = next(series for series in split.series if series.name == "compute")
    assert compute.y == pytest.approx([200.0] * 10)


def test_a_long_first_step_does_not_flatten_the_others():
    rows = [step_row(step).row() for step in range(1, 11)]
    rows[0] |= {"compute_seconds": 20.0, "wall_seconds": 20.3}
    split = charts(rows)[-1]
    assert split.y_range == (0.0, pytest.approx(2000.0))  # four times the usual 500 ms
    assert "the longest stretch has 20,300 ms" in split.note
    assert charts(rows[1:])[-1].y_range is None


def test_charts_of_a_long_run_stay_small_and_keep_extremes():
    rows = [step_row(step).row() for step in range(1, 20_001)]
    rows[7777]["loss"] = 99.0
    rows[12_345]["layers"]["block0"]["entries"] = 10**6
    drawn = {chart.key: chart for chart in charts(rows)}
    for chart in drawn.values():
        for series in chart.series:
            assert len(series.x) == len(series.y) <= 2002
            assert series.x[-1] == 80_000
    assert 99.0 in drawn["loss"].series[0].y
    assert drawn["loss"].series[0].y[0] == 1.0
    assert 10**6 in drawn["entries"].series[0].y
    means = np.array([series.y for series in drawn["split"].series]).sum(axis=0)
    assert means == pytest.approx(np.full(means.shape, 500.0))


@given(
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=1, max_size=200),
    st.integers(1, 20),
)
@settings(deadline=None)
def test_thinned_lines_keep_their_ends_and_extremes(values, buckets):
    y = np.array(values)
    x = np.arange(len(y), dtype=np.float64)
    thin_x, thin_y = thin(x, y, buckets)
    assert len(thin_x) <= 2 * buckets + 2
    assert (np.diff(thin_x) > 0).all()
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    np.testing.assert_array_equal(y[thin_x.astype(int)], thin_y)
    if not np.isnan(y).all():
        assert np.nanmax(thin_y) == np.nanmax(y)
        assert np.nanmin(thin_y) == np.nanmin(y)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
def test_report_draws_in_a_browser(tmp_path):
    layers = {f"layer{place}": LayerRow(place, 9, 90) for place in range(9)} | {NASTY: LayerRow(1, 2, 3)}
    folder = make_run(tmp_path / "demo", name=NASTY, steps=40, layers=layers, phase=NASTY)
    page = write_report(folder)
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                CHROMIUM,
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
                *(
                    "--enable-logging=stderr",
                    "--v=0",
                    "--virtual-time-budget=4000",
                    "--window-size=1280,2000",
                ),
                *(f"--user-data-dir={profile}", "--dump-dom", page.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert "CONSOLE" not in done.stderr
    dom = done.stdout
    assert dom.count('class="main-svg"') >= 2 * 6
    assert len(re.findall(r'<g class="trace scatter', dom)) >= 6 + 2 * 10
    assert dom.count('aria-pressed="true"') == sum(
        len(chart["series"]) for chart in page_data(page.read_text())
    )
    assert "<title>1</title>" not in dom
    assert "<img" not in dom
