"""A table read as it grows: what is kept of many rows agrees with all of them."""

import json
import os
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from lamina.monitoring import LayerRow, read_table
from lamina.monitoring import table as tables
from lamina.monitoring.forecast import forecasts
from lamina.monitoring.history import History
from lamina.monitoring.matrix import accuracy_matrix
from lamina.monitoring.stretches import Stretches
from lamina.monitoring.table import evaluation_rows, last_step_row, row_of_step, step_rows_backwards
from made_runs import make_run, step_row


@given(
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=1, max_size=300),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(1, 12),
)
@settings(deadline=None)
def test_stretches_keep_extremes_ends_and_sums(values, cuts, most):
    """Against the whole column, however the rows arrive."""
    y, x = np.array(values), np.arange(len(values), dtype=np.float64)
    kept = Stretches(most)
    borders = np.minimum(np.cumsum([0, *cuts, len(y)]), len(y))
    for start, stop in pairwise(borders):
        kept.take(x[start:stop], {"y": y[start:stop]})
    found_x, found_y = kept.line("y")
    size = max(1, -(-len(y) // (2 * most)))
    assert len(found_x) <= 2 * 2 * most + 2 * size  # stretches' extremes, and rows that fill none yet
    assert (np.diff(found_x) > 0).all()
    np.testing.assert_array_equal(y[found_x.astype(int)], found_y)
    assert kept.ends()[-1] == x[-1]
    assert kept.rows == len(y)
    assert kept.totals("y").sum() == pytest.approx(np.nansum(y), abs=1e-6)
    if not np.isnan(y).all():
        assert (np.nanmin(found_y), np.nanmax(found_y)) == (np.nanmin(y), np.nanmax(y))
    if len(y) <= 2 * most:
        np.testing.assert_array_equal(found_y, y)


def test_a_column_that_comes_late_is_a_gap_before():
    kept = Stretches(2)
    for step in range(40):
        columns = {"a": np.array([float(step)])} | ({"b": np.array([1.0])} if step >= 20 else {})
        kept.take(np.array([float(step)]), columns)
    x, y = kept.line("b")
    assert x[-1] == 39
    assert np.isnan(y[x < 15]).all()
    assert y[-1] == 1.0
    assert kept.totals("b").sum() == 20
    assert kept.names == ["a", "b"]


def test_read_in_pieces_equals_read_at_once(tmp_path):
    """A row's second half may be written later; a row is taken once it is whole."""
    path = make_run(tmp_path / "r", steps=30) / "metrics.jsonl"
    content, growing = path.read_bytes(), tmp_path / "growing.jsonl"
    growing.touch()
    whole, parts = History(path), History(growing)
    assert whole.update()
    with open(growing, "ab") as file:
        for start in range(0, len(content), 700):
            file.write(content[start : start + 700])
            file.flush()
            assert parts.update()
    for history in (whole, parts):
        assert history.problems == []
        assert history.lines.rows == 30
        assert [row["step"] for row in history.evaluations] == [5, 10, 15, 20, 25, 30]
        assert history.last == [row for row in read_table(path) if row["kind"] == "step"][-1]
        assert history.layers == ["block0", "readout"]
    for name in whole.lines.names:
        np.testing.assert_array_equal(whole.lines.line(name), parts.lines.line(name))
    np.testing.assert_array_equal(whole.lines.line("loss")[1], [1 / step for step in range(1, 31)])


def test_a_table_that_was_cut_by_a_resume_is_read_anew(tmp_path):
    path = make_run(tmp_path / "r", steps=30) / "metrics.jsonl"
    history = History(path)
    history.update()
    lines = path.read_bytes().splitlines(keepends=True)
    os.truncate(path, sum(map(len, lines[:12])))
    history.update()
    assert history.lines.rows == 10
    path.unlink()
    history.update()
    assert (history.lines.rows, history.last) == (0, None)


BAD = [b"x", b"{}", b"[1]", b"\xff\xfe", b'{"kind":"step"}', b'{"kind":"evaluation","step":1}']


@pytest.mark.parametrize("bad", BAD)
def test_damaged_lines_are_told_and_left_out(tmp_path, bad):
    path = make_run(tmp_path / "r", steps=6) / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], bad + b"\n", *lines[3:]]))
    history = History(path)
    history.update()
    assert history.problems == ["metrics.jsonl line 4 is damaged: expected a row as JSON"]
    assert history.lines.rows == 6
    assert history.last["step"] == 6


def test_rows_of_other_kinds_are_left_alone(tmp_path):
    path = make_run(tmp_path / "r", steps=6) / "metrics.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"kind":"phase","name":"x"}\n')
    history = History(path)
    history.update()
    assert (history.problems, history.lines.rows) == ([], 6)


def test_a_sample_of_a_long_table_has_its_last_row_and_the_evaluations_near_it(tmp_path, monkeypatch):
    path = make_run(tmp_path / "r", steps=400) / "metrics.jsonl"
    assert len(History.sample(path, 50).evaluations) == 80
    monkeypatch.setattr("lamina.monitoring.history._BLOCK_BYTES", path.stat().st_size // 4)
    sample = History.sample(path, 50)
    assert sample.coarse
    assert 40 <= sample.lines.rows <= 50
    assert sample.last["step"] == 400
    assert 15 <= len(sample.evaluations) <= 25
    assert sample.evaluations[-1] == evaluation_rows(path)[-1]
    x, y = sample.lines.line("loss")
    np.testing.assert_array_equal(y, 4 / x)  # of step x / 4


def test_reading_in_small_parts_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("lamina.monitoring.history._BLOCK_BYTES", 2000)
    history = History(make_run(tmp_path / "r", steps=40) / "metrics.jsonl")
    rounds = 1
    while not history.update(1):
        rounds += 1
    assert rounds > 5
    assert history.lines.rows == 40
    assert history.unread_bytes == 0


@pytest.mark.parametrize("window", [50, 700, 1 << 16])
def test_step_rows_backwards(tmp_path, monkeypatch, window):
    monkeypatch.setattr(tables, "_BACKWARDS_BYTES", window)
    path = make_run(tmp_path / "r", steps=12) / "metrics.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"kind":"step","torn')
    assert [row["step"] for row in step_rows_backwards(path)] == list(range(12, 0, -1))
    assert last_step_row(path)["step"] == 12
    assert [row["step"] for row in evaluation_rows(path)] == [5, 10]


@pytest.mark.parametrize("window", [1, 700, 1 << 16])
def test_a_steps_row_is_found_by_halving(tmp_path, monkeypatch, window):
    monkeypatch.setattr(tables, "_BACKWARDS_BYTES", window)
    path = make_run(tmp_path / "r", steps=12) / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [row for row in lines if not (row["kind"] == "step" and row["step"] == 7)]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    for step in range(14):
        row = row_of_step(path, step)
        assert (row and (row["kind"], row["step"])) == (None if step in (0, 7, 13) else ("step", step))


def test_a_steps_row_in_a_long_table_costs_no_reading_of_it(tmp_path, monkeypatch):
    path = make_run(tmp_path / "r", steps=400) / "metrics.jsonl"
    monkeypatch.setattr(tables, "_BACKWARDS_BYTES", 4096)
    parsed = []
    monkeypatch.setattr(tables, "_parse", lambda path, line, where: parsed.append(1) or json.loads(line))
    assert row_of_step(path, 123)["step"] == 123
    assert len(parsed) < 30


def evaluation(phase, task, accuracy):
    return {"phase": phase, "task": task, "accuracy": accuracy}


def test_accuracy_matrix_and_forgetting():
    rows = [
        evaluation("one", "a", 0.5),
        evaluation("one", "a", 0.9),  # the last of a phase counts
        evaluation("two", "a", 0.6),
        evaluation("two", "b", 0.8),
        evaluation("three", "b", 0.85),
        evaluation("three", "a", 0.7),
    ]
    found = accuracy_matrix(rows)
    assert found["phases"] == ["one", "two", "three"]
    assert found["tasks"] == ["a", "b"]
    assert found["accuracy"] == [[0.9, None], [0.6, 0.8], [0.7, 0.85]]
    assert found["forgetting"] == pytest.approx([0.2, -0.05])
    assert accuracy_matrix(rows[:2]) is None
    assert accuracy_matrix(rows[:3])["forgetting"] == pytest.approx([0.3])
    assert accuracy_matrix([evaluation("one", "a", None)]) is None


def test_forecast_of_constant_growth_is_exact(tmp_path):
    """4 entries a step of 4 examples at 8 a second: 100 entries are 100 examples and 12.5 seconds."""
    history = History.of([step_row(step).row() for step in range(1, 11)])
    found = {"config": {"learner": {"memory": {"capacity": 148}}}, "path": str(tmp_path), "layers": {}}
    cap = forecasts(found, history)[0]
    assert (cap.what, cap.left) == ("cap of block0, 148 entries", 100)
    assert (cap.examples, cap.seconds) == pytest.approx((100, 12.5))
    disk = next(each for each in forecasts(found, history) if each.what == "free disk")
    assert disk.left > 0
    assert disk.examples is None  # nothing is written here
    reached = forecasts(found | {"config": {"learner": {"memory": {"capacity": 20}}}}, history)[0]
    assert (reached.left, reached.examples) == (0, 0)
    assert forecasts(found, History.of([step_row(1).row()])) == []


@pytest.mark.parametrize("size", [25_600, 544_768, 323_584 + 2**40 // 3])
def test_what_does_not_grow_reaches_nothing(tmp_path, size):
    """Whatever its size: least squares of equal numbers give a slope of rounding."""
    layers = {name: LayerRow(7, 1024, size) for name in ("block0", "readout")}
    history = History.of([replace(step_row(step), layers=layers).row() for step in range(1, 24)])
    found = {"config": {"learner": {"memory": {"capacity": 10}}}, "path": str(tmp_path), "layers": {}}
    assert [each.examples for each in forecasts(found, history)] == [None] * 4  # two caps, disk, memory


def test_forecast_of_the_disk_counts_entries_and_tables(tmp_path):
    history = History.of([step_row(step).row() for step in range(1, 11)])
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * 400)  # 10 bytes an example
    layer = {"disk_bytes": 480, "entries": 48}  # 10 bytes an entry, an entry an example
    found = {"config": {}, "path": str(tmp_path), "layers": {"block0": layer}}
    disk = next(each for each in forecasts(found, history) if each.what == "free disk")
    assert disk.examples == pytest.approx(disk.left / 20)


def test_table_rows_are_json_objects_one_a_line(tmp_path):
    """What the fast reading of evaluations relies on: `kind` comes first, without spaces."""
    path = make_run(tmp_path / "r", steps=5) / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    assert sum(line.startswith(tables.EVALUATION_START) for line in lines) == 1
    assert all(json.loads(line)["kind"] in ("step", "evaluation") for line in lines)
