"""Shared by the tests of command line and harness: tiny runs, commands called in this process, contents."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from lamina.cli import main
from lamina.memory import Store
from lamina.monitoring import read_table, reproducible
from lamina.stream import StreamConfig, open_source
from lamina.stream.log import create_log

STREAM = {
    "source": "digits",
    "limit": 96,
    "standardise": {"mean": 4.88, "std": 6.02},
    "flatten": True,
    "segment_length": 32,
}
TINY = {
    "name": "tiny",
    "stream": STREAM,
    "learner": {
        "kind": "rbf",
        "blocks": 0,
        "temperature": 5,
        "value_rate": 1,
        "memory": {"initial_capacity": 128},
    },
    "batch_size": 8,
    "record_every": 3,
    "evaluation": {"every_examples": 40, "examples": 64},
    "commit": {"every_steps": 4},
}


@dataclass(frozen=True)
class Answer:
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def command(*arguments: object) -> Answer:
    """Calls a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as end:  # argparse: help and mistakes
            code = 0 if end.code is None else int(end.code)
    return Answer(code, out.getvalue(), err.getvalue())


def refused(answer: Answer, *parts: str, code: int = 2) -> str:
    """Asserts a refusal in one line that holds all parts; returns the line."""
    assert answer.code == code, (answer.code, answer.err)
    assert answer.out == ""
    (line,) = answer.err.splitlines()
    assert line.startswith("lamina")
    assert "Traceback" not in line
    assert "--debug shows" not in line, line  # foreseen, not caught at the last moment
    for part in parts:
        assert part in line, (part, line)
    return line


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with some values changed, in nested mappings too."""
    result = dict(values)
    for name, value in changes.items():
        inner = result.get(name)
        both = isinstance(value, Mapping) and isinstance(inner, Mapping) and "source" not in value
        result[name] = changed(inner, value) if both else value
    return result


def write_config(path: Path, **changes: Any) -> Path:
    """Writes the tiny configuration, changed, as YAML."""
    path.write_text(yaml.safe_dump(changed(TINY, changes)))
    return path


def write_log(path: Path, stream: Mapping[str, Any], seed: int = 0) -> Path:
    """Writes a stream's log without Beam, which takes seconds to import."""
    config = StreamConfig(**stream).with_seed(seed)
    source = open_source(config)
    path.mkdir(parents=True, exist_ok=True)
    log = create_log(path, config, source)
    for segment in range(log.segments):
        log.write_segment(segment, source.read(*log.span(segment)))
    return path


def saved_progress(run: Path) -> dict[str, Any]:
    """What a run's last commit says of it."""
    with Store.open(run / "memory") as store:
        return json.loads(store.generation().blob("progress.json"))["run"]


def contents(run: Path) -> dict[str, Any]:
    """Everything that a run leaves, but for wall-clock times, as bytes and plain values."""
    with Store.open(run / "memory") as store:
        generation = store.generation()
        tables = {}
        for name, table in generation.tables.items():
            alive = table.alive()
            # Rows on disk only have no slot; their order is that of the table.
            slots = table.read("slot")[alive] if "slot" in table.columns else np.arange(alive.sum())
            order = np.argsort(slots)
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


def fingerprint(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each file below a folder: inode, time of the last change, bytes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
