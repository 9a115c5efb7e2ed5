"""Running what is not yet there: candidates on validation first, then the cells on test, seed by seed."""

import os
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import jax
from lamina.commands.programs import keep_programs
from lamina.errors import BusyError, MissingDataError
from lamina.monitoring import installed_versions

from .data import images_of
from .experiment import Job
from .results import (
    Place,
    Result,
    Task,
    clear_scratch,
    finished,
    load,
    path_of,
    save,
    settings_of,
    test_tasks,
    tries,
    winner,
)


@dataclass(frozen=True)
class Wanted:
    """What of an experiment to run."""

    cells: Collection[str] | None = None  # None: all
    seeds: Collection[int] | None = None  # None: as the size says
    minutes: float | None = None  # begin no further task after so long; None: no limit
    cheapest: bool = False  # the cheapest cell alone, its first seed
    listing: bool = False  # name also what waits for other tasks' results

    def tasks(self, place: Place) -> list[Task]:
        """The tasks on test, in the order they are run."""
        found = [
            task
            for task in test_tasks(place)
            if (self.cells is None or task.cell.name in self.cells)
            and (self.seeds is None or task.seed in self.seeds)
        ]
        return found[:1] if self.cheapest else found


def left(place: Place, wanted: Wanted) -> Iterator[Task]:
    """The tasks that have no result yet, each asked for when the one before is done."""
    for task in wanted.tasks(place):
        for name, result in tries(place, task.cell).items():
            if result is None:
                yield Task(task.cell, 0, name)
        ready = not task.cell.candidates or winner(place, task.cell) is not None or wanted.listing
        if finished(place, task) is None and ready:
            yield task


def sweep(place: Place, data: str, wanted: Wanted) -> int:
    """Runs what is left; how many tasks were done."""
    begin, done = time.monotonic(), 0
    for task in left(place, wanted):
        if wanted.minutes is not None and time.monotonic() - begin > 60 * wanted.minutes:
            print(f"{place.experiment.name}: {wanted.minutes:g} minutes are over; run again to go on")
            return done
        try:
            result = measured(place, data, task)
        except BusyError as busy:
            print(f"{place.experiment.name}/{place.name}/{task.stem}: passed over: {busy}", file=sys.stderr)
            continue
        save(path_of(place, task), result)
        clear_scratch(place, task)
        print(f"{place.experiment.name}/{place.name}/{task.stem}: {shown(place, result)}", flush=True)
        done += 1
    return done


def measured(place: Place, data: str, task: Task) -> Result:
    """Measures one task, going on where an interrupted try stopped.

    Args:
      place: where it belongs.
      data: the data set's spec.
      task: the task.

    Raises:
      MissingDataError: the cell's candidates have not all been tried on validation.
    """
    keep_programs()
    chosen = None if task.candidate else winner(place, task.cell)
    if task.cell.candidates and not task.candidate and chosen is None:
        raise MissingDataError(
            f"{task.cell.name}: expected numbers of its candidates on validation; run the cell first"
        )
    settings = settings_of(task, chosen)
    size = place.experiment.size(place.size)
    if task.candidate:
        size = size.of_candidates
    begin = time.perf_counter()
    job = Job(
        size, settings, task.seed, task.held_out, place.scratch / task.stem, data, place.work / "shared"
    )
    job.work.mkdir(parents=True, exist_ok=True)
    figures = place.experiment.measure(job)
    scores = {name: r.figures for name, r in tries(place, task.cell).items() if r is not None}
    return Result(
        experiment=place.experiment.name,
        size=place.size,
        cell=task.cell.name,
        candidate=task.candidate,
        chosen=None
        if chosen is None
        else {
            "candidate": chosen,
            "validation": {n: f.get(place.experiment.metric) for n, f in scores.items()},
        },
        seed=task.seed,
        held_out=task.held_out,
        data=images_of(data).label if place.experiment.images else place.experiment.name,
        settings=settings,
        figures=figures,
        wall_seconds=round(time.perf_counter() - begin, 1),
        machine=f"{os.cpu_count()} cores" if jax.default_backend() == "cpu" else str(jax.devices()[0]),
        versions=installed_versions(),
    )


def stored(place: Place, task: Task) -> Result | None:
    """The result on file, whatever settings it was measured with."""
    return load(path_of(place, task))


def shown(place: Place, result: Result) -> str:
    """A result in a few words."""
    figures = result.figures
    if "failed" in figures:
        return f"failed: {figures['failed']}"
    unit = " %" if place.experiment.metric == "accuracy" else ""
    entries = f", {figures['entries']:,} entries" if figures.get("entries") else ""
    number = f"{figures[place.experiment.metric]:.4g}{unit}"
    return f"{number} on {result.held_out}{entries}, {result.wall_seconds:.0f} s"
