"""Forks: the same run from a commit on, until a setting differs; the parent is never changed."""

from pathlib import Path

import pytest
import yaml
from lamina.continual import Origin, Run, parse_config
from lamina.errors import StorageError
from lamina.memory import Store
from lamina.monitoring.append_file import AppendFile
from tiny_runs import STREAM, TINY, changed, command, contents, fingerprint, refused, write_log

PHASES = {"one": {}, "two": {"replay": {"kind": "reservoir", "examples": 2, "size": 30}}}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two phases, with a commit in the middle of the second that has a name."""
    folder = tmp_path_factory.mktemp("fork")
    log = str(write_log(folder / "log", STREAM))
    values = changed(TINY, {"phases": {name: {**phase, "log": log} for name, phase in PHASES.items()}})
    with Run.create(parse_config(values), folder / "parent") as run:
        run.execute(17, quiet=True)
        run.commit("middle")
        assert run.execute(quiet=True).finished
    return folder / "parent"


@pytest.mark.parametrize("at", ["middle", "one", "17"])
def test_a_fork_without_changes_is_the_same_run(at: str, parent: Path, tmp_path: Path) -> None:
    before = fingerprint(parent)
    assert command("fork", f"{parent}@{at}", tmp_path / "new", "--set", "name=tiny", "--quiet").code == 0
    assert contents(tmp_path / "new") == contents(parent)
    assert fingerprint(parent) == before
    assert command("inspect", tmp_path / "new", "--deep", "--json").json()["problems"] == []


def test_a_fork_shares_bytes_before_it_learns(parent: Path, tmp_path: Path) -> None:
    with Run.fork(Origin(parent, "middle"), tmp_path / "new") as fork:
        assert fork.config.name == "new"
        assert (fork.state.step, fork.progress.offset) == (17, 40)
        ours = {p.stat().st_ino for p in (tmp_path / "new").rglob("c.0*") if p.is_file()}
        theirs = {p.stat().st_ino for p in parent.rglob("c.0*") if p.is_file()}
        assert ours
        assert ours <= theirs


def test_a_fork_with_another_rate_differs_from_there_on(parent: Path, tmp_path: Path) -> None:
    setting = "phases.two.learner.value_rate=0.5"
    assert command("fork", f"{parent}@middle", tmp_path / "new", "--set", setting, "--quiet").code == 0
    ours, theirs = contents(tmp_path / "new"), contents(parent)
    record = 20
    seen = 17 * 8 * record
    assert ours["predictions"][:seen] == theirs["predictions"][:seen]
    assert ours["predictions"][seen + 8 * record :] != theirs["predictions"][seen + 8 * record :]
    recorded = [row for row in theirs["rows"] if row["step"] <= 16]
    assert ours["rows"][: len(recorded)] == recorded
    assert ours["rows"] != theirs["rows"]


def test_a_finished_run_goes_on_with_a_further_phase(parent: Path, tmp_path: Path) -> None:
    refused(command("fork", parent, tmp_path / "new"), "is finished", "further phase")
    log = parent.parent / "log"
    more = ["--set", f"phases.three={{log: {log}}}"]
    found = command("fork", parent, tmp_path / "new", *more, "--json").json()
    assert (found["finished"], found["steps"], found["examples"]) == (True, 36, 288)
    assert found["summary"]["continual"]["phases"] == ["one", "two", "three"]
    old = command("inspect", parent, "--json").json()["summary"]["continual"]["accuracy"]
    assert [row[:2] for row in found["summary"]["continual"]["accuracy"][:2]] == old
    assert found["summary"]["continual"]["accuracy"][1][2] is None  # task three was not known before
    assert found["summary"]["continual"]["fwt_gem"] is None


@pytest.mark.parametrize(
    ("at", "settings", "parts"),
    [
        ("middle", ["phases.two.stream.seed=3"], ("stream.seed", "phase two", "stay 0", "found 3")),
        ("middle", ["phases.one.stream.limit=50"], ("stream.limit", "phase one")),
        ("middle", ["phases={one: {}}"], ("phase 2", "'two'")),
        ("middle", ["phases.two.learner.kind=mlp"], ("phases.two.learner.", "belongs to another kind")),
        ("middle", ["phases.two.learner={kind: mlp}"], ("phase two", "layers")),
        ("middle", ["phases.two.lerner=1"], ("phases.two.lerner",)),
        ("nothing", [], ("middle (step 17)", "'nothing'")),
    ],
)
def test_what_cannot_be_forked_is_refused(
    at: str, settings: list[str], parts: tuple[str, ...], parent: Path, tmp_path: Path
) -> None:
    options = [word for setting in settings for word in ("--set", setting)]
    refused(command("fork", f"{parent}@{at}", tmp_path / "new", *options, "--quiet"), *parts)
    assert not (tmp_path / "new").exists()


def test_a_fork_that_fails_leaves_nothing(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(command("fork", tmp_path / "none", tmp_path / "new"), "expected a run's folder")
    before = fingerprint(parent)
    monkeypatch.setattr(AppendFile, "sync", _full)
    with pytest.raises(StorageError):
        Run.fork(Origin(parent, "middle"), tmp_path / "new")
    monkeypatch.undo()
    assert not (tmp_path / "new").exists()
    assert fingerprint(parent) == before


def _full(file: AppendFile) -> None:
    raise StorageError("the disk is full")


def test_a_run_without_named_phases_is_forked_too(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", STREAM)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(TINY | {"log": str(log)}))
    assert command("run", tmp_path / "config.yaml", "--run-dir", tmp_path / "a", "--quiet").code == 0
    options = ("--run-dir", tmp_path / "b", "--steps", 5, "--quiet")
    assert command("run", tmp_path / "config.yaml", *options).code == 0
    # RUN is still open: whatever is committed can be forked.
    assert command("fork", tmp_path / "b", tmp_path / "c", "--set", "name=tiny", "--quiet").code == 0
    assert contents(tmp_path / "c") == contents(tmp_path / "a")
    with Store.open(tmp_path / "b" / "memory") as store:
        assert store.head.step == 5
