"""Measuring a cell whose settings are those of a run: a learner passes over a stream once.

The settings are `lamina run`'s own (`RunConfig`) without name, seed and source, and more of their own:
`project`, the width to which images are projected first; `epochs`, how often the stream passes by, in another
order each time; `augment`, whether its images are cropped and flipped in another way each time (F.1.1).
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from lamina.continual import DivergedError, Run, RunConfig, parse_config, read_config
from lamina.continual.config import config_values
from lamina.continual.run_config import ONLINE, phases_of
from lamina.errors import LaminaError
from lamina.monitoring import Summary, read_summary, read_table
from lamina.stream import build_log

from .data import image_stream
from .experiment import Job, Measured, merged

_POINTS = 50  # of a curve of accuracies before learning
_TASK = "test"
_TRAIN_EXAMPLES = 2000  # whose accuracy is followed
_OWN = ("project", "epochs", "augment")


class StoppedError(LaminaError, RuntimeError):
    """A cell that was asked to stop before its end."""


def measure_images(job: Job) -> Measured:
    """Runs a cell over a data set of images."""
    return _measure_images(job)


def measure_with_training(job: Job) -> Measured:
    """The same, evaluated on the first training images too, by figures whose names begin with `train_`."""
    return _measure_images(job, {"train": {"limit": min(_TRAIN_EXAMPLES, job.size.train)}})


def measure_run(
    job: Job,
    stream: Mapping[str, Any],
    tasks: Mapping[str, Any],
    after: Callable[[Run], Measured] | None = None,
) -> Measured:
    """Runs a cell to its end, going on where it was stopped.

    Args:
      job: the cell.
      stream: settings of its stream.
      tasks: what it is evaluated on, by name; "test" gives the cell's number, others have names of their own.
      after: measures more of the finished run.

    Raises:
      StoppedError: SIGINT or SIGTERM came; what was learnt is committed.
    """
    folder = job.work / "run"
    config = with_logs(run_config(job, stream, tasks), job.shared / "logs")
    more: Measured = {}
    failed = execute(config, folder, None if after is None else lambda run: more.update(after(run)))
    if failed is not None:
        return failed
    rows = read_table(folder / "metrics.jsonl")
    return {**_evaluations(rows), **_before_learning(rows), **sizes_of(read_summary(folder)), **more}


def execute(
    config: RunConfig,
    folder: Path,
    after: Callable[[Run], None] | None = None,
    begin: Callable[[], Run] | None = None,
) -> Measured | None:
    """Runs a configuration to its end in a folder, going on where it was stopped.

    Args:
      config: the configuration; a run of another one gives way.
      folder: the run's folder.
      after: called with the finished run.
      begin: makes the run where there is none; None: it starts from nothing.

    Returns:
      None, or if learning diverged the figures that say so.

    Raises:
      StoppedError: SIGINT or SIGTERM came; what was learnt is committed.
    """
    try:
        with _opened(config, folder, begin or (lambda: Run.create(config, folder))) as run:
            if not run.execute(quiet=True).finished:
                raise StoppedError(f"{folder} was stopped and has committed; run the same command to go on")
            if after is not None:
                after(run)
    except DivergedError as error:
        return {"failed": str(error).partition(":")[2].strip() or str(error)}
    finally:
        jax.clear_caches()
    return None


def run_config(job: Job, stream: Mapping[str, Any], tasks: Mapping[str, Any]) -> RunConfig:
    """The configuration of a cell's run."""
    values = {name: value for name, value in job.settings.items() if name not in _OWN}
    values = merged({"stream": stream, "evaluation": {"split": None, "tasks": tasks}}, values)
    epochs, augment = job.settings.get("epochs", 1), job.settings.get("augment", False)
    if epochs > 1 or augment:
        values["phases"] = {
            f"epoch{number:04d}": {"stream": _pass(job, number, augment=augment)}
            for number in range(1, epochs + 1)
        }
    return parse_config({**values, "name": "cell", "seed": job.seed})


def _pass(job: Job, number: int, *, augment: bool) -> dict[str, Any]:
    """What is another one in each pass of a cell's stream."""
    seed = job.seed * 100_000 + number
    if not augment:
        return {"seed": seed}
    project = job.settings.get("project")
    if not project:
        return {"seed": seed, "augment": "cifar"}
    images = image_stream(job.data, job.size, job.held_out, job.shared, project, augmented=seed)
    return {**images, "seed": seed}


def _measure_images(job: Job, more: Mapping[str, Mapping[str, Any]] | None = None) -> Measured:
    """`more`: tasks beside that on held-out images, as changes of the stream."""
    stream = image_stream(job.data, job.size, job.held_out, job.shared, job.settings.get("project"))
    tasks = {_TASK: {"split": "test"}, **(more or {})}
    return measure_run(job, stream, {n: {**stream, "shuffle": False, **task} for n, task in tasks.items()})


def with_logs(config: RunConfig, folder: Path) -> RunConfig:
    """The configuration with streams that are built once for all cells that have them alike."""
    logs = {}
    for phase in phases_of(config):
        key = hashlib.sha256(json.dumps(phase.stream.content(), sort_keys=True).encode()).hexdigest()
        logs[phase.name] = str(folder / key[:16])
        build_log(phase.stream, logs[phase.name])
    if not config.phases:
        return replace(config, log=logs[ONLINE])
    phases = {name: replace(phase, log=logs[name]) for name, phase in config.phases.items()}
    return replace(config, phases=phases)


def _opened(config: RunConfig, folder: Path, begin: Callable[[], Run]) -> Run:
    """The run in that folder, if it is of this configuration; else a new one."""
    file = folder / "config.yaml"
    if file.exists():
        try:
            same = config_values(parse_config(read_config(file))) == config_values(config)
        except LaminaError:
            same = False
        if same:
            return Run.resume(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return begin()


def _evaluations(rows: list[dict[str, Any]]) -> Measured:
    """Last numbers and curves of every task."""
    figures: Measured = {}
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    for task in sorted({row["task"] for row in evaluations}):
        found = [row for row in evaluations if row["task"] == task]
        named = "" if task == _TASK else f"{task}_"
        figures[f"{named}loss"] = _short(found[-1]["loss"])
        figures[f"{named}loss_curve"] = [[row["examples"], _short(row["loss"])] for row in found]
        if found[-1]["accuracy"] is not None:
            figures[f"{named}accuracy"] = _percent(found[-1]["accuracy"])
            figures[f"{named}accuracy_curve"] = [[r["examples"], _percent(r["accuracy"])] for r in found]
    return figures


def _before_learning(rows: list[dict[str, Any]]) -> Measured:
    """Curves of accuracy and loss on the stream's own examples right before they are learnt."""
    steps = [row for row in rows if row["kind"] == "step" and row["loss"] is not None]
    parts = [
        part for part in np.array_split(np.arange(len(steps)), min(_POINTS, len(steps) or 1)) if len(part)
    ]
    curves: Measured = {}
    for name, column, convert in (("accuracy", "window_accuracy", _percent), ("loss", "loss", _short)):
        if steps and steps[0][column] is not None:
            curves[f"before_learning_{name}_curve"] = [
                [steps[part[-1]]["examples"], convert(float(np.mean([steps[i][column] for i in part])))]
                for part in parts
            ]
    return curves


def sizes_of(summary: Summary) -> Measured:
    """Examples, steps, entries, bytes and time of a finished run."""
    return {
        "examples": summary.examples,
        "steps": summary.steps,
        "entries": sum(int(layer.entries) for layer in summary.layers.values()),
        "entries_by_layer": {name: int(layer.entries) for name, layer in summary.layers.items()},
        "bytes": sum(layer.bytes for layer in summary.layers.values()),
        "seconds": round(summary.wall_seconds, 1),
        "step_milliseconds": {
            name: round(value * 1e3, 2) for name, value in summary.step_seconds.items() if value
        },
    }


def _percent(share: float) -> float:
    return round(100 * share, 3)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
