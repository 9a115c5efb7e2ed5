"""CSV, JSONL and Parquet files as random-access streams."""

import csv
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lamina.errors import ConfigError, DataError, MissingDataError
from lamina.stream import StreamConfig, open_source
from lamina.stream.sources.row_index import open_rows


def opened(pattern, **options):
    return open_source(StreamConfig(source=f"files:{pattern}", **{"shuffle": False, **options}))


def test_rows_are_ordered_by_file_and_row_over_all_formats(tmp_path):
    (tmp_path / "a.csv").write_text("u,v,kind\n1,2,cat\n3,4,dog\n")
    (tmp_path / "b.jsonl").write_text('{"kind": "dog", "u": 5, "v": 6}\n\n{"u": 7, "v": 8.5, "kind": "cat"}')
    table = {"kind": ["cat"] * 5, "v": list(range(5)), "u": [0.5] * 5}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "c.parquet", row_group_size=2)
    source = opened(tmp_path / "*", features=("u", "v"), target="kind", classes=("dog", "cat"))
    assert source.length == 9
    arrays = source.read(0, 9)
    assert arrays["x"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8.5]] + [[0.5, v] for v in range(5)]
    assert arrays["y"].tolist() == [1, 0, 0, 1, 1, 1, 1, 1, 1]
    assert not arrays["problems"].any()
    shuffled = opened(
        tmp_path / "*", features=("u", "v"), target="kind", classes=("dog", "cat"), shuffle=True
    )
    assert sorted(map(tuple, shuffled.read(0, 9)["x"])) == sorted(map(tuple, arrays["x"]))


def test_columns_are_found_by_name_in_every_file(tmp_path):
    (tmp_path / "a.csv").write_text("u,v,t\n1,2,0.5\n")
    (tmp_path / "b.csv").write_text("t,v,u\n1.5,4,3\n")
    source = opened(tmp_path / "*.csv", target="t")
    assert source.read(0, 2)["x"].tolist() == [[1, 2], [3, 4]]
    assert source.read(0, 2)["y"].tolist() == [[0.5], [1.5]]
    assert source.schema.classes is None


def test_lists_form_vectors_and_a_change_of_size_is_found(tmp_path):
    rows = [{"e": [1, 2], "n": 3, "t": 0}, {"e": [4, 5, 6], "n": 7, "t": 0}, {"e": [8, 9], "n": 1, "t": 1}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arrays = opened(tmp_path / "a.jsonl", features=("e", "n"), target="t", classes=2).read(0, 3)
    assert arrays["problems"].tolist() == [0, 3, 0]
    assert arrays["x"][[0, 2]].tolist() == [[1, 2, 3], [8, 9, 1]]


def test_bad_rows_are_marked_with_what_is_wrong(tmp_path):
    lines = ["1,2,0", "1,2", "x,2,0", ",2,0", "nan,2,1", "1,2,7", "1,inf,1", "1e300,2,0", "1,2,zero", "4,5,1"]
    (tmp_path / "a.csv").write_text("u,v,t\n" + "\n".join(lines) + "\n")
    arrays = opened(tmp_path / "a.csv", target="t", classes=2).read(0, 10)
    assert arrays["problems"].tolist() == [0, 3, 4, 4, 1, 2, 1, 1, 2, 0]


@pytest.mark.parametrize(
    "line", ["{broken", "[1, 2]", '{"u": 1}', '{"u": null, "t": 0}', '{"u": "a", "t": 0}']
)
def test_bad_json_rows(tmp_path, line):
    (tmp_path / "a.jsonl").write_text('{"u": 1, "t": 0}\n' + line + '\n{"u": 2, "t": 1}\n')
    arrays = opened(tmp_path / "a.jsonl", target="t", classes=2).read(0, 3)
    assert (arrays["problems"] != 0).tolist() == [False, True, False]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(TEXT, TEXT), max_size=12), ending=st.sampled_from(["\n", "\r\n"]))
def test_csv_index_agrees_with_the_csv_module(tmp_path, rows, ending):
    path = tmp_path / "h.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator=ending, quoting=csv.QUOTE_ALL)
        writer.writerows([("a", "b"), *rows])
    file = open_rows(path)
    assert file.rows == len(rows)
    order = np.arange(len(rows))[::-1].copy()
    found = [(record["a"], record["b"]) for record in file.read(order)]
    assert found == rows[::-1]


def test_one_column_of_single_digits(tmp_path):
    (tmp_path / "a.csv").write_text("t\r\n1\r\n\r\n0\n1")
    file = open_rows(tmp_path / "a.csv")
    assert [record["t"] for record in file.read(np.arange(file.rows))] == ["1", "0", "1"]


def test_index_across_blocks(tmp_path, monkeypatch):
    from lamina.stream.sources import row_index

    monkeypatch.setattr(row_index, "_BLOCK", 5)
    (tmp_path / "a.csv").write_text('a,b\n1,"x\ny"\n2,"z""\n"\n3,w\n')
    file = open_rows(tmp_path / "a.csv")
    assert [r["b"] for r in file.read(np.array([2, 0, 1]))] == ["w", "x\ny", 'z"\n']


def test_faults_are_one_line(tmp_path):
    with pytest.raises(MissingDataError, match="no file matches"):
        opened(tmp_path / "*.csv", target="t")
    (tmp_path / "a.csv").write_text("u,t\n1,2\n")
    with pytest.raises(ConfigError, match="needs target"):
        opened(tmp_path / "a.csv")
    with pytest.raises(DataError, match="expected the columns w, found u, t"):
        opened(tmp_path / "a.csv", features=("w",), target="t")
    with pytest.raises(ConfigError, match="one split"):
        open_source(StreamConfig(source=f"files:{tmp_path}/a.csv", target="t"), "test")
    (tmp_path / "b.csv").write_text("u,t\n1,cat\n")
    with pytest.raises(DataError, match="declare classes"):
        opened(tmp_path / "b.csv", target="t")
    (tmp_path / "c.csv").write_text("")
    with pytest.raises(DataError, match="empty file"):
        opened(tmp_path / "c.csv", target="t")
    (tmp_path / "d.csv").write_text("u,t\n")
    with pytest.raises(DataError, match="is empty"):
        opened(tmp_path / "d.csv", target="t")
    (tmp_path / "e.parquet").write_bytes(b"PAR1 truncated")
    with pytest.raises(DataError, match="Parquet"):
        opened(tmp_path / "e.parquet", target="t")
    (tmp_path / "f.txt").write_text("1")
    with pytest.raises(DataError, match="ending in"):
        opened(tmp_path / "f.txt", target="t")
