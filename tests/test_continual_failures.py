"""Signals, full disks and other ends of a run: the last commit is whole, and a resume goes on exactly."""

import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from lamina.continual import Run, parse_config, read_config
from lamina.continual.loop import Loop
from lamina.continual.run import HaltedError
from lamina.errors import BusyError, StorageError
from lamina.memory import Store
from lamina.monitoring.append_file import AppendFile
from tiny_runs import STREAM, command, contents, refused, saved_progress, write_config, write_log

LEARNER = {"momentum": 0.5, "memory": {"capacity": 60, "eviction": "oldest", "initial_capacity": 32}}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    stream = {**STREAM, "standardise": "running"}
    log = write_log(folder / "log", stream)
    return write_config(folder / "config.yaml", stream=stream, log=str(log), learner=LEARNER)


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing happened to."""

    contents: dict[str, Any]
    calls: dict[str, int]  # how often it called functions of `os`


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    with ExitStack() as stack:
        spies = {
            name: stack.enter_context(patch.object(os, name, wraps=getattr(os, name)))
            for name in ("fsync", "link")
        }
        assert command("run", config, "--run-dir", run, "--quiet").code == 0
    return Undisturbed(contents(run), {name: spy.call_count for name, spy in spies.items()})


@pytest.fixture
def whole(undisturbed: Undisturbed) -> dict[str, Any]:
    """What the run leaves when nothing happens to it."""
    return undisturbed.contents


def at_step(step: int, act: Callable[[], None]) -> Callable[[Loop], None]:
    """A stand-in for `Loop._show` that acts once, after a step."""

    def show(loop: Loop) -> None:
        if loop._run.state.step == step:
            act()

    return show


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_and_ends_the_run_politely(
    number: signal.Signals, config: Path, whole: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, before = tmp_path / "run", signal.getsignal(number)
    with monkeypatch.context() as m:
        m.setattr(Loop, "_show", at_step(5, lambda: os.kill(os.getpid(), number)))
        answer = command("run", config, "--run-dir", run)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "stopped after 40 examples; everything is committed",
        f"go on with: lamina resume {run}",
    ]
    assert signal.getsignal(number) is before
    assert saved_progress(run)["examples"] == 40  # the commit of step 4 is not the last one
    answer = command("resume", run)
    assert "done again" not in answer.err
    assert contents(run) == whole
    assert saved_progress(run)["repeated_steps"] == 0


@pytest.mark.parametrize("last", [6, 7])  # with and without a row after it
def test_a_second_interrupt_does_not_wait(
    last: int, config: Path, whole: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    update = Loop._update

    def interrupted(loop: Loop, batch: object, **options: object) -> None:
        update(loop, batch, **options)
        if loop._run.state.step == last:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as m:
        m.setattr(Loop, "_update", interrupted)
        refused(command("run", config, "--run-dir", run, "--quiet"), "interrupted", "is kept", code=130)
    assert saved_progress(run)["examples"] == 32
    answer = command("resume", run)
    assert f"{last - 4} steps since the last commit are done again" in answer.err
    assert contents(run) == whole
    assert saved_progress(run)["repeated_steps"] == last - 4


def test_a_run_may_be_stopped_from_another_thread_and_go_on(
    config: Path, whole: dict, tmp_path: Path
) -> None:
    with Run.create(parse_config(read_config(config)), tmp_path / "run") as run:
        show, seen = Loop._show, threading.Event()
        thread = threading.Thread(target=lambda: (seen.wait(), run.stop()))
        thread.start()
        Loop._show = lambda loop: seen.set() or time.sleep(0.05)
        try:
            first = run.execute(quiet=True)
        finally:
            Loop._show = show
            thread.join()
        assert 0 < first.progress.examples < 96
        assert not first.finished
        assert run.execute(quiet=True).finished  # the request was for the call that it ended
    assert contents(tmp_path / "run") == whole


def fail_after(count: int, call: Callable, error: int) -> Callable:
    """The call, which fails from its `count`-th time on as the operating system may."""
    calls = iter(range(count))

    def failing(*arguments: object, **named: object) -> object:
        if next(calls, None) is None:
            raise OSError(error, os.strerror(error))
        return call(*arguments, **named)

    return failing


@pytest.mark.parametrize("share", [0.02, 0.15, 0.4, 0.65, 0.9, 0.99])
@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_disk_that_is_full_in_a_commit_loses_nothing(
    call: str,
    share: float,
    config: Path,
    undisturbed: Undisturbed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as m:
        m.setattr(os, call, fail_after(int(share * undisturbed.calls[call]), getattr(os, call), errno.ENOSPC))
        refused(command("run", config, "--run-dir", run, "--quiet"), str(run), "disk is full", code=1)
    if run.exists():
        assert_whole(run)
        assert command("resume", run, "--quiet").code == 0
    else:  # it had not begun
        assert command("run", config, "--run-dir", run, "--quiet").code == 0
    assert contents(run) == undisturbed.contents


@pytest.mark.parametrize("appends", range(1, 9))
def test_a_disk_that_is_full_in_a_step_loses_nothing(
    appends: int, config: Path, whole: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update is done, its prediction or its row is not recorded: that step must not be committed."""
    run, append = tmp_path / "run", AppendFile.append
    calls = iter(range(appends))

    def full(file: AppendFile, content: bytes) -> None:
        if next(calls, None) is None:
            raise StorageError(f"cannot write {file.path}: the disk is full")
        append(file, content)

    with monkeypatch.context() as m:
        m.setattr(AppendFile, "append", full)
        refused(command("run", config, "--run-dir", run, "--quiet"), str(run), "disk is full", code=1)
    assert_whole(run)
    assert command("resume", run, "--quiet").code == 0
    assert contents(run) == whole


def assert_whole(run: Path) -> None:
    with Store.open(run / "memory") as store:
        assert store.verify(deep=True) == []
    progress = saved_progress(run)
    assert progress["examples"] == progress["phase"]["examples"] == progress["offset"]


def test_a_run_halted_within_a_step_only_goes_on_from_its_commit(
    config: Path, whole: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run.create(parse_config(read_config(config)), tmp_path / "run") as run:
        with monkeypatch.context() as m:
            m.setattr(AppendFile, "append", fail_after(6, AppendFile.append, errno.EIO))
            with pytest.raises(OSError, match="Input/output"):
                run.execute(quiet=True)
        for act in (run.execute, run.commit):
            with pytest.raises(HaltedError, match=r"close it, and go on from its last commit"):
                act()
    with Run.resume(tmp_path / "run") as run:
        assert run.execute(quiet=True).finished
    assert contents(tmp_path / "run") == whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_really_full_loses_nothing(
    small_disk: Path, config: Path, whole: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, ballast = small_disk / "run", small_disk / "ballast"

    def fill() -> None:
        with io.FileIO(ballast, "w") as file:
            with pytest.raises(OSError, match="No space left"):
                list(iter(lambda: file.write(bytes(4096)), None))

    with monkeypatch.context() as m:
        m.setattr(Loop, "_show", at_step(6, fill))
        refused(
            command("run", config, "--run-dir", run, "--quiet"),
            str(run),
            "disk is full",
            "free space",
            code=1,
        )
    assert_whole(run)
    refused(command("resume", run, "--quiet"), "disk is full", code=1)
    refused(command("report", run), "disk is full", code=1)
    assert_whole(run)
    ballast.unlink()
    (run / "report.html").unlink(missing_ok=True)
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    assert command("resume", run, "--quiet").code == 0
    assert contents(run) == whole


def test_an_end_between_the_last_commit_and_the_summary_is_made_good(
    config: Path, whole: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert command("run", config, "--run-dir", run, "--steps", 4, "--quiet").code == 0
    assert command("report", run).code == 0
    early = (run / "report.html").read_text()
    for name in ("write_summary", "write_report"):
        with monkeypatch.context() as m:
            m.setattr(f"lamina.continual.loop.{name}", _full)
            refused(command("resume", run, "--quiet"), "full", code=1)
    assert command("resume", run, "--json").json()["summary"]["examples"] == 96
    assert contents(run) == whole
    assert (run / "report.html").read_text() != early


def _full(*_: object, **__: object) -> None:
    raise StorageError("the disk is full")


def test_one_run_folder_has_one_writer(config: Path, whole: dict, tmp_path: Path) -> None:
    with Run.create(parse_config(read_config(config)), tmp_path / "run") as run:
        run.execute(5, quiet=True)
        refused(command("resume", tmp_path / "run"), str(tmp_path / "run"), f"process {os.getpid()}", "wait")
        refused(command("run", config, "--run-dir", tmp_path / "run"), f"process {os.getpid()}")
        with pytest.raises(BusyError):
            Run.resume(tmp_path / "run")
        assert command("inspect", tmp_path / "run", "--json").json()["state"] == "running"
        assert command("report", tmp_path / "run").code == 0
        assert run.execute(quiet=True).finished
    assert contents(tmp_path / "run") == whole


def test_a_process_is_stopped_by_the_terminal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """With the real pipeline: Ctrl-C reaches the whole group, and a second process is refused meanwhile."""
    config = write_config(
        tmp_path / "config.yaml", stream={"limit": 1400, "segment_length": 256}, batch_size=1, learner=LEARNER
    )
    run = tmp_path / "run"
    arguments = [sys.executable, "-m", "lamina", "run", config, "--run-dir", run]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_until(lambda: _size(run / "metrics.jsonl") > 4000)
        refused(command("resume", run), f"process {process.pid}", "wait")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "everything is committed" in out
    assert "Traceback" not in err
    examples = saved_progress(run)["examples"]
    assert 10 <= examples < 1400
    assert examples == _size(run / "predictions.bin") // 20
    wait_until(lambda: not _processes_about(run))
    assert command("resume", run, "--steps", 2, "--json").json()["examples"] == examples + 2
    wait_until(lambda: not _processes_about(run))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _processes_about(path: Path) -> list[str]:
    """The command lines of other processes that name a path."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(path) in line and each.parent.name != str(os.getpid()):
            found.append(line)
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
