"""Measuring a cell of the biography experiments: a decoder learns about people, then about others.

A cell's settings are `trunk`, a run (`RunConfig` without name and seed) of the one phase "pretrain"; and,
where people are learnt afterwards, `finetune`, the phase that follows in a fork of it, with `evaluation` for
that fork. Cells of one trunk and seed share it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from lamina.continual import Run, parse_config
from lamina.continual.forking import forked_config
from lamina.continual.origin import Origin
from lamina.continual.run_config import END_TAG
from lamina.monitoring import (
    AccuracyCurve,
    Summary,
    accuracy_curve,
    find_plateau,
    loss_curve,
    read_summary,
    read_table,
)
from lamina.stream import no_knowledge_level

from .experiment import Job, Measured
from .network import execute, sizes_of, with_logs

OLD, NEW = "pretrain", "finetune"  # phases, and the tasks that they teach
Rows = list[dict[str, Any]]


def measure_biography(job: Job) -> Measured:
    """Runs a cell's trunk, unless another cell did, and what follows it."""
    config = parse_config({**job.settings["trunk"], "name": "trunk", "seed": job.seed})
    config = with_logs(config, job.shared / "logs")
    trunk = _trunk_folder(job)
    finished = (trunk / "summary.json").exists()
    if not finished and (failed := execute(config, trunk)) is not None:
        return failed
    summary = read_summary(trunk)
    level = no_knowledge_level(config.phases[OLD].stream.with_seed(config.seed), in_context=True)
    figures = {**learnt(read_table(trunk / "metrics.jsonl"), level), **sizes_of(summary)}
    figures["milliseconds"] = _short(1e3 * (summary.step_seconds["p50"] or 0))
    figures["feed_forward_kiloflops"] = feed_forward_kiloflops(summary)
    return figures if "finetune" not in job.settings else _follow(figures, trunk, job)


def feed_forward_kiloflops(summary: Summary) -> float:
    """What predicting one more token costs in the feed-forward parts, with the entries of the end."""
    costs = summary.costs or {}
    return _short(sum(cost["flops"] for name, cost in costs.items() if name.startswith("ffn")) / 1e3)


def learnt(rows: Rows, level: float) -> Measured:
    """What was learnt about the first people, and when.

    Args:
      rows: the trunk's table.
      level: the no-knowledge level of its people, in nats.
    """
    steps, losses = loss_curve(rows, OLD)
    plateau = find_plateau(steps, losses, level)
    found = [row for row in rows if row["kind"] == "evaluation" and row["task"] == OLD]
    return {
        "accuracy": _percent(found[-1]["accuracy"]),
        "attribute_loss": _short(losses[-1]),
        "level": _short(level),
        "plateau_start": plateau.start and _short(plateau.start),
        "plateau_end": plateau.end and _short(plateau.end),
        "plateau_length": plateau.length and _short(plateau.length),
        "attribute_loss_curve": [[step, _short(loss)] for step, loss in zip(steps, losses, strict=True)],
        "attribute_accuracy_curve": [[row["step"], _percent(row["accuracy"])] for row in found],
    }


def kept(rows: Rows) -> Measured:
    """What became of the first people, and what was learnt about the others.

    Args:
      rows: the fork's table, which begins with the trunk's.
    """
    old = accuracy_curve(rows, NEW, OLD)
    assert old is not None, "the old people are evaluated at the end of their phase and in the next"
    begin = max(row["step"] for row in rows if row["kind"] == "evaluation" and row["phase"] == OLD)
    inside = [r for r in rows if r["kind"] == "evaluation" and (r["phase"], r["task"]) == (NEW, NEW)]
    new = AccuracyCurve(tuple(r["step"] - begin for r in inside), tuple(r["accuracy"] for r in inside))
    recovery = old.recovery()
    return {
        "accuracy": _percent(old.accuracies[-1]),
        "old_curve": _points(old),
        "new_curve": _points(new),
        "old_before": _percent(recovery.before),
        "old_lowest": _percent(recovery.lowest),
        "old_recovered": _percent(recovery.recovered),
        **{f"old_at_{step}": _known(old.at(step)) for step in (60, 100, 400)},
        **{f"new_at_{step}": _known(new.at(step)) for step in (60, 100, 400)},
    }


def _trunk_folder(job: Job) -> Path:
    """The same for all cells with this trunk and seed."""
    key = json.dumps([job.settings["trunk"], job.seed], sort_keys=True)
    return job.shared / f"people-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _follow(figures: Measured, trunk: Path, job: Job) -> Measured:
    """Figures with those of the fork in which other people are learnt."""
    folder, origin = job.work / "run", Origin(trunk, END_TAG)
    settings = [f"phases.{NEW}={json.dumps(job.settings['finetune'])}"]
    settings.append(f"evaluation={json.dumps(job.settings['evaluation'])}")
    config = forked_config(origin, folder.name, settings)
    failed = execute(config, folder, begin=lambda: Run.fork(origin, folder, settings))
    if failed is not None:
        return failed
    entries = sizes_of(read_summary(folder))["entries"]
    return {**figures, **kept(read_table(folder / "metrics.jsonl")), "entries_in_the_end": entries}


def _points(curve: AccuracyCurve) -> list[list[float]]:
    return [[step, _percent(value)] for step, value in zip(curve.steps, curve.accuracies, strict=True)]


def _known(share: float | None) -> float | None:
    return None if share is None else _percent(share)


def _percent(share: float) -> float:
    return round(100 * share, 3)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
