"""The files of results: one per cell and seed, written whole or not at all."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lamina.durable import write_durably

from .experiment import Cell, Experiment, HeldOut, Measured, merged

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "data"
WORK = ROOT / "runs" / "paper"
_PAPERS_DATA = "cifar10"  # where numbers of the paper stand beside cells


@dataclass(frozen=True)
class Place:
    """Where an experiment's results of one size on one data set lie, and where it works."""

    experiment: Experiment
    size: str
    data: str  # slug of the data set; "" for experiments without one
    results: Path = RESULTS
    work: Path = WORK

    @property
    def cells(self) -> list[Cell]:
        """The experiment's, without the paper's numbers where those are of other images."""
        cells = self.experiment.cells(self.experiment.size(self.size))
        known = self.data in ("", _PAPERS_DATA)
        return [cell if known else replace(cell, paper=None) for cell in cells]

    @property
    def name(self) -> str:
        """`small-cifar10`, or the size alone."""
        return f"{self.size}-{self.data}" if self.data else self.size

    @property
    def folder(self) -> Path:
        return self.results / self.experiment.name / self.name

    @property
    def scratch(self) -> Path:
        return self.work / self.experiment.name / self.name


@dataclass(frozen=True)
class Task:
    """One measurement: a cell, maybe with a candidate's changes, at a seed."""

    cell: Cell
    seed: int
    candidate: str | None = None  # a candidate's try on validation; None: the cell's own number, on test

    @property
    def held_out(self) -> HeldOut:
        return "test" if self.candidate is None else "validation"

    @property
    def stem(self) -> str:
        name = self.cell.name if self.candidate is None else f"{self.cell.name}@{self.candidate}"
        return f"{name}.seed{self.seed}"


@dataclass(frozen=True)
class Result:
    """What was measured, and how."""

    experiment: str
    size: str
    cell: str
    candidate: str | None  # the candidate tried on validation; None: a number on test
    chosen: dict[str, Any] | None  # for a cell with candidates: which was chosen, by which numbers
    seed: int
    held_out: str
    data: str  # the data set's name
    settings: dict[str, Any]
    figures: Measured  # accuracy (percent), loss, curves, entries, …; {"failed": why} if learning diverged
    wall_seconds: float
    machine: str
    versions: dict[str, str]


def path_of(place: Place, task: Task) -> Path:
    return place.folder / f"{task.stem}.json"


def save(path: Path, result: Result) -> None:
    """One line per field, so that a change of a number is a change of a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in asdict(result).items()]
    write_durably(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def load(path: Path) -> Result | None:
    """None: there is no such file."""
    return Result(**json.loads(path.read_text())) if path.exists() else None


def finished(place: Place, task: Task) -> Result | None:
    """The result of a task, if it was measured with the settings that are declared now."""
    found = load(path_of(place, task))
    if found is None:
        return None
    declared = settings_of(task, None if task.candidate else winner(place, task.cell))
    return found if found.settings == json.loads(json.dumps(declared)) else None


def settings_of(task: Task, chosen: str | None) -> dict[str, Any]:
    """The cell's settings with the changes of the candidate tried or chosen."""
    candidate = task.candidate or chosen  # a task without either has the cell's own settings
    changes = task.cell.candidates[candidate] if candidate else {}
    return merged(task.cell.settings, changes)


def tries(place: Place, cell: Cell) -> dict[str, Result | None]:
    """The candidates of a cell and what they reached on validation."""
    return {name: finished(place, Task(cell, 0, name)) for name in cell.candidates}


def winner(place: Place, cell: Cell) -> str | None:
    """The candidate that validation chose; None while some are not measured, or if there are none."""
    found = tries(place, cell)
    if not found or None in found.values():
        return None
    metric = place.experiment.metric
    scores = {n: r.figures[metric] for n, r in found.items() if r is not None and metric in r.figures}
    if not scores:
        return next(iter(found))  # all diverged: so will the cell
    best = max if metric == "accuracy" else min
    return str(best(scores, key=lambda name: scores[name]))


def test_tasks(place: Place) -> Iterator[Task]:
    """All tasks on test, seed by seed, cheapest cells first."""
    size = place.experiment.size(place.size)
    cells = sorted(place.cells, key=lambda cell: cell.cost)
    for seed in range(max(cell.seeds or size.seeds for cell in cells)):
        for cell in cells:
            if seed < (cell.seeds or size.seeds):
                yield Task(cell, seed)


def clear_scratch(place: Place, task: Task) -> None:
    shutil.rmtree(place.scratch / task.stem, ignore_errors=True)


def places(experiment: Experiment, results: Path = RESULTS) -> list[Place]:
    """Where results of an experiment lie, full size first; a size without any has one place all the same."""
    found = []
    for size in experiment.sizes:
        folders = sorted((results / experiment.name).glob(f"{size}*"))
        for data in [folder.name.removeprefix(size).removeprefix("-") for folder in folders] or [""]:
            found.append(Place(experiment, size, data, results))
    return found
