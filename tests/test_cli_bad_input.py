"""Bad data, bad folders: each is refused in one line, and nothing is lost."""

import gzip
import json
import socket
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lamina.continual import Origin, Run, parse_config, read_config
from lamina.continual.new_folder import NewFolder
from lamina.memory import Store
from lamina.monitoring import read_predictions, read_table
from tiny_runs import (
    STREAM,
    command,
    contents,
    fingerprint,
    refused,
    saved_progress,
    write_config,
    write_log,
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("digits") / "log", STREAM)


@pytest.fixture
def config(tmp_path: Path, log: Path) -> Path:
    return write_config(tmp_path / "config.yaml", log=str(log))


def arrays(rows: int = 40, **changes: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of four features and three classes, as npz: takes them."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(rows, 4)), draw.integers(0, 3, rows)
    return {"x_train": x, "y_train": y, "x_test": x[:10].copy(), "y_test": y[:10].copy()} | changes


def npz_config(
    folder: Path, data: dict[str, np.ndarray], stream: dict | None = None, **changes: object
) -> Path:
    """A configuration that streams some arrays, their log written."""
    np.savez(folder / "data.npz", **data)
    source = {
        "source": f"npz:{folder / 'data.npz'}",
        "shuffle": False,
        "segment_length": 16,
        **(stream or {}),
    }
    log = write_log(folder / "log", source)
    return write_config(folder / "config.yaml", stream=source, log=str(log), **changes)


@pytest.mark.parametrize(
    ("preset", "settings", "parts"),
    [
        ("cifar10-online-rbf", ["stream.folder=/nowhere"], ("cifar10", "/nowhere", "lamina stream import")),
        (
            "fashion-mnist-online",
            ["stream.folder=/nowhere"],
            ("train-images", "/nowhere", "dataset-fashion-mnist"),
        ),
        ("digits-online", ["stream.source=npz:/nowhere/a.npz"], ("/nowhere/a.npz", "check the path")),
        (
            "digits-online",
            ["stream.source=files:/nowhere/*.csv", "stream.target=y"],
            ("/nowhere/*.csv", "no file matches"),
        ),
    ],
)
def test_missing_data_is_said_within_a_second(
    preset: str, settings: list[str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    begin = time.perf_counter()
    options = [word for setting in settings for word in ("--set", setting)]
    refused(command("run", preset, *options, "--run-dir", tmp_path / "run"), *parts)
    assert time.perf_counter() - begin < 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", ["torn", "foreign", "lacking", "uneven", "empty"])
def test_a_bad_npz_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, **arrays())
    parts: tuple[str, ...] = ("data.npz", "damaged or foreign")
    if content == "torn":
        file.write_bytes(file.read_bytes()[:300])
    elif content == "foreign":
        file.write_bytes(b"x,y\n1,2\n" * 50)
    elif content == "lacking":
        np.savez(file, images=np.zeros((3, 2)))
        parts = ("data.npz", "expected an array x_train", "found images")
    elif content == "uneven":
        np.savez(file, **arrays(y_train=np.zeros(7, int)))
        parts = ("data.npz", "40 rows", "7")
    else:
        np.savez(file, **arrays(0))
        parts = ("is empty", "expected at least one example", "check the data")
    path = write_config(tmp_path / "config.yaml", stream={"source": f"npz:{file}"})
    refused(command("run", path, "--run-dir", tmp_path / "run"), *parts, code=1)
    assert not (tmp_path / "run").exists()


def test_a_torn_idx_file_is_refused(tmp_path: Path) -> None:
    images = np.zeros((20, 28, 28), np.uint8)
    packed = gzip.compress(b"\0\0\x08\x03" + np.array(images.shape, ">u4").tobytes() + images.tobytes())
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(packed[: len(packed) // 2])
    labels = b"\0\0\x08\x01" + np.array([20], ">u4").tobytes() + bytes(20)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    run = ("run", "fashion-mnist-online", "--set", f"stream.folder={tmp_path}", "--run-dir", tmp_path / "run")
    refused(command(*run), "train-images-idx3-ubyte.gz", "damaged", "fetch it again", code=1)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(packed)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels[:-5])
    refused(command(*run), "train-labels-idx1-ubyte", "expected 20 bytes", "found 15", code=1)


def test_held_out_data_that_are_missing_can_be_done_without(tmp_path: Path) -> None:
    data = arrays()
    del data["x_test"], data["y_test"]
    path = npz_config(tmp_path, data)
    refused(command("run", path, "--run-dir", tmp_path / "run"), "x_test", "evaluation.split", "null", code=1)
    done = command(
        "run", path, "--run-dir", tmp_path / "run", "--set", "evaluation.split=null", "--json"
    ).json()
    assert done["summary"]["test_accuracy"] is None
    assert done["examples"] == 40


def test_a_log_does_without_the_data_it_was_made_of(tmp_path: Path) -> None:
    path = npz_config(tmp_path, arrays(), evaluation={"split": None, "every_examples": None})
    (tmp_path / "data.npz").unlink()
    assert command("run", path, "--run-dir", tmp_path / "run", "--json").json()["finished"]


@pytest.mark.parametrize(
    "damage", ["newer", "torn header", "torn segment", "missing segment", "another stream"]
)
def test_a_bad_log_is_refused(damage: str, config: Path, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log"
    subprocess.run(["cp", "-r", log, copy], check=True)
    header, segment = copy / "header.json", copy / "segment-000000001.npz"
    settings, code = ["--set", f"log={copy}"], 1
    if damage == "newer":
        header.write_text(json.dumps(json.loads(header.read_text()) | {"version": 99}))
        parts = ("version 99", "reads up to 1", "update Lamina")
    elif damage == "torn header":
        header.write_bytes(header.read_bytes()[:50])
        parts = ("header.json", "damaged or foreign")
    elif damage == "torn segment":
        segment.write_bytes(segment.read_bytes()[:-100])
        parts = ("segment-000000001.npz", "damaged", "build the log again")
    elif damage == "missing segment":
        segment.unlink()
        parts = ("segment-000000001.npz", "missing", "build the log again")
    else:
        settings, code = [*settings, "--set", "stream.limit=64"], 2
        parts = ("another stream", "limit", "96", "64")
    run = tmp_path / "run"
    refused(command("run", config, "--run-dir", run, "--quiet", *settings), *parts, code=code)
    assert run.exists() == (damage in ("torn segment", "missing segment"))  # 32 examples were learnt from
    if run.exists():
        assert saved_progress(run)["examples"] == 32
        subprocess.run(["cp", log / segment.name, segment], check=True)
        assert command("resume", run, "--json").json()["summary"]["examples"] == 96


def test_a_batch_larger_than_the_stream_is_refused(config: Path, tmp_path: Path) -> None:
    answer = command("run", config, "--set", "batch_size=97", "--run-dir", tmp_path / "run")
    refused(answer, "a batch of 97", "96", "from 1 to 96")
    assert not (tmp_path / "run").exists()
    whole = command("run", config, "--set", "batch_size=96", "--run-dir", tmp_path / "run", "--json").json()
    assert (whole["examples"], whole["steps"]) == (96, 1)


def with_bad_rows(kind: str) -> tuple[dict[str, np.ndarray], list[int]]:
    data = arrays()
    bad = [17, 18, 38, 39]  # the last two come after the last full batch of good ones
    if kind == "label":
        data["y_train"][bad] = [3, -1, 99, 3]
    else:
        data["x_train"][bad, 1] = {"nan": np.nan, "inf": np.inf, "huge": 1e300}[kind]
    return data, bad


@pytest.mark.parametrize(
    ("kind", "meaning"),
    [
        ("nan", "NaN"),
        ("inf", "infinity"),
        ("huge", "beyond float32"),
        ("label", "has the label 3, which is outside the declared classes 0 to 2"),
    ],
)
def test_a_bad_example_stops_the_run_where_it_is(kind: str, meaning: str, tmp_path: Path) -> None:
    data, bad = with_bad_rows(kind)
    path = npz_config(tmp_path, data, {"classes": 3}, commit={"every_steps": 100})
    run = tmp_path / "run"
    answer = command("run", path, "--run-dir", run, "--quiet")
    refused(answer, f"example {bad[0]} ", meaning, "on_bad_input: skip", code=1)
    assert saved_progress(run)["examples"] == 16  # the batches before it are learnt and committed
    assert len(read_predictions(run)) == 16
    refused(command("resume", run, "--quiet"), f"example {bad[0]} ", code=1)


@pytest.mark.parametrize("kind", ["nan", "label"])
def test_bad_examples_are_skipped_and_counted(kind: str, tmp_path: Path) -> None:
    data, bad = with_bad_rows(kind)
    path = npz_config(
        tmp_path, data, {"classes": 3, "on_bad_input": "skip"}, batch_size=6, evaluation={"split": None}
    )
    run = tmp_path / "run"
    summary = command("run", path, "--run-dir", run, "--json").json()["summary"]
    assert (summary["examples"], summary["skipped_examples"], summary["steps"]) == (36, 4, 6)
    steps = [row for row in read_table(run / "metrics.jsonl") if row["kind"] == "step"]
    assert [row["skipped_examples"] for row in steps] == [2, 2, 4]
    assert steps[-1]["offset"] == 40
    assert sorted(set(range(40)) - set(read_predictions(run)["origin"].tolist())) == bad
    assert "36 in 6 steps, 4 skipped" in command("resume", run).out


def test_a_stream_of_bad_examples_only_is_a_failure(tmp_path: Path) -> None:
    path = npz_config(
        tmp_path,
        arrays(x_train=np.full((40, 4), np.nan)),
        {"on_bad_input": "skip"},
        evaluation={"split": None},
    )
    refused(
        command("run", path, "--run-dir", tmp_path / "run", "--quiet"), "no good example", "all 40", code=1
    )


@pytest.mark.parametrize("bad", ['{"a": 1, "label": 0}', '{"a": 1, "b": [2, 3], "label": 0}', "{", '"text"'])
def test_a_row_of_another_shape_stops_the_run_or_is_skipped(bad: str, tmp_path: Path) -> None:
    rows = [json.dumps({"a": n, "b": n % 3, "label": n % 2}) for n in range(20)]
    rows[9] = bad
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    stream = {
        "source": f"files:{tmp_path}/*.jsonl",
        "target": "label",
        "classes": ["even", "odd"],
        "shuffle": False,
        "segment_length": 8,
    }
    log = write_log(tmp_path / "log", stream)
    path = write_config(
        tmp_path / "config.yaml", stream=stream, log=str(log), batch_size=4, evaluation={"split": None}
    )
    refused(
        command("run", path, "--run-dir", tmp_path / "a", "--quiet"), "example 9 ", "shape or columns", code=1
    )
    assert saved_progress(tmp_path / "a")["examples"] == 8
    skip = ("--set", "stream.on_bad_input=skip", "--json")
    summary = command("run", path, "--run-dir", tmp_path / "b", *skip).json()["summary"]
    assert (summary["examples"], summary["skipped_examples"]) == (19, 1)


@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_learning_that_diverges_is_stopped_before_it_is_committed(
    rate: float, log: Path, tmp_path: Path
) -> None:
    learner = {"blocks": 1, "value_rate": rate}
    path = write_config(tmp_path / "wild.yaml", learner=learner, log=str(log), commit={"every_steps": 1})
    run = tmp_path / "run"
    refused(command("run", path, "--run-dir", run, "--quiet"), "step ", "finite", "lower", code=1)
    with Store.open(run / "memory") as store:
        for table in store.generation().tables.values():
            assert all(np.isfinite(table.read(name)).all() for name in table.columns)
    refused(command("resume", run, "--quiet"), "finite", code=1)


def test_a_folder_that_holds_something_is_left_alone(config: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    before = fingerprint(tmp_path / "run")
    refused(command("run", config, "--run-dir", tmp_path / "run"), "not empty", "thesis.tex", "--run-dir")
    assert before.items() <= fingerprint(tmp_path / "run").items()
    file = tmp_path / "file"
    file.write_text("a file")
    refused(command("run", config, "--run-dir", file), "expected a folder", "found a file")
    refused(command("run", config, "--run-dir", file / "below"), "expected a folder", "found a file")
    assert file.read_text() == "a file"


def test_a_second_run_into_a_runs_folder_is_refused(config: Path, tmp_path: Path) -> None:
    assert command("run", config, "--run-dir", tmp_path / "run", "--steps", 2, "--quiet").code == 0
    before = contents(tmp_path / "run")
    refused(command("run", config, "--run-dir", tmp_path / "run"), "not empty", "lamina resume")
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["resume", "inspect", "report"])
def test_what_is_no_run_is_refused(name: str, tmp_path: Path) -> None:
    refused(command(name, tmp_path), str(tmp_path), "config.yaml")
    refused(command(name, tmp_path / "none"), str(tmp_path / "none"), "config.yaml")
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_a_newer_format_is_refused_and_left_alone(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert command("run", config, "--run-dir", run, "--steps", 5, "--quiet").code == 0
    head = run / "memory" / "HEAD.json"
    kept = head.read_bytes()
    body = json.loads(kept) | {"format_version": 99, "of_the_future": True}
    del body["crc32"]
    crc = zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    head.write_text(json.dumps(body | {"crc32": crc}))
    before = fingerprint(run)
    refused(command("resume", run, "--quiet"), "HEAD.json", "format 99", "upgrade Lamina", code=1)
    refused(command("run", config, "--from", run, "--run-dir", tmp_path / "b"), "format 99", code=1)
    found = command("inspect", run, "--json")
    assert found.code == 1
    assert "format 99" in json.loads(found.out)["problems"][0]
    assert {n: f for n, f in fingerprint(run).items() if n != ".lock"} == {
        n: f for n, f in before.items() if n != ".lock"
    }
    head.write_bytes(kept)
    assert command("resume", run, "--json").json()["summary"]["examples"] == 96


@pytest.mark.parametrize("port", ["busy", "70000"])
def test_a_port_that_cannot_be_served_is_refused(port: str, config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1] if port == "busy" else port
        answer = command("run", config, "--run-dir", run, "--metrics-port", number)
        refused(answer, f"metrics port {number}", "in use" if port == "busy" else "65535")
        assert not run.exists()
        assert command("run", config, "--run-dir", run, "--steps", 3, "--quiet").code == 0
        before = contents(run)
        refused(command("resume", run, "--metrics-port", number), f"metrics port {number}")
    assert contents(run) == before


def test_an_origin_that_is_none_is_refused(config: Path, tmp_path: Path) -> None:
    answer = command("run", config, "--from", tmp_path / "none", "--run-dir", tmp_path / "run")
    refused(answer, str(tmp_path / "none"), "no memory")
    Store.create(tmp_path / "foreign" / "memory").close()
    answer = command("run", config, "--from", tmp_path / "foreign", "--run-dir", tmp_path / "run")
    refused(answer, "foreign", "no commit")
    with Store.open(tmp_path / "foreign" / "memory", writable=True) as store:
        store.commit(step=1, tables={}, blobs={}, meta={})
    answer = command("run", config, "--from", tmp_path / "foreign", "--run-dir", tmp_path / "run")
    refused(answer, "expected a learner's memory", code=1)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder below which nothing can be written, not even by root."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_read_only_folder_is_refused(read_only: Path, config: Path, tmp_path: Path) -> None:
    run = read_only / "run"
    assert command("run", config, "--run-dir", run, "--steps", 3, "--quiet").code == 0
    before = fingerprint(read_only)
    subprocess.run(["mount", "-o", "remount,ro,bind", read_only], check=True)
    for arguments in (
        ("run", config, "--run-dir", read_only / "new"),
        ("resume", run),
        ("report", run),
        ("stream", "build", config, read_only / "log"),
    ):
        refused(command(*arguments), str(read_only), "read-only", "choose a writable folder", code=1)
    assert command("inspect", run, "--json").json()["step"] == 3
    taken = command("run", config, "--from", run, "--run-dir", tmp_path / "on", "--json")
    assert taken.json()["steps"] == 15  # another file system: its bytes are copied
    assert fingerprint(read_only) == before


def test_a_report_needs_a_folder(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert command("run", config, "--run-dir", run, "--steps", 1, "--quiet").code == 0
    refused(
        command("report", run, "--output", tmp_path / "none" / "a.html"), "--output", "folder that exists"
    )
    refused(command("report", run, "--output", tmp_path), "--output", "expected a file")
    assert command("report", run, "--output", tmp_path / "a.html", "--json").json() == {
        "report": str(tmp_path / "a.html")
    }
    assert not (run / "report.html").exists()


def test_a_start_that_was_killed_is_cleared_by_the_next_one(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, run = tmp_path / "parent", tmp_path / "run"
    assert command("run", config, "--run-dir", parent, "--quiet").code == 0

    with monkeypatch.context() as patch:
        patch.setattr(Run, "commit", _Stop.now)
        patch.setattr(NewFolder, "__exit__", lambda self, *_: self._lock.close())  # as SIGKILL leaves it
        with pytest.raises(_Stop):
            Run.create(parse_config(read_config(config)), run, origin=Origin(parent))
    assert (run / "memory" / "HEAD.json").exists()  # the parent's progress, which is not this run's
    refused(command("resume", run), "never began", "start it again")
    refused(command("inspect", run), "config.yaml")
    done = command("run", config, "--run-dir", run, "--json").json()
    assert (done["examples"], done["steps"]) == (96, 12)
    assert contents(run) == contents(parent)


class _Stop(BaseException):
    @classmethod
    def now(cls, *_: object, **__: object) -> None:
        raise cls
