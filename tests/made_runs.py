"""Run folders made of given rows, predictions and memories, without learning anything."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from lamina.memory.store import Store, TableChange
from lamina.monitoring import EvaluationRow, LayerRow, Recorder, StepRow, Summary, write_summary

LAYERS = ("block0", "readout")
COUNTS = [40, 0, 1, 0, 0]
NASTY = 'a </script><img src=x onerror="document.title=1"> & \u2028 “b”'


def step_row(step: int, layers=LAYERS, **changes) -> StepRow:
    held = {
        name: LayerRow(8 + step * 4 + place, 256, 256 * 100, *COUNTS) for place, name in enumerate(layers)
    }
    values = dict.fromkeys(("wait_seconds", "append_seconds", "maintain_seconds", "commit_seconds"), 0.01)
    values |= {"step": step, "examples": 4 * step, "offset": 4 * step, "phase": "online", "layers": held}
    values |= {"prequential_accuracy": 0.5, "window_accuracy": 0.5 + 0.4 * (step % 2), "loss": 1 / step}
    values |= {"skipped_examples": 0, "compilations": 2, "compute_seconds": 0.2, "evaluate_seconds": 0.0}
    values |= {"wall_seconds": 0.5, "examples_per_second": 8.0}
    return StepRow(**(values | changes))


def table_change(rows: int, step: int) -> TableChange:
    rng = np.random.default_rng(rows)
    created = np.sort(rng.integers(0, step + 1, rows)).astype(np.int32)
    return TableChange(
        {
            "keys": rng.normal(size=(rows, 3)).astype(np.float32),
            "values": rng.normal(size=(rows, 2)).astype(np.float32),
            "created": created,
            "key_norms": rng.gamma(3, 2, rows).astype(np.float32),
            "value_norms": rng.gamma(2, 1, rows).astype(np.float32),
        }
    )


def meta(examples: int, layers=LAYERS) -> dict:
    layer = {"capacity": 256, "bytes": 25600, "counters": COUNTS}
    return {"examples": examples, "offset": examples, "layers": dict.fromkeys(layers, layer)}


def make_run(
    folder: Path, *, steps: int = 10, committed: int | None = None, name: str = "demo", config=None, **changes
) -> Path:
    """A run's folder whose table, predictions and memory agree."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "name": name,
        "seed": 3,
        "stream": {"source": "digits"},
        "learner": {"kind": "rbf", "cap": None},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values | (config or {}), sort_keys=False))
    committed = steps if committed is None else committed
    with Recorder(folder, name, "classification") as recorder:
        for step in range(1, steps + 1):
            recorder.predictions([4 * step], [1], [1], [0.5])
            recorder.step(step_row(step, **changes))
            if step % 5 == 0:
                recorder.evaluation(EvaluationRow(step, 4 * step, "online", "test", 0.875, 0.4, 100, 0.2))
        if committed:
            with Store.create(folder / "memory") as store:
                tables = {
                    layer: table_change(8 + committed * 4 + place, committed)
                    for place, layer in enumerate(LAYERS)
                }
                store.commit(step=committed, tables=tables, blobs={}, meta=meta(4 * committed))
    return folder


def finish(folder: Path, steps: int = 10) -> Summary:
    layers = dict(step_row(steps).layers)
    summary = Summary(
        4 * steps,
        steps,
        0.5,
        0.875,
        0.4,
        layers,
        5.0,
        {"p50": 0.5, "p95": 0.5},
        10**8,
        2,
        3,
        {"jax": "1.2.3"},
    )
    write_summary(folder, summary)
    return summary


def embedded(page: Path) -> dict[str, Any]:
    """The data that a report carries."""
    pattern = r'<script type="application/json" id="documents">(.*?)</script>'
    [text] = re.findall(pattern, page.read_text(), re.S)
    found: dict[str, Any] = json.loads(text)
    return found


def report_documents(page: Path) -> list[dict[str, Any]]:
    """What a report shows, a document a run."""
    runs: list[dict[str, Any]] = embedded(page)["runs"]
    return runs


def report_document(page: Path) -> dict[str, Any]:
    """What a report of one run shows."""
    [run] = report_documents(page)
    return run
