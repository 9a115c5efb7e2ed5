"""The store under kill -9, power loss and a file system that refuses: always exactly one commit."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lamina.errors import BusyError, LaminaError, StorageError
from lamina.memory import chunks, layout
from lamina.memory.store import Store, TableChange
from memory_store_model import Model, commit, rows, scripted, scripted_change

KILLS = 15

# Waits for a line per child; the children are forked, so that each begins at once.
CHILD = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from lamina.memory import layout
from lamina.memory.store import Store
from memory_store_model import Model, commit, scripted, scripted_change
layout._WIDE_CHUNK_BYTES = 48

def work():
    with Store.open(Path(sys.argv[1]), writable=True) as store:
        step = 0 if store.head is None else store.head.step
        model = scripted(step)
        while True:
            alive = model.tables["layer"][1] if step else ()
            model = commit(store, model, scripted_change(model.step + 1, alive))
            step = model.step
            os.write(1, b"committed %d\\n" % step)

for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        work()
    os.write(1, b"started %d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(layout, "_WIDE_CHUNK_BYTES", 48)


def test_kill_9_at_random_moments_leaves_exactly_one_committed_state(tmp_path):
    path = tmp_path / "store"
    Store.create(path).close()
    command = [sys.executable, "-c", CHILD, str(path), str(Path(__file__).parent)]
    wait = random.Random(7)
    kept = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(KILLS):
            process.stdin.write("go\n")
            process.stdin.flush()
            child = int(process.stdout.readline().split()[1])
            process.stdout.readline()  # the first commit of this child
            with pytest.raises(BusyError, match=f"process {child}"):
                Store.open(path, writable=True)
            with Store.open(path) as live:  # a reader beside the writer
                assert live.head is not None
                assert live.verify(deep=True) == []
                scripted(live.head.step).assert_equals(live.generation())
            time.sleep(wait.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
            reported = [line for line in iter(process.stdout.readline, "ended\n")]
            reported_step = int(reported[-1].split()[1]) if reported else kept + 1
            with Store.open(path) as store:
                assert store.head is not None
                assert store.head.step >= max(reported_step, kept + 1)
                assert store.verify(deep=True) == []
                scripted(store.head.step).assert_equals(store.generation())
                kept = store.head.step
    with Store.open(path, writable=True):
        assert len(list((path / "generations").iterdir())) == 1


class PowerLoss:
    """Records what was fsynced when, and rebuilds what a power loss at any moment would leave.

    Pessimistic: a file that was not fsynced is empty, and a folder shows the names it had when it was
    last fsynced. Descriptors stay open so that no inode number is used twice.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.stat().st_ino
        self.seen: dict[int, bytes | dict[str, tuple[int, bool]]] = {}
        self.moments: list[tuple[dict, int]] = []
        self.committed = 0
        self._open: list[int] = []

    def fsync(self, descriptor: int) -> None:
        facts = os.fstat(descriptor)
        handle = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        self._open.append(handle)
        if stat.S_ISDIR(facts.st_mode):
            with os.scandir(handle) as entries:
                self.seen[facts.st_ino] = {e.name: (e.inode(), e.is_dir()) for e in entries}
        else:
            self.seen[facts.st_ino] = os.pread(handle, facts.st_size, 0)
        self.moments.append((dict(self.seen), self.committed))

    def rebuild(self, seen: dict, target: Path, inode: int | None = None) -> None:
        target.mkdir()
        for name, (child, is_folder) in seen.get(inode or self.root, {}).items():
            if is_folder:
                self.rebuild(seen, target / name, child)
            else:
                (target / name).write_bytes(seen.get(child, b""))

    def close(self) -> None:
        for handle in self._open:
            os.close(handle)


def test_a_power_loss_after_any_fsync_leaves_exactly_one_committed_state(tmp_path, monkeypatch):
    models = [Model()]
    with Store.create(tmp_path / "store") as store:
        disk = PowerLoss(store.path)
        monkeypatch.setattr(os, "fsync", disk.fsync)
        store._catalogue.replace(None, {})  # seen by the recorder: the empty store
        for step in range(1, 9):
            model = models[-1]
            change = scripted_change(step, model.tables["layer"][1] if step > 1 else ())
            tag = {"tag": "kept"} if step == 3 else {}
            models.append(commit(store, model, change, **tag))
            disk.committed = step
        store.untag("kept")
    monkeypatch.undo()
    monkeypatch.setattr(layout, "_WIDE_CHUNK_BYTES", 48)
    disk.close()
    states = set()
    for number, (seen, committed) in enumerate(disk.moments[2:]):
        rebuilt = tmp_path / f"after-{number}"
        disk.rebuild(seen, rebuilt)
        with Store.open(rebuilt) as store:
            step = 0 if store.head is None else store.head.step
            assert step in (committed, committed + 1)
            assert store.verify(deep=True) == []
            if step:
                models[step].assert_equals(store.generation())
            if "kept" in store.tags():
                assert store.verify("kept", deep=True) == []
                models[3].assert_equals(store.generation("kept"))
        states.add(step)
    assert states == set(range(9))


class Refusal:
    """Lets the n-th call of any patched function fail like a full disk."""

    def __init__(self, monkeypatch, nth: int, code: int) -> None:
        self.left, self.code = nth, code
        for name in ("fsync", "link", "mkdir", "rename", "replace"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))
        monkeypatch.setattr(chunks, "_write_all", self._wrap(chunks._write_all))

    def _wrap(self, function):
        def refusing(*arguments, **options):
            self.left -= 1
            if self.left == 0:
                raise OSError(self.code, os.strerror(self.code))
            return None if function.__name__ == "fsync" else function(*arguments, **options)

        return refusing


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_commit_that_fails_at_any_point_changes_nothing_and_can_be_done_again(tmp_path, monkeypatch, code):
    failures = 0
    with Store.create(tmp_path / "store") as store:
        model = commit(store, Model(), {"layer": TableChange(rows(6, 0)), "idle": TableChange(rows(5, 1))})
        while True:
            changes = {
                "layer": TableChange(rows(3, failures), np.array([failures % 9])),
                f"new{failures}": TableChange(rows(1, 2)),
            }
            before = store.head
            after = model.after(model.step + 1, changes, {"state": b"%d" % (model.step + 1) * 5})
            with monkeypatch.context() as patch:
                refusal = Refusal(patch, failures + 1, code)
                try:
                    commit(store, model, changes, tag=f"tag{failures}")
                except StorageError:
                    failures += 1
                if refusal.left > 0:
                    break
            if store.head != before:  # only the very last fsync came too late
                model = after
            model.assert_equals(store.generation())
            assert store.verify(deep=True) == []
            assert not list(store.path.glob("generations/.draft*"))
        after.assert_equals(store.generation())
    assert failures > 40
    with Store.open(tmp_path / "store", writable=True) as store:
        assert store.verify(deep=True) == []
        after.assert_equals(store.generation())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_branch_that_fails_at_any_point_leaves_the_parent_and_a_free_folder(tmp_path, monkeypatch, code):
    with Store.create(tmp_path / "store") as store:
        model = commit(store, Model(), {"layer": TableChange(rows(6, 0))})
        for nth in range(1, 99):
            with monkeypatch.context() as patch:
                Refusal(patch, nth, code)
                try:
                    branch = store.branch(tmp_path / "branch")
                    break
                except StorageError:
                    assert store.verify(deep=True) == []
        assert nth > 10
        model.assert_equals(branch.generation())
        assert branch.verify(deep=True) == []
        branch.close()


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of one mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full_then_read_only(small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(500_000))
    with Store.create(small_disk / "store") as store:
        model = commit(store, Model(), {"layer": TableChange(rows(6, 0))})
        big = {"layer": TableChange(rows(30_000, 1))}
        with pytest.raises(StorageError, match="the disk is full"):
            commit(store, model, big)
        model.assert_equals(store.generation())
        assert store.verify(deep=True) == []
        filler.unlink()
        model = commit(store, model, {"layer": TableChange(rows(60, 1))})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match="read-only"):
        Store.open(small_disk / "store", writable=True)
    with pytest.raises(LaminaError, match="read-only"):
        Store.create(small_disk / "other")
    with Store.open(small_disk / "store") as store:
        model.assert_equals(store.generation())
