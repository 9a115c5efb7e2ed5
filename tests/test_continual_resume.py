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
FEWER = {"decoder": 4, "on disk": 5}  # where compiling takes long: every process does it anew

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
    "on disk": {
        "kind": "rbf",
        "blocks": 1,
        "temperature": 5,
        "value_rate": 1,
        "decay": 0.01,
        "memory": {
            "initial_capacity": 64,
            "budget_bytes": 200_000,
            "capacity": 700,
            "eviction": "oldest",
            "prune_epsilon": 0.01,
            "prune_every": 5,
        },
    },
    "mlp": {"kind": "mlp", "blocks": 1, "width": 16, "optimiser": "adam"},
    "decoder": {
        "kind": "decoder",
        "width": 8,
        "heads": 2,
        "ffn": ["cos_bochner", "rbf"],
        "cos_bochner": {"features": 8},
        "rbf": {
            "decay": 0.01,
            "tokens": {"admission": "high_loss", "loss_threshold": 3.0},
            "memory": {
                "initial_capacity": 700,
                "capacity": 700,
                "eviction": "oldest",
                "admission": "novelty",
                "novelty_threshold": 0.5,
            },
        },
        "optimiser": {
            "kind": "adamw",
            "learning_rate": {"kind": "cosine", "first": 0.01, "steps": 100, "warmup": 5},
        },
    },
}


PHASES: dict[str, tuple[int, dict[str, object]]] = {  # examples, and what is replayed
    "first": (320, {"kind": "reservoir", "examples": 3, "size": 50}),
    "second": (120, {"kind": "balanced", "examples": 3, "size": 40, "weight": 0.5}),
    "third": (160, {"kind": "phase", "phase": "second", "examples": 3, "share": 0.1}),
}
STREAMS: dict[str, dict[str, object]] = {
    "digits": {
        "source": "digits",
        "standardise": "running",
        "flatten": True,
        "segment_length": 64,
    },
    "biography": {
        "source": "biography",
        "segment_length": 64,
        "biography": {
            "people": 8,
            "length": 64,
            "templates_per_attribute": 3,
            "held_out_templates": 1,
            "names": [16, 16, 16],
        },
    },
}


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, object]]]:
    """Three phases by data, each with replay of another kind."""
    found = {}
    for data, stream in STREAMS.items():
        found[data] = {}
        for name, (examples, replay) in PHASES.items():
            config = stream | {"limit": examples, "seed": len(found[data])}
            log = tmp_path_factory.mktemp(data) / name
            build_log(StreamConfig(**config), log)
            found[data][name] = {"stream": config, "log": str(log), "replay": replay}
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("killable_run.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("learner", LEARNERS)
def test_killed_many_times_equals_uninterrupted(
    learner: str,
    phases: dict[str, dict[str, dict[str, object]]],
    server: subprocess.Popen[str],
    tmp_path: Path,
) -> None:
    """In its first phase and from its end on; replay draws, evaluations and the accuracy matrix included."""
    data = "biography" if learner == "decoder" else "digits"
    values = {
        "name": learner,
        "stream": STREAMS[data],
        "learner": LEARNERS[learner],
        "phases": phases[data],
        "batch_size": BATCH,
        "record_every": 3,
        "evaluation": {"every_examples": 50, "examples": 64, "share": 0.5},
        "commit": {"every_steps": INTERVAL},
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    kills, draw = FEWER.get(learner, KILLS), random.Random(learner)

    _ask(server, ["run", str(config), "--run-dir", str(whole), "--quiet"])
    _ask(server, ["run", str(config), "--run-dir", str(killed), "--quiet", "--steps", "3"])
    for _ in range(kills // 2):
        # A row has some 500 bytes and more. Most moments fall into a commit, which takes longest.
        growth = draw.randrange(600)
        kill = {"file": str(killed / "metrics.jsonl"), "growth": growth, "then": draw.uniform(0, 0.05)}
        assert _ask(server, ["resume", str(killed), "--quiet"], kill) == -9
    progress = saved_progress(killed)
    left = (PHASES["first"][0] - progress["examples"]) // BATCH - 2
    if progress["number"] == 0 and left > 0:
        _ask(server, ["resume", str(killed), "--quiet", "--steps", str(left)])
    for _ in range(kills - kills // 2):
        # Where kills are few, two commits after each start: predictions are written with them.
        few = learner in FEWER
        file, growth = ("predictions.bin", 20 * BATCH * 9) if few else ("metrics.jsonl", 500)
        kill = {"file": str(killed / file), "growth": growth, "then": draw.uniform(0, 0.1)}
        assert _ask(server, ["resume", str(killed), "--quiet"], kill) == -9
    assert saved_progress(killed)["number"] >= 1
    _ask(server, ["resume", str(killed), "--quiet"])

    assert saved_progress(killed)["repeated_steps"] <= kills * INTERVAL
    assert contents(killed) == contents(whole)


def _ask(server: subprocess.Popen[str], arguments: list[str], kill: dict | None = None) -> int:
    server.stdin.write(json.dumps({"arguments": arguments, "kill": kill}) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    if kill is None:
        assert answer["status"] == 0, answer["stderr"]
    return answer["status"]
