"""Tables of finished chunks: linked, not copied; only liveness is written; wrong changes are refused."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from lamina.errors import DataError
from lamina.memory.cold import ColdPart, cold_layout, committed_cold
from lamina.memory.draft import os as draft_os
from lamina.memory.persist import chunks_change
from lamina.memory.spill import SpillFolder
from lamina.memory.store import ChunksChange, Store

R, D, F = 4, 3, 2
LAYOUT = cold_layout(R, D, F, weighted=False, dtype=np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "memory") as store:
        yield store


def part(folder: SpillFolder, chunks: int) -> ColdPart:
    cold = ColdPart(LAYOUT, (), ())
    for number in range(chunks):
        columns = {
            name: np.full((R, *spec.row_shape), number + 1, spec.dtype)
            for name, spec in LAYOUT.columns.items()
            if name != "alive"
        }
        cold = cold.added(folder.write("layer", LAYOUT, columns), np.ones(R, bool))
    return cold


def commit(store: Store, change: ChunksChange, step: int) -> Path:
    store.commit(step=step, tables={"layer": change}, blobs={}, meta={})
    with store.generation() as generation:
        assert generation.problems(deep=True) == []
        return generation.path / "tables" / "layer"


def test_chunks_are_linked_and_only_liveness_is_written(store: Store, tmp_path: Path) -> None:
    folder = SpillFolder(tmp_path / "spill")
    cold = part(folder, 3)
    first = commit(store, chunks_change(cold, None), 1)
    inodes = {path.name: path.stat().st_ino for path in (first / "keys").glob("c.*")}
    assert inodes == {f"c.{i}.0": chunk.files["keys"].stat().st_ino for i, chunk in enumerate(cold.chunks)}
    alive = {path.name: path.stat().st_ino for path in (first / "alive").glob("c.*")}

    live = [cold.live[0], np.array([1, 0, 1, 0], bool), cold.live[2]]
    later = cold.with_live(live)
    change = chunks_change(later, cold)
    assert change.kept == 3
    second = commit(store, change, 2)
    assert {path.name: path.stat().st_ino for path in (second / "keys").glob("c.*")} == inodes
    now = {path.name: path.stat().st_ino for path in (second / "alive").glob("c.*")}
    assert {name for name in now if now[name] == alive[name]} == {"c.0", "c.2"}
    assert zarr.open_group(second, mode="r")["alive"][:].tolist() == [1] * 4 + [1, 0, 1, 0] + [1] * 4


def test_a_chunk_that_went_moves_the_others(store: Store, tmp_path: Path) -> None:
    cold = part(SpillFolder(tmp_path / "spill"), 3)
    commit(store, chunks_change(cold, None), 1)
    fewer = cold.with_live([np.zeros(R, bool), *cold.live[1:]])
    change = chunks_change(fewer, cold)
    assert change.kept == 0
    table = commit(store, change, 2)
    assert zarr.open_group(table, mode="r")["keys"][:, 0].tolist() == [2.0] * R + [3.0] * R
    nothing = fewer.with_live([np.zeros(R, bool)] * 2)
    assert zarr.open_group(commit(store, chunks_change(nothing, fewer), 3), mode="r")["keys"].shape == (0, D)


def test_a_committed_part_keeps_its_files_while_it_is_used(store: Store, tmp_path: Path) -> None:
    cold = part(SpillFolder(tmp_path / "spill"), 2)
    commit(store, chunks_change(cold, None), 1)
    with store.generation() as generation:
        loaded = committed_cold(generation.tables["layer"], generation.path)
    assert chunks_change(loaded, loaded).kept == 2
    other = part(SpillFolder(tmp_path / "other"), 1)
    commit(store, chunks_change(other, None), 2)
    commit(store, chunks_change(other, None), 3)
    assert loaded.chunks[1].read(LAYOUT, ["keys"])["keys"][:, 0].tolist() == [2.0] * R
    path = loaded.chunks[1].files["keys"]
    del loaded
    commit(store, chunks_change(other, None), 4)
    assert not path.exists()


def test_links_that_fail_become_copies(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    cold = part(SpillFolder(tmp_path / "spill"), 2)
    monkeypatch.setattr(draft_os, "link", refuse)
    table = commit(store, chunks_change(cold, None), 1)
    commit(store, chunks_change(cold, cold), 2)
    assert not table.exists()


def test_changes_that_do_not_fit_are_refused(store: Store, tmp_path: Path) -> None:
    cold = part(SpillFolder(tmp_path / "spill"), 2)
    good = chunks_change(cold, None)
    for bad in (
        ChunksChange(LAYOUT, [{"keys": tmp_path}], np.ones(R, np.uint8)),
        ChunksChange(LAYOUT, good.chunks, good.alive[:-1]),
        ChunksChange(LAYOUT, good.chunks, good.alive, kept=1),  # nothing was committed
    ):
        with pytest.raises(DataError, match="table layer: expected chunks of the columns"):
            store.commit(step=1, tables={"layer": bad}, blobs={}, meta={})
    assert store.head is None
