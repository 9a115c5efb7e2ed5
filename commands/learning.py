"""Commands that learn: `run`, `resume` and `fork`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .configs import chosen_config
from .programs import keep_programs

if TYPE_CHECKING:
    from ..continual.run import Outcome, Run
    from ..continual.watching import Watching


def run(options: argparse.Namespace) -> int:
    config = chosen_config(options)
    if options.print_config:
        from ..continual.config import config_values, config_yaml

        print(json.dumps(config_values(config)) if options.json else config_yaml(config).rstrip())
        return 0
    keep_programs()
    from ..continual.origin import Origin
    from ..continual.run import Run

    directory = Path(options.run_dir) if options.run_dir else _free_directory(Path("runs"), config.name)
    origin = Origin.parse(options.origin) if options.origin else None
    with Run.create(config, directory, origin=origin, watching=_watching(options)) as run:
        return _execute(run, options)


def resume(options: argparse.Namespace) -> int:
    keep_programs()
    from ..continual.run import Run

    with Run.resume(Path(options.run_dir), watching=_watching(options)) as run:
        return _execute(run, options)


def fork(options: argparse.Namespace) -> int:
    keep_programs()
    from ..continual.origin import Origin
    from ..continual.run import Run

    origin, directory = Origin.parse(options.origin), Path(options.run_dir)
    with Run.fork(origin, directory, options.set, watching=_watching(options)) as run:
        return _execute(run, options)


def _watching(options: argparse.Namespace) -> "Watching":
    from ..continual.watching import Watching

    targets = None if options.metrics_targets is None else Path(options.metrics_targets)
    return Watching(options.metrics_port, targets, options.push_gateway)


def _execute(run: "Run", options: argparse.Namespace) -> int:
    if not options.quiet and not options.json:
        if run.progress.finished:
            print("the run is finished already; nothing is left to do", file=sys.stderr)
        if run.repeating:
            print(f"{run.repeating} steps since the last commit are done again", file=sys.stderr)
        if run.metrics_port is not None:
            print(f"metrics at http://127.0.0.1:{run.metrics_port}/metrics", file=sys.stderr)
        print(f"run folder: {run.directory}", file=sys.stderr)
    try:
        outcome = run.execute(options.steps, quiet=options.quiet)
    finally:
        if run.exporter is not None and options.metrics_linger:
            run.exporter.linger(options.metrics_linger)
    if options.json:
        print(json.dumps(_outcome_values(run, outcome)))
    elif not options.quiet:
        print(_outcome_text(run, outcome))
    return 0


def _outcome_values(run: "Run", outcome: "Outcome") -> dict[str, Any]:
    summary = run.directory / "summary.json"
    values = {
        "run_dir": str(run.directory),
        "finished": outcome.finished,
        "examples": outcome.progress.examples,
        "steps": run.state.step,
        "repeated_steps": outcome.progress.repeated_steps,
    }
    return values | ({"summary": json.loads(summary.read_text())} if outcome.finished else {})


def _outcome_text(run: "Run", outcome: "Outcome") -> str:
    if not outcome.finished:
        return (
            f"stopped after {outcome.progress.examples:,} examples; everything is committed\n"
            f"go on with: lamina resume {run.directory}"
        )
    from ..monitoring import format_summary, read_summary

    return f"{format_summary(read_summary(run.directory))}\nreport: {run.directory / 'report.html'}"


def _free_directory(parent: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3, … that does not exist."""
    directory, number = parent / name, 1
    while directory.exists():
        number += 1
        directory = parent / f"{name}-{number}"
    return directory
