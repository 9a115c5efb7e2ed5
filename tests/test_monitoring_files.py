"""The append-only files of a run: resumed at a committed position, never torn, never silently damaged."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from lamina.errors import ConfigError, DataError, FormatError, MissingDataError, StorageError
from lamina.monitoring import (
    LayerRow,
    PredictionLog,
    Summary,
    TableWriter,
    read_predictions,
    read_summary,
    read_table,
    reproducible,
    write_summary,
)
from lamina.monitoring.append_file import AppendFile
from lamina.monitoring.table import DroppedRows, last_step_row


class AppendFileModel(RuleBasedStateMachine):
    """Against a bytearray: appends, commits, kills (reopening at the last commit), torn garbage."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "file")
        self.file = AppendFile(self.path)
        self.model = b""
        self.committed = 0

    @rule(content=st.binary(max_size=40))
    def append(self, content: bytes) -> None:
        self.file.append(content)
        self.model += content

    @rule()
    def commit(self) -> None:
        self.file.sync()
        self.committed = self.file.position()

    @rule(garbage=st.binary(max_size=5))
    def kill_and_resume(self, garbage: bytes) -> None:
        self.file.close()
        with open(self.path, "ab") as file:
            file.write(garbage)
        self.file = AppendFile(self.path, self.committed)
        assert self.file.tail == self.model[self.committed :] + garbage
        self.model = self.model[: self.committed]

    @invariant()
    def holds_the_model(self) -> None:
        assert self.path.read_bytes() == self.model
        assert self.file.position() == len(self.model)

    def teardown(self) -> None:
        self.file.close()
        self.folder.cleanup()


AppendFileModel.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestAppendFile = AppendFileModel.TestCase


class FullDisk:
    """A file on a disk that takes only so many bytes more."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, content: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "no space")
        written = self.file.write(content[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name: str):
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 1, 25])
def test_full_disk_leaves_whole_rows(tmp_path, room):
    table = TableWriter(tmp_path / "t")
    table.append({"kind": "step", "step": 1})
    real = table._file._file
    table._file._file = FullDisk(real, room)
    with pytest.raises(StorageError, match=r"^cannot write .*: the disk is full; .*$"):
        table.append({"kind": "step", "step": 2, "phase": "a longer row"})
    assert [row["step"] for row in read_table(tmp_path / "t")] == [1]
    table._file._file = real
    table.append({"kind": "step", "step": 2})
    assert [row["step"] for row in read_table(tmp_path / "t")] == [1, 2]
    assert table.position() == (tmp_path / "t").stat().st_size
    table.close()


@pytest.mark.parametrize("room", [0, 30])
def test_predictions_that_a_full_disk_refuses_are_still_held(tmp_path, room):
    log = PredictionLog(tmp_path, "classification")
    real = log._file._file
    log._file._file = FullDisk(real, room)
    for origin in (5, 6):
        log.append([origin], [0], [1], [0.5])
    with pytest.raises(StorageError, match="the disk is full"):
        log.flush()
    assert len(read_predictions(tmp_path)) == log.position() == 0
    log._file._file = real
    log.close()
    assert read_predictions(tmp_path)["origin"].tolist() == [5, 6]


def test_a_log_closes_once_whatever_is_refused(tmp_path):
    log = PredictionLog(tmp_path, "classification")
    log._file._file = FullDisk(log._file._file, 0)
    log.append([1], [0], [1], [0.5])
    with pytest.raises(StorageError, match="the disk is full"):
        log.close()
    log.close()
    assert len(read_predictions(tmp_path)) == 0


def test_batches_of_several_sizes_and_types_are_held_together(tmp_path):
    log = PredictionLog(tmp_path, "classification")
    log.append(np.array([2**60 + 1]), np.array([1], np.uint8), np.array([2], np.int64), np.float32([0.5]))
    log.append(np.array([7, 8], np.int32), [3, 4], np.array([5, 6], np.int16), [0.25, 0.125])
    log.append(np.zeros(0, np.int64), np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    log.append(np.array([9], np.uint32), [0], [0], [1.0])
    log.close()
    records = read_predictions(tmp_path)
    assert records["origin"].tolist() == [2**60 + 1, 7, 8, 9]
    assert records["label"].tolist() == [1, 3, 4, 0]
    assert records["prediction"].tolist() == [2, 5, 6, 0]
    assert records["loss"].tolist() == [0.5, 0.25, 0.125, 1.0]


def test_predictions_are_written_before_they_are_many(tmp_path):
    log = PredictionLog(tmp_path, "classification")
    for origin in range(400):
        log.append([origin], [0], [1], [0.5])
    assert log.position() > 200 * log.dtype.itemsize
    log.close()


def test_new_file_refuses_a_runs_rows(tmp_path):
    table = TableWriter(tmp_path / "t")
    table.append({"kind": "step", "step": 1})
    table.close()
    before = (tmp_path / "t").read_bytes()
    with pytest.raises(ConfigError, match="already holds 25 bytes of a run; resume that run"):
        TableWriter(tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == before


@pytest.mark.parametrize(
    ("position", "message"),
    [(1000, r"holds 52 bytes, but 1000 were committed"), (10, r"no row ending at byte 10")],
)
def test_position_that_does_not_fit(tmp_path, position, message):
    path = tmp_path / "t"
    path.write_bytes(b'{"kind":"step","step":10}\n' * 2)
    with pytest.raises(FormatError, match=message):
        TableWriter(path, position)
    assert path.stat().st_size == 52


def reopened(path: Path, position: int) -> DroppedRows:
    table = TableWriter(path, position)
    table.close()
    return table.dropped


def test_damage_before_the_position_is_named(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(b'{"kind":"st\n' + b'{"kind":"step","step":2}\n')
    with pytest.raises(FormatError, match="t before byte 12 is damaged"):
        TableWriter(path, 12)


def test_resume_reports_what_it_dropped(tmp_path):
    path = tmp_path / "t"
    table = TableWriter(path)
    for step in (25, 50):
        table.append({"kind": "step", "step": step})
    table.append({"kind": "evaluation", "step": 50})
    position = table.position()
    table.append({"kind": "step", "step": 75})
    table.append({"kind": "evaluation", "step": 80})
    table.append({"kind": "step", "step": 100})
    table.close()
    with open(path, "ab") as file:
        file.write(b'{"kind":"step","step":12')  # torn by a kill
    table = TableWriter(path, position)
    assert table.dropped == DroppedRows(step_rows=2, evaluation_rows=1, last_step=100)
    assert [row["step"] for row in read_table(path)] == [25, 50, 50]
    table.close()
    assert reopened(path, position) == DroppedRows()


def test_the_last_step_row_is_found_far_back(tmp_path):
    path = tmp_path / "t"
    table = TableWriter(path)
    table.append({"kind": "step", "step": 7})
    for _ in range(3000):
        table.append({"kind": "evaluation", "step": 7, "task": "x" * 60})
    position = table.position()
    table.append({"kind": "step", "step": 9})
    table.close()
    assert last_step_row(path, position) == {"kind": "step", "step": 7}


def test_everything_dropped_when_nothing_was_committed(tmp_path):
    path = tmp_path / "t"
    table = TableWriter(path, 0)  # a run killed before its first commit
    table.append({"kind": "step", "step": 25})
    table.close()
    assert reopened(path, 0) == DroppedRows(1, 0, 25)
    assert read_table(path) == []


def test_table_is_strict_json_lines(tmp_path):
    table = TableWriter(tmp_path / "t")
    row = {
        "kind": "step",
        "loss": float("nan"),
        "accuracy": np.float32(0.5),
        "step": np.int64(3),
        "phase": "a\nb “c”",
        "layers": {"a": {"entries": np.int32(2), "norm": -np.inf}},
    }
    table.append(row)

    def forbid(name: str) -> None:
        raise AssertionError(name)

    lines = (tmp_path / "t").read_text().splitlines()
    assert [json.loads(line, parse_constant=forbid) for line in lines] == [
        {
            "kind": "step",
            "loss": None,
            "accuracy": 0.5,
            "step": 3,
            "phase": "a\nb “c”",
            "layers": {"a": {"entries": 2, "norm": None}},
        }
    ]
    table.close()


@given(st.integers(0, 80))
def test_live_table_reads_at_every_length(length):
    rows = [{"kind": "step", "step": step} for step in (1, 2, 3)]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)[:length]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t")
        path.write_bytes(content)
        assert read_table(path) == rows[: content.count(b"\n")]


@pytest.mark.parametrize("bad", [b"{]", b"", b"3", b'{"step":1}', b"\x00\x00", b"\xff"])
def test_damage_in_the_middle_is_named(tmp_path, bad):
    good = b'{"kind":"step","step":1}\n'
    (tmp_path / "t").write_bytes(good + bad + b"\n" + good)
    with pytest.raises(FormatError, match="t line 2 is damaged: expected a JSON object with a kind"):
        read_table(tmp_path / "t")


def test_missing_table(tmp_path):
    with pytest.raises(MissingDataError, match="no table at"):
        read_table(tmp_path / "t")


def test_reproducible_strips_only_wall_clock():
    row = {"kind": "evaluation", "seconds": 1, "evaluation_seconds": 2.0, "x_per_second": 3.0, "loss": 4.0}
    assert reproducible(row) == {"kind": "evaluation", "seconds": 1, "loss": 4.0}


KILLED = """
import sys
from pathlib import Path
import numpy as np
from lamina.monitoring import PredictionLog, TableWriter
folder = Path(sys.argv[1])
table, log = TableWriter(folder / "metrics.jsonl"), PredictionLog(folder, "classification")
for step in range(1, 10**9):
    log.append(np.arange(4) + 4 * step, np.full(4, step), np.full(4, step), np.full(4, 0.5))
    log.flush()
    table.append({"kind": "step", "step": step})
    if step % 100 == 0:
        table.sync(); log.sync()
        print(table.position(), log.position(), flush=True)
"""


def test_sigkill_loses_nothing_that_was_written(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        positions = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGKILL)
    rows = read_table(tmp_path / "metrics.jsonl")
    records = read_predictions(tmp_path)
    assert len(rows) >= 300
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert len(records) // 4 - len(rows) in (0, 1)
    assert records["origin"].tolist() == list(range(4, len(records) + 4))
    table_position, log_position = map(int, positions[-1].split())
    table = TableWriter(tmp_path / "metrics.jsonl", table_position)
    log = PredictionLog(tmp_path, "classification", position=log_position)
    assert table.dropped.last_step == (len(rows) if len(rows) > 300 else 0)
    assert log.dropped == len(records) - 1200
    assert len(read_predictions(tmp_path)) == 1200
    table.close()
    log.close()


@pytest.mark.parametrize(
    ("task", "outputs", "labels"),
    [
        ("classification", 1, np.array([1, 0, 2])),
        ("regression", 1, np.array([1.5, -2.0, 0.25])),
        ("regression", 2, np.array([[1.5, 2.0], [0.5, 0.25], [-1.0, 8.0]])),
    ],
)
def test_predictions_come_back(tmp_path, task, outputs, labels):
    log = PredictionLog(tmp_path, task, outputs)
    log.append([5, 6, 7], labels, labels + 1, [0.5, float("nan"), 2.0])
    log.append([2**40, 9, 10], labels, labels, np.float32([1, 2, 3]))
    log.flush()
    position = log.position()
    log.append([0, 0, 0], labels, labels, [0, 0, 0])
    log.close()
    with open(tmp_path / "predictions.bin", "ab") as file:
        file.write(b"torn")
    assert len(read_predictions(tmp_path)) == 9
    log = PredictionLog(tmp_path, task, outputs, position)
    assert log.dropped == 3
    records = read_predictions(tmp_path)
    assert records["origin"].tolist() == [5, 6, 7, 2**40, 9, 10]
    np.testing.assert_array_equal(records["label"], np.concatenate([labels, labels]))
    np.testing.assert_array_equal(records["prediction"], np.concatenate([labels + 1, labels]))
    np.testing.assert_array_equal(records["loss"], np.float32([0.5, np.nan, 2, 1, 2, 3]))
    assert not records.flags.writeable
    log.close()


def test_predictions_open_with_numpy_alone(tmp_path):
    log = PredictionLog(tmp_path, "classification")
    log.append([3, 4], [1, 2], [1, 0], [0.25, 0.5])
    assert log.position() == 0  # held, until it is worth a write
    log.flush()
    layout = json.loads((tmp_path / "predictions.json").read_text())
    records = np.fromfile(tmp_path / "predictions.bin", dtype=[tuple(field) for field in layout["dtype"]])
    assert records.tolist() == [(3, 1, 1, 0.25), (4, 2, 0, 0.5)]
    log.close()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([1, 2], [1], [1, 2], [0.0, 0.0]), r"label of the predictions: expected int32 \(2,\), found"),
        (([1], [0], [0.5], [0.0]), r"prediction of the predictions: expected int32 \(1,\), found float64"),
        (([1.0], [0], [0], [0.0]), r"origin of the predictions: expected int64"),
        ((1, 0, 0, 0.0), r"origin of the predictions: expected int64 \(0,\), found int64 \(\)"),
    ],
)
def test_predictions_that_do_not_fit(tmp_path, arrays, message):
    log = PredictionLog(tmp_path, "classification")
    log.append([0], [0], [1], [0.5])
    log.append(*(np.array(array) for array in arrays))
    for ends in (log.flush, log.sync, log.close):
        with pytest.raises(DataError, match=message):
            ends()
    assert log.position() == 0


def test_predictions_of_another_layout(tmp_path):
    log = PredictionLog(tmp_path, "classification")
    log.append([1], [0], [0], [0.0])
    log.close()
    with pytest.raises(FormatError, match="resume with the run's own configuration"):
        PredictionLog(tmp_path, "regression", position=20)
    with pytest.raises(FormatError, match=r"position 19 .* is not a multiple of the record's 20 bytes"):
        PredictionLog(tmp_path, "classification", position=19)
    assert (tmp_path / "predictions.bin").stat().st_size == 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ('{"format": 1}', "is damaged"),
        ('{"format": 1, "dtype": [["a", "no type"]]}', "is damaged"),
        ('{"format": 2, "dtype": [["origin", "<i8"]]}', "has format 2, this version reads 1; update"),
    ],
)
def test_layout_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "predictions.json").write_text(content)
    with pytest.raises(FormatError, match=message):
        read_predictions(tmp_path)


def test_no_predictions(tmp_path):
    with pytest.raises(MissingDataError, match="no predictions in"):
        read_predictions(tmp_path)
    PredictionLog(tmp_path, "classification").close()
    assert read_predictions(tmp_path).shape == (0,)


SUMMARY = Summary(
    examples=80,
    steps=10,
    prequential_accuracy=0.75,
    test_accuracy=None,
    loss=float("nan"),
    layers={"block0": LayerRow(90, 128, 5120, admitted=80)},
    wall_seconds=1.5,
    step_seconds={"p50": 0.1, "p95": 0.2},
    peak_rss_bytes=10**9,
    compilations=3,
    seed=7,
    versions={"python": "3.12"},
)


def test_summary_comes_back(tmp_path):
    path = write_summary(tmp_path, SUMMARY)
    found = read_summary(tmp_path)
    assert found.loss is None
    assert found.layers == SUMMARY.layers
    assert (found.examples, found.steps, found.seed, found.versions) == (80, 10, 7, {"python": "3.12"})
    assert json.loads(path.read_text())["step_seconds"] == {"p50": 0.1, "p95": 0.2}
    assert os.listdir(tmp_path) == ["summary.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is damaged: expected one JSON object with examples, steps"),
        ("[1]", "is damaged"),
        ('{"format": 1, "layers": {}}', "is damaged"),
        ('{"format": 1, "layers": {"a": {"rows": 1}}}', "is damaged"),
        ('{"format": 9}', "has format 9, this version reads 1"),
    ],
)
def test_summary_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(FormatError, match=message):
        read_summary(tmp_path)


def test_no_summary(tmp_path):
    with pytest.raises(MissingDataError, match="the run is not finished"):
        read_summary(tmp_path)
