"""The store: what is committed is what is read, by us and by plain zarr, and damage is noticed."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from lamina.errors import (
    BusyError,
    ConfigError,
    DataError,
    FormatError,
    MissingDataError,
)
from lamina.memory import layout
from lamina.memory.sealed import seal
from lamina.memory.store import Store, TableChange
from memory_store_model import Model, commit, rows


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Four rows a chunk for the tables of `rows`, so that few rows take several chunks."""
    monkeypatch.setattr(layout, "_WIDE_CHUNK_BYTES", 48)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store") as store:
        yield store


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Path below the folder → (inode, content)."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def grown(store: Store, commits: int = 3, count: int = 5) -> Model:
    model = Model()
    for step in range(commits):
        model = commit(store, model, {"layer": TableChange(rows(count, step))})
    return model


def chunk(store: Store, index: int = 0) -> Path:
    return store.generation().path / "tables" / "layer" / "keys" / f"c.{index}.0"


def test_an_empty_store_has_no_head(store):
    assert store.head is None
    assert store.tags() == {}
    assert store.verify() == []
    with pytest.raises(MissingDataError, match="no commit"):
        store.generation()
    assert Store.open(store.path).head is None


def test_commits_are_read_back_by_us_and_by_plain_zarr(store):
    model = grown(store)
    model = commit(store, model, {"layer": TableChange({}, np.array([0, 3, 14]))})
    store.close()
    with Store.open(store.path) as opened, opened.generation() as generation:
        model.assert_equals(generation)
        assert opened.verify(deep=True) == []
        group = zarr.open_group(generation.path / "tables" / "layer", mode="r")
        columns, alive = model.tables["layer"]
        for name, expected in {**columns, "alive": alive.astype(np.uint8)}.items():
            array = group[name]
            np.testing.assert_array_equal(array[:], expected, strict=True)
            assert array.chunks[0] == 4
            assert [codec["name"] for codec in array.metadata.to_dict()["codecs"]] == [
                "bytes",
                "crc32c",
            ]


def test_chunk_files_are_byte_for_byte_what_zarr_writes(store, tmp_path):
    model = grown(store)
    with store.generation() as generation:
        for name, expected in model.tables["layer"][0].items():
            ours = generation.path / "tables" / "layer" / name
            document = json.loads((ours / "zarr.json").read_bytes())
            theirs = tmp_path / name
            theirs.mkdir()
            (theirs / "zarr.json").write_text(json.dumps(document))
            zarr.open_array(theirs, mode="r+", config={"write_empty_chunks": True})[:] = expected
            for path in theirs.glob("c.*"):
                assert (ours / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("row_bytes", "expected"),
    [(256, 16384), (12288, 682), (4, 1 << 20), (40 << 20, 1), (1024, 8192)],
)
def test_chunks_hold_4_to_16_mebibytes_of_the_widest_column(row_bytes, expected, monkeypatch):
    monkeypatch.undo()
    table = {"keys": np.zeros((1, row_bytes // 4), np.float32), "created": np.zeros(1, np.int32)}
    assert layout.Layout.of("layer", table).rows_per_chunk == expected


def test_every_dtype_and_row_shape_survives(store):
    kinds = ["?", "i1", "u2", "<i4", ">i8", "f2", "<f4", ">f8", "c8"]
    table = {f"c{index}": np.arange(30).reshape(5, 3, 2).astype(kind) for index, kind in enumerate(kinds)}
    store.commit(step=1, tables={"t": TableChange(table)}, blobs={}, meta={})
    store.commit(step=2, tables={"t": TableChange(table)}, blobs={}, meta={})
    with store.generation() as generation:
        for name, part in table.items():
            found = generation.tables["t"].read(name)
            np.testing.assert_array_equal(found, np.concatenate([part, part]))
            assert found.dtype == part.dtype.newbyteorder("<")


def test_reading_any_range_into_an_array_of_the_caller(store):
    keys = grown(store).tables["layer"][0]["keys"]
    with store.generation() as generation:
        table = generation.tables["layer"]
        for start in range(16):
            for stop in range(start, 16):
                out = np.empty((stop - start, 3), np.float32)
                assert table.read("keys", start, stop, out) is out
                np.testing.assert_array_equal(out, keys[start:stop])
        assert table.nbytes == 15 * (12 + 4 + 1)
        for bad in [np.empty((15, 3)), np.empty((14, 3), np.float32), np.empty((3, 15), "f4").T]:
            with pytest.raises(DataError, match="to read into"):
                table.read("keys", out=bad)
        for column, start, stop in [("nope", 0, 1), ("keys", 0, 16), ("keys", 2, 1)]:
            with pytest.raises(DataError, match="rows within"):
                table.read(column, start, stop)


def test_zero_row_tables_grow_later(store):
    model = commit(store, Model(), {"layer": TableChange(rows(0, 0))})
    model.assert_equals(store.generation())
    model = commit(store, model, {"layer": TableChange(rows(4, 1)), "late": TableChange(rows(0, 2))})
    model = commit(store, model, {"layer": TableChange(rows(0, 1)), "late": TableChange(rows(9, 2))})
    model.assert_equals(store.generation())
    model = commit(store, model, {"layer": TableChange(rows(0, 0), replace=True)})
    model = commit(store, model, {"layer": TableChange(rows(1, 5))})  # no stale rows come back
    model.assert_equals(store.generation())
    assert store.verify(deep=True) == []


def test_rows_that_are_all_zero_still_have_chunks(store):
    zeros = {"keys": np.zeros((9, 3), np.float32), "created": np.zeros(9, np.int32)}
    model = commit(store, Model(), {"layer": TableChange(zeros, np.arange(9))})
    model.assert_equals(store.generation())
    assert chunk(store, 2).exists()


def test_the_store_keeps_no_reference_to_the_callers_rows(store):
    part = rows(6, 0)
    model = commit(store, Model(), {"layer": TableChange(part)})
    for column in part.values():
        column[:] = 0
    model = commit(store, model, {"layer": TableChange(rows(1, 1))})
    model.assert_equals(store.generation())


def test_a_commit_rewrites_changed_chunks_only_and_old_generations_keep_their_bytes(store):
    model = commit(store, Model(), {"layer": TableChange(rows(10, 0))}, tag="first")
    first = store.generation("first")
    before = files(first.path)
    commit(store, model, {"layer": TableChange(rows(3, 1), np.array([1]))})
    assert files(first.path) == before
    after = files(store.generation().path)
    shared = {name for name in before if after.get(name, (0,))[0] == before[name][0]}
    table = "tables/layer"
    assert shared == {
        *(f"{table}/keys/c.{index}.0" for index in (0, 1)),
        *(f"{table}/created/c.{index}" for index in (0, 1)),
        f"{table}/alive/c.1",
    }


def test_an_untouched_table_is_shared_whole(store):
    model = commit(store, Model(), {"layer": TableChange(rows(10, 0))}, tag="first")
    commit(store, model, {"late": TableChange(rows(10, 1))})
    first, second = (files(store.generation(at).path / "tables/layer") for at in ("first", None))
    assert {k: v for k, v in first.items() if k != "zarr.json"} == {
        k: v for k, v in second.items() if k != "zarr.json"
    }


def test_a_commit_reads_nothing_back(store, monkeypatch):
    model = grown(store)
    monkeypatch.setattr("lamina.memory.table.read_chunk", lambda *_: pytest.fail("a commit read a chunk"))
    commit(store, model, {"layer": TableChange(rows(2, 9), np.array([0]))})


def test_without_hard_links_commits_and_branches_copy(store, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError(errno.EXDEV, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    model = grown(store)
    model.assert_equals(store.generation())
    with store.branch(tmp_path / "branch") as branch:
        replaced = Model(model.step, model.tables, model.blobs)
        replaced.assert_equals(branch.generation())
        assert branch.verify(deep=True) == []


def test_tags_keep_generations_and_untag_lets_them_go(store):
    models = {}
    model = Model()
    for step in range(1, 6):
        options = {"tag": f"phase-{step}"} if step in (2, 4) else {}
        model = commit(store, model, {"layer": TableChange(rows(5, step))}, **options)
        models[step] = model
    for at, step in [("phase-2", 2), (2, 2), ("phase-4", 4), (4, 4), (5, 5), (None, 5)]:
        with store.generation(at) as generation:
            models[step].assert_equals(generation)
    assert {tag: head.step for tag, head in store.tags().items()} == {"phase-2": 2, "phase-4": 4}
    assert len(list((store.path / "generations").iterdir())) == 3
    with pytest.raises(ConfigError, match="phase-4"):
        commit(store, model, {}, tag="phase-4")
    for unknown in (1, "phase-1"):
        with pytest.raises(MissingDataError, match=r"phase-2 \(step 2\).*head \(step 5\)"):
            store.generation(unknown)
    store.untag("phase-2")
    with pytest.raises(MissingDataError, match="phase-4"):
        store.untag("phase-2")
    assert set(Store.open(store.path).tags()) == {"phase-4"}
    assert len(list((store.path / "generations").iterdir())) == 2


def test_a_generation_stays_while_somebody_reads_it(store):
    model = grown(store)
    reader = Store.open(store.path)
    view = reader.generation()
    later = commit(store, model, {"layer": TableChange(rows(5, 7), replace=True)})
    model.assert_equals(view)
    assert reader.verify(deep=True) == []
    view.close()
    reader.close()
    later = commit(store, later, {})
    later.assert_equals(store.generation())
    assert len(list((store.path / "generations").iterdir())) == 1


def test_a_branch_shares_bytes_and_never_changes_its_parent(store, tmp_path):
    model = commit(store, Model(), {"layer": TableChange(rows(10, 0))}, tag="first")
    grandchild = commit(store, model, {"layer": TableChange(rows(10, 1))})
    before = files(store.path)
    with store.branch(tmp_path / "deep" / "branch", "first") as branch:
        assert branch.tags() == {}
        model.assert_equals(branch.generation())
        inodes = {inode for inode, _ in before.values()}
        linked = [path for path, (inode, _) in files(branch.path).items() if inode in inodes]
        # 3 columns of 3 chunks, their zarr.json, and the blob
        assert len(linked) == 3 * 3 + 3 + 1
        other = commit(branch, model, {"layer": TableChange(rows(3, 5), np.array([0, 11]))})
        other = commit(branch, other, {"layer": TableChange(rows(3, 6), replace=True)})
        other.assert_equals(branch.generation())
    assert files(store.path) == before
    grandchild.assert_equals(store.generation())
    with pytest.raises(ConfigError, match="expected an empty folder"):
        store.branch(tmp_path / "deep" / "branch")


def test_a_branch_of_damaged_bytes_is_refused_and_its_folder_stays_free(store, tmp_path):
    grown(store)
    with Store.open(store.path) as reader:
        content = chunk(store).read_bytes()
        chunk(store).unlink()
        with pytest.raises(FormatError, match="missing"):
            reader.branch(tmp_path / "branch")
        path = store.generation().path / "tables/layer/keys/c.0.0"
        path.write_bytes(content)
        reader.branch(tmp_path / "branch").close()


def test_a_second_writer_is_refused_in_the_same_process_too(store):
    grown(store)
    with pytest.raises(BusyError, match=f"process {os.getpid()}"):
        Store.open(store.path, writable=True)
    assert Store.open(store.path).head == store.head
    store.close()
    Store.open(store.path, writable=True).close()


def test_what_an_interrupted_commit_left_is_ignored_then_removed(store):
    model = grown(store)
    store.close()
    generations = store.path / "generations"
    head = next(generations.iterdir())
    shutil.copytree(head, generations / "000000044")  # published, but never the head
    shutil.copytree(head / "tables", generations / ".draft-45" / "tables")
    (generations / "000000046").mkdir()
    with Store.open(store.path) as reader:
        model.assert_equals(reader.generation())
        assert len(list(generations.iterdir())) == 4
    with Store.open(store.path, writable=True) as writer:
        assert [path.name for path in generations.iterdir()] == [head.name]
        commit(writer, model, {"layer": TableChange(rows(5, 5))}).assert_equals(writer.generation())


def test_a_copied_store_opens_and_goes_on(store, tmp_path):
    model = grown(store)
    store.close()
    shutil.copytree(store.path, tmp_path / "copy")
    with Store.open(tmp_path / "copy", writable=True) as copy:
        assert copy.verify(deep=True) == []
        commit(copy, model, {"layer": TableChange(rows(5, 5))}).assert_equals(copy.generation())


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 1)


@pytest.mark.parametrize("damage", [remove, truncate, lengthen])
@pytest.mark.parametrize("name", ["tables/layer/keys/c.1.0", "tables/layer/alive/c.3", "blobs/state"])
def test_a_missing_or_resized_file_is_found_on_opening(store, damage, name):
    grown(store)
    path = store.generation().path / name
    damage(path)
    store.close()
    with pytest.raises(FormatError, match=path.name):
        Store.open(store.path)
    with Store.open(store.path, check=False) as opened:
        assert [line.split()[0] for line in opened.verify()] == [str(path)]
        assert [line.split()[0] for line in opened.verify(deep=True)] == [str(path)]


@pytest.mark.parametrize("name", ["tables/layer/keys/c.1.0", "tables/layer/alive/c.3", "blobs/state"])
def test_a_flipped_byte_is_found_by_reading_and_by_a_deep_check(store, name):
    grown(store)
    path = store.generation().path / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert store.verify() == []
    assert store.verify(deep=True) == [f"{path} fails its checksum"]
    generation = store.generation()
    column = path.parent.name
    read = generation.blob if column == "blobs" else generation.tables["layer"].read
    with pytest.raises(FormatError, match=path.name):
        read("state" if column == "blobs" else column)


def test_a_chunk_that_vanishes_while_reading_is_never_read_as_zeros(store):
    grown(store)
    generation = store.generation()
    chunk(store, 1).unlink()
    generation.tables["layer"].read("keys", 0, 4)
    with pytest.raises(FormatError, match=r"c\.1\.0 is missing"):
        generation.tables["layer"].read("keys")


def test_a_changed_description_is_found_on_opening(store):
    grown(store)
    path = store.generation().path / "tables/layer/keys/zarr.json"
    document = json.loads(path.read_text()) | {"shape": [99, 3]}
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match="about shape"):
        Store.open(store.path)


@pytest.mark.parametrize("name", ["HEAD.json", "generation.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged or foreign"),
        (b"[1]", "damaged or foreign"),
        (b"\xff\x00", "damaged or foreign"),
        (b'{"format_version": 2, "new": 1}', "format 2, and this Lamina reads up to 1"),
        (None, "checksum"),
    ],
)
def test_a_damaged_foreign_or_newer_document_is_refused(store, name, content, message):
    grown(store)
    path = (store.path if name == "HEAD.json" else store.generation().path) / name
    store.close()
    damaged = path.read_bytes().replace(b'"generation": 3', b'"generation": 4')
    path.write_bytes(damaged if content is None else content)
    for writable in (False, True):
        with pytest.raises(FormatError, match=message):
            Store.open(store.path, writable=writable)


def test_a_head_without_its_generation_is_refused(store):
    grown(store)
    store.close()
    (store.path / "HEAD.json").write_bytes(seal({"generation": 77, "tags": {}}))
    with pytest.raises(FormatError, match="000000077 is the head"):
        Store.open(store.path, writable=True)
    assert len(list((store.path / "generations").iterdir())) == 1


def test_folders_that_hold_no_store_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        Store.create(tmp_path)
    for path in (tmp_path, tmp_path / "absent", tmp_path / "thesis.tex"):
        for writable in (False, True):
            with pytest.raises(MissingDataError, match="holds no memory"):
                Store.open(path, writable=writable)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_creating_goes_on_where_it_was_interrupted(tmp_path):
    (tmp_path / "generations").mkdir()
    (tmp_path / ".lock").touch()
    with Store.create(tmp_path) as store:
        grown(store).assert_equals(store.generation())
    with pytest.raises(ConfigError, match=r"HEAD\.json"):
        Store.create(tmp_path)


KEYS = np.zeros((2, 3), np.float32)
CREATED = np.zeros(2, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (TableChange({"keys": KEYS}), "columns"),
        (TableChange({"keys": KEYS, "created": CREATED, "x": CREATED}), "columns"),
        (TableChange({"keys": KEYS, "created": CREATED[:1]}), "one length"),
        (TableChange({"keys": KEYS[:, :2], "created": CREATED}), "shape"),
        (TableChange({"keys": KEYS.astype(np.float64), "created": CREATED}), "float32"),
        (TableChange({}, replace=True), "columns"),
        (TableChange({}, np.array([10])), "died"),
        (TableChange({}, np.array([-1])), "died"),
        (TableChange({}, np.array([0.5])), "died"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_before_anything_is_written(store, change, message):
    model = commit(store, Model(), {"layer": TableChange(rows(10, 0))})
    before = files(store.path)
    with pytest.raises(DataError, match=message):
        commit(store, model, {"fine": TableChange(rows(1, 1)), "layer": change})
    assert files(store.path) == before
    commit(store, model, {"layer": TableChange(rows(1, 1))}).assert_equals(store.generation())


@pytest.mark.parametrize(
    "appended",
    [{}, {"alive": CREATED}, {"a/b": CREATED}, {"x": np.array(["a"])}, {"x": np.zeros((2, 0))}],
)
def test_a_table_that_cannot_be_is_refused(store, appended):
    with pytest.raises(DataError, match="table layer"):
        commit(store, Model(), {"layer": TableChange(appended)})


def test_bad_names_meta_and_read_only_stores_are_refused(store):
    for bad in ({"tables": {"a/b": TableChange(rows(1, 0))}}, {"blobs": {"..": b""}}, {"tag": ""}):
        with pytest.raises(ConfigError, match="expected"):
            store.commit(**({"step": 1, "tables": {}, "blobs": {}, "meta": {}} | bad))
    with pytest.raises(DataError, match="JSON"):
        store.commit(step=1, tables={}, blobs={}, meta={"x": object()})
    grown(store)
    with Store.open(store.path) as reader:
        with pytest.raises(ConfigError, match="writable"):
            reader.commit(step=1, tables={}, blobs={}, meta={})
        with pytest.raises(ConfigError, match="writable"):
            reader.untag("x")
        with pytest.raises(MissingDataError, match="state"):
            reader.generation().blob("nope")
