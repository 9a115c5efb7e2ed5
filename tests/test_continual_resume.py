"""An interrupted and resumed run ends like an uninterrupted one, bit for bit."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lamina.stream import StreamConfig, build_log
from tiny_runs import contents, saved_progress

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

    assert saved_progress(killed)["repeated_steps"] <= KILLS * INTERVAL
    assert contents(killed) == contents(whole)


def _ask(server: subprocess.Popen[str], arguments: list[str], kill: dict | None = None) -> int:
    server.stdin.write(json.dumps({"arguments": arguments, "kill": kill}) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    if kill is None:
        assert answer["status"] == 0, answer["stderr"]
    return answer["status"]
