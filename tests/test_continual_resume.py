"""An interrupted and resumed run ends like an uninterrupted one, bit for bit."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from lamina.memory import Store
from lamina.monitoring import read_table, reproducible
from lamina.stream import StreamConfig, build_log

KILLS, INTERVAL, BATCH = 10, 4, 8

LEARNERS = {
    "softmax": {
        "kind": "softmax",
        "blocks": 1,
        "temperature": 2,
        "value_rate": 0.3,
        "weight_rate": 0.03,
        "momentum": 0.5,
        "decay": 0.01,
        "memory": {
            "initial_capacity": 64,
            "capacity": 160,
            "eviction": "smallest",
            "admission": "novelty",
            "novelty_threshold": 2.0,
            "prune_epsilon": 0.01,
            "prune_every": 5,
        },
    },
    "mlp": {"kind": "mlp", "blocks": 1, "width": 16, "optimiser": "adam"},
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    log = tmp_path_factory.mktemp("stream") / "log"
    stream = {
        "source": "digits",
        "limit": 800,
        "standardise": "running",
        "flatten": True,
        "segment_length": 64,
    }
    build_log(StreamConfig(**stream).with_seed(0), log)
    return {"stream": stream, "log": str(log)}


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("killable_run.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("learner", LEARNERS)
def test_killed_ten_times_equals_uninterrupted(
    learner: str, stream: dict[str, object], server: subprocess.Popen[str], tmp_path: Path
) -> None:
    values = {
        **stream,
        "name": learner,
        "learner": LEARNERS[learner],
        "batch_size": BATCH,
        "record_every": 3,
        "evaluation": {"every_examples": 100, "examples": 64},
        "commit": {"every_steps": INTERVAL},
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    _ask(server, ["run", str(config), "--run-dir", str(whole), "--quiet"])
    _ask(server, ["run", str(config), "--run-dir", str(killed), "--quiet", "--steps", "3"])
    draw = random.Random(learner)
    for _ in range(KILLS):
        # A prediction's record has 20 bytes. Most moments fall into a commit, which takes longest.
        growth = 20 * BATCH * draw.randrange(8)
        kill = {"file": str(killed / "predictions.bin"), "growth": growth, "then": draw.uniform(0, 0.05)}
        assert _ask(server, ["resume", str(killed), "--quiet"], kill) == -9
    _ask(server, ["resume", str(killed), "--quiet"])

    assert _progress(killed)["repeated_steps"] <= KILLS * INTERVAL
    assert _comparable(killed) == _comparable(whole)


def _ask(server: subprocess.Popen[str], arguments: list[str], kill: dict | None = None) -> int:
    server.stdin.write(json.dumps({"arguments": arguments, "kill": kill}) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    if kill is None:
        assert answer["status"] == 0, answer["stderr"]
    return answer["status"]


def _progress(run: Path) -> dict[str, object]:
    with Store.open(run / "memory") as store:
        return json.loads(store.generation().blob("progress.json"))["run"]


def _comparable(run: Path) -> dict[str, object]:
    """Everything that a run leaves, but for wall-clock times, as bytes and plain values."""
    with Store.open(run / "memory") as store:
        generation = store.generation()
        tables = {}
        for name, table in generation.tables.items():
            alive = table.alive()
            order = np.argsort(table.read("slot")[alive])
            tables[name] = {c: table.read(c)[alive][order].tobytes() for c in table.columns}
        progress = json.loads(generation.blob("progress.json"))
        progress["run"] = {
            k: v for k, v in progress["run"].items() if k not in ("wall_seconds", "repeated_steps")
        }
        del progress["positions"]["table_bytes"]  # times have more or fewer digits
        return {
            "rows": [reproducible(row) for row in read_table(run / "metrics.jsonl")],
            "predictions": (run / "predictions.bin").read_bytes(),
            "tables": tables,
            "layers": generation.meta["layers"],
            "learner": generation.blob("learner.npz"),
            "progress": progress,
        }
