"""Views of a run's folder: inspection and report agree with each other and with the arrays on disk."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading

import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from lamina.durable import FolderLock
from lamina.errors import FormatError, MissingDataError
from lamina.memory.store import Store, TableChange
from lamina.monitoring import (
    RunState,
    RunView,
    format_inspection,
    format_summary,
    inspect_run,
    write_report,
)
from lamina.monitoring.inspect import histogram
from made_runs import LAYERS, finish, make_run, meta, report_document, table_change


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
    assert report_document(write_report(run_dir))["problems"] == inspect_run(run_dir)["problems"]


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
    assert re.search(r"^held-out accuracy +0.8750$", text, re.M)
    assert re.search(r"^block0 +48 +256 +25.0 KiB +40 +0 +1 +0 +0$", text, re.M)
