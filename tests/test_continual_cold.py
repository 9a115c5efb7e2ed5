"""Runs with memories over their byte budget: resumed bit for bit, shown, explained, refused when damaged."""

from pathlib import Path
from typing import Any

import pytest
import yaml
import zarr
from lamina.continual.config import parse_config
from lamina.continual.run import Run
from lamina.monitoring import read_table
from tiny_runs import STREAM, TINY, changed, command, contents, refused, write_log

ROW = 4 * (64 + 10 + 5)  # bytes of a row of the readout: digits, ten classes, five numbers
BUDGET = 64 * ROW  # four entries a chunk, forty in memory; the stream has 96
MEMORY = {"initial_capacity": 16, "budget_bytes": BUDGET}
FADING = {"momentum": 0.5, "decay": 0.01}

Values = dict[str, Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_log(tmp_path_factory.mktemp("stream") / "log", STREAM))


def config(log: str, memory: Values, **learner: Any) -> Values:
    return changed(TINY, {"log": log, "learner": {**TINY["learner"], **learner, "memory": memory}})


def whole_run(values: Values, folder: Path) -> Path:
    with Run.create(parse_config(values), folder) as run:
        assert run.execute(quiet=True).finished
    return folder


@pytest.fixture(scope="module")
def whole(log: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_run(config(log, MEMORY, **FADING), tmp_path_factory.mktemp("cold") / "whole")


@pytest.mark.parametrize(
    ("memory", "learner"),
    [
        ({}, FADING),
        ({"prune_epsilon": 0.02, "prune_every": 3}, {"decay": 0.1}),
        ({"capacity": 60, "eviction": "oldest"}, {}),
    ],
    ids=["fading", "pruned", "window"],
)
def test_a_resumed_run_ends_like_an_uninterrupted_one(
    memory: Values, learner: Values, log: str, tmp_path: Path
) -> None:
    values = config(log, MEMORY | memory, **learner)
    whole, broken = whole_run(values, tmp_path / "whole"), tmp_path / "broken"
    with Run.create(parse_config(values), broken) as run:
        run.execute(7, quiet=True)
    for steps in (2, 1, None):
        with Run.resume(broken) as run:
            run.execute(steps, quiet=True)
    assert contents(broken) == contents(whole)


def test_the_disk_changes_no_prediction(whole: Path, log: str, tmp_path: Path) -> None:
    plain = whole_run(config(log, {}, **FADING), tmp_path / "plain")
    ours, theirs = (read_table(path / "metrics.jsonl") for path in (whole, plain))
    assert [row["loss"] for row in ours] == pytest.approx([row["loss"] for row in theirs], rel=1e-5)
    explained = [
        command("explain", path, "--split", "test", "--index", 3, "--count", 90, "--json").json()
        for path in (whole, plain)
    ]
    assert explained[0]["predicted"] == explained[1]["predicted"]
    shares = [
        {each["origin"]: (each["share"], each["created"]) for each in found["contributions"]}
        for found in explained
    ]
    assert len(shares[0]) == 90
    both = shares[0].keys() & shares[1].keys()
    assert len(both) >= 88  # the smallest of the ninety may change places
    for origin in both:
        assert shares[0][origin] == pytest.approx(shares[1][origin], rel=1e-3, abs=1e-6)


def test_both_parts_are_shown_and_plain_zarr_opens_them(whole: Path) -> None:
    found = command("inspect", whole, "--deep", "--json").json()
    layer = found["layers"]["readout"]
    assert found["problems"] == []
    assert (layer["entries"], layer["cold_entries"]) == (96, 56)
    assert layer["capacity"] == 40 + 56
    assert layer["bytes"] == 40 * ROW
    assert layer["cold_bytes"] == 56 * (ROW - 3)  # `changed` is not kept, and `alive` is a byte
    assert sum(layer["ages"]["counts"]) == 96
    row = [row for row in read_table(whole / "metrics.jsonl") if row["kind"] == "step"][-1]
    for name in ("entries", "cold_entries", "capacity", "bytes", "cold_bytes"):
        assert row["layers"]["readout"][name] == layer[name]
    (generation,) = (whole / "memory" / "generations").iterdir()
    group = zarr.open_group(generation / "tables" / "readout.cold", mode="r")
    assert group["keys"].shape == (56, 64)
    assert group["origin"][:].tolist() == list(range(56))  # the oldest
    assert group["alive"][:].all()


def test_a_damaged_chunk_ends_a_resume_in_one_line(log: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(parse_config(config(log, MEMORY)), folder) as run:
        run.execute(9, quiet=True)
    (chunk,) = folder.rglob("tables/readout.cold/values/c.2.0")
    content = bytearray(chunk.read_bytes())
    content[9] ^= 1
    chunk.write_bytes(content)
    refused(command("resume", folder, "--quiet"), "values/c.2.0 is damaged", "restore", code=1)
    assert "values/c.2.0 fails its checksum" in command("inspect", folder, "--deep").out


@pytest.mark.parametrize(
    ("memory", "parts"),
    [
        ({"budget_bytes": 15 * ROW}, ("memory.budget_bytes", "room for 16 entries", "raise it")),
        ({"capacity": 80, "eviction": "smallest"}, ("memory.eviction", "none or oldest", "'smallest'")),
    ],
)
def test_what_makes_no_sense_is_refused_at_the_start(
    memory: Values, parts: tuple[str, ...], log: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config(log, MEMORY | memory)))
    refused(command("run", file, "--run-dir", tmp_path / "run"), *parts)
    assert not (tmp_path / "run").exists()


def test_a_cap_within_the_budget_needs_no_disk_and_allows_any_policy(log: str, tmp_path: Path) -> None:
    folder = whole_run(config(log, MEMORY | {"capacity": 40, "eviction": "smallest"}), tmp_path / "run")
    layer = command("inspect", folder, "--json").json()["layers"]["readout"]
    assert (layer["entries"], layer["cold_entries"]) == (40, 0)


def test_a_new_run_starts_from_a_memory_that_is_partly_on_disk(whole: Path, log: str, tmp_path: Path) -> None:
    file, started = tmp_path / "config.yaml", tmp_path / "started"
    file.write_text(yaml.safe_dump(config(log, MEMORY, **FADING)))
    before = contents(whole)
    assert command("run", file, "--from", whole, "--run-dir", started, "--quiet").code == 0
    found = command("inspect", started, "--deep", "--json").json()
    assert found["problems"] == []
    assert found["layers"]["readout"]["entries"] == 2 * 96
    assert contents(whole) == before
    for budget, part in ((None, "keeps 56 of its entries on disk"), (33 * ROW, "raise it")):
        file.write_text(yaml.safe_dump(config(log, MEMORY | {"budget_bytes": budget}, **FADING)))
        refused(command("run", file, "--from", whole, "--run-dir", tmp_path / "no"), part, "budget_bytes")
