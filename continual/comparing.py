"""Comparing runs: their figures, averaged over those that differ in nothing but their seed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..learners import Task
from ..memory.store import Store
from ..monitoring import RunView
from .beginning import saved_progress
from .checkpoint import load_progress
from .config import config_values, parse_config, read_config
from .new_folder import require_run
from .origin import MEMORY
from .outcome import continual_values
from .run_config import RunConfig

FIGURES = (
    "average_accuracy",
    "anytime_accuracy",
    "prequential_accuracy",
    "bwt_gem",
    "bwt_triangular",
    "fwt_gem",
    "forgetting_max",
    "forgetting_first",
    "entries",
)
"""What is compared, in the order of the table's columns."""

_OF_ONE_RUN = ("name", "seed", "log")  # what runs of one group may differ in


@dataclass(frozen=True)
class ComparedRun:
    """One run as it is compared with others."""

    path: str
    name: str
    seed: int
    metrics: Mapping[str, float | None]  # transfer and forgetting, by name
    prequential_accuracy: float | None
    entries: int  # of all layers

    def figure(self, name: str) -> float | None:
        """One of the figures that are compared, by name."""
        found: float | None = self.metrics[name] if name in self.metrics else getattr(self, name)
        return found


@dataclass(frozen=True)
class Group:
    """Runs of one configuration with different seeds."""

    name: str
    runs: tuple[ComparedRun, ...]
    figures: Mapping[str, tuple[float, float | None] | None]  # mean and standard deviation over the seeds

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "runs": [run.path for run in self.runs],
            "seeds": [run.seed for run in self.runs],
            **{
                name: None if pair is None else {"mean": pair[0], "std": pair[1]}
                for name, pair in self.figures.items()
            },
        }

    def cells(self) -> list[str]:
        """The table's row: the name, then mean ± standard deviation of each figure."""
        return [self.name, *(_cell(name, pair) for name, pair in self.figures.items())]


def compare_runs(directories: Sequence[Path]) -> list[Group]:
    """Reads runs, finished or not, as of their last commits.

    Args:
      directories: the runs' folders.

    Returns:
      The groups in the order of their first runs.

    Raises:
      MissingDataError, FormatError: one is no run, has committed nothing, or is damaged.
    """
    groups: dict[str, list[ComparedRun]] = {}
    for directory in directories:
        config = parse_config(read_config(require_run(directory)))
        groups.setdefault(_settings(config), []).append(_compared(directory, config))
    return [_group(runs) for runs in groups.values()]


def _compared(directory: Path, config: RunConfig) -> ComparedRun:
    with Store.open(directory / MEMORY) as store, store.generation() as generation:
        progress = saved_progress(config, load_progress(generation), None)
        layers = generation.meta["layers"]
    view = RunView(directory)
    rows = view.rows()
    scored = any(row["kind"] == "evaluation" and row["accuracy"] is not None for row in rows)
    task = Task(1, classification=scored)
    found = continual_values(config, progress, task)
    steps = [row for row in rows if row["kind"] == "step"]
    return ComparedRun(
        path=str(directory),
        name=config.name,
        seed=config.seed,
        prequential_accuracy=steps[-1]["prequential_accuracy"] if steps else None,
        entries=sum(layer["entries"] for layer in layers.values()),
        metrics={name: found[name] for name in FIGURES if name in found},
    )


def _group(runs: list[ComparedRun]) -> Group:
    figures = {name: _spread([run.figure(name) for run in runs]) for name in FIGURES}
    name = runs[0].name if len(runs) == 1 else f"{runs[0].name} ({len(runs)} seeds)"
    return Group(name, tuple(runs), figures)


def _cell(name: str, pair: tuple[float, float | None] | None) -> str:
    if pair is None:
        return "–"
    style = ",.0f" if name == "entries" else ".3f"
    mean, deviation = pair
    return f"{mean:{style}}" if deviation is None else f"{mean:{style}} ± {deviation:{style}}"


def _spread(values: Sequence[float | None]) -> tuple[float, float | None] | None:
    """Mean and standard deviation (of a sample); None where a run lacks the figure."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return fmean(known), stdev(known) if len(known) > 1 else None


def _settings(config: RunConfig) -> str:
    """What two runs of one group have in common."""
    values = config_values(config)
    kept = {name: value for name, value in values.items() if name not in _OF_ONE_RUN}
    for phase in kept["phases"].values():
        del phase["log"]
    return json.dumps(kept, sort_keys=True)
