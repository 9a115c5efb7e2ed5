"""The command line of the experiments (see `python -m benchmarks.paper --help`)."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lamina.errors import LaminaError

from .data import chosen_data, images_of
from .experiment import Experiment
from .experiments import EXPERIMENTS
from .render import render
from .results import RESULTS, WORK, Place
from .sweep import Wanted, left, measured, shown, stored, sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0, or 2 for a user's mistake and 1 for a failure, said in one line."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except LaminaError as error:
        print(f"benchmarks.paper: {error}", file=sys.stderr)
        return 2


def _list(options: argparse.Namespace) -> int:
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name:<16} {experiment.title} ({experiment.paper})")
        if options.cells:
            for cell in experiment.cells(experiment.size("small")):
                print(f"    {cell.name:<28} {cell.label}")
    return 0


def _run(options: argparse.Namespace) -> int:
    names = list(EXPERIMENTS) if options.experiment == "all" else [options.experiment]
    seeds = None if options.seeds is None else {int(seed) for seed in options.seeds.split(",")}
    cells = None if options.cells is None else set(options.cells.split(","))
    wanted = Wanted(cells, seeds, options.minutes, options.cheapest, options.dry_run)
    for name in names:
        place, data = _place(EXPERIMENTS[name], options)
        known = {cell.name for cell in place.cells}
        if cells and (unknown := cells - known):
            print(f"{name} has no cell {min(unknown)}; it has {', '.join(sorted(known))}", file=sys.stderr)
            return 2
        if options.dry_run:
            for task in left(place, wanted):
                print(f"{name}/{place.name}/{task.stem}")
        else:
            sweep(place, data, wanted)
    return 0


def _recompute(options: argparse.Namespace) -> int:
    name, _, cell = options.cell.partition("/")
    if name not in EXPERIMENTS:
        print(f"{name}: no such experiment; there are {', '.join(EXPERIMENTS)}", file=sys.stderr)
        return 2
    place, data = _place(EXPERIMENTS[name], options)
    tasks = Wanted({cell}, {options.seed}).tasks(place)
    if not tasks:
        print(f"{options.cell}: no such cell; see python -m benchmarks.paper list --cells", file=sys.stderr)
        return 2
    before = stored(place, tasks[0])
    print(f"stored:     {'nothing' if before is None else shown(place, before)}", flush=True)
    with TemporaryDirectory() as folder:
        print(f"recomputed: {shown(place, measured(replace(place, work=Path(folder)), data, tasks[0]))}")
    return 0


def _render(options: argparse.Namespace) -> int:
    for path in render(EXPERIMENTS, options.results, options.pages or options.results.parent):
        print(path)
    return 0


def _place(experiment: Experiment, options: argparse.Namespace) -> tuple[Place, str]:
    data = chosen_data(options.data, experiment.size(options.size)) if experiment.images else ""
    slug = images_of(data).slug if data else ""
    return Place(experiment, options.size, slug, options.results, options.work), data


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("list", help="the experiments")
    command.add_argument("--cells", action="store_true", help="and their cells")
    command.set_defaults(command=_list)

    command = commands.add_parser("run", help="run what is not yet there of an experiment, or of all")
    command.add_argument("experiment", choices=[*EXPERIMENTS, "all"])
    command.add_argument("--cells", help="only these, by name, separated by commas")
    command.add_argument("--seeds", help="only these, separated by commas")
    command.add_argument("--cheapest", action="store_true", help="only the cheapest cell at its first seed")
    command.add_argument("--minutes", type=float, help="begin nothing more after so many minutes")
    command.add_argument("--dry-run", action="store_true", help="only say what would be run")
    command.set_defaults(command=_run)
    _add_place(command)

    command = commands.add_parser("recompute", help="measure one cell again, beside its stored result")
    command.add_argument("cell", metavar="EXPERIMENT/CELL")
    command.add_argument("--seed", type=int, default=0)
    command.set_defaults(command=_recompute)
    _add_place(command)

    command = commands.add_parser("render", help="draw all pages again from the files of results")
    command.add_argument("--results", type=Path, default=RESULTS, help="the folder of the files")
    command.add_argument("--pages", type=Path, help="where to; by default the folder above the files")
    command.set_defaults(command=_render)
    return parser


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument("--size", choices=("smoke", "small", "full"), default="small")
    command.add_argument("--smoke", dest="size", action="store_const", const="smoke", help="--size smoke")
    command.add_argument(
        "--data", default="auto", help="images: a stream's source, as npz:FILE; auto: CIFAR-10"
    )
    command.add_argument("--results", type=Path, default=RESULTS, help="where files of results go")
    command.add_argument("--work", type=Path, default=WORK, help="where runs go until they are finished")


if __name__ == "__main__":
    sys.exit(main())
