"""Commands that show what there is: names, runs, reports, comparisons, the dashboard."""

import argparse
import contextlib
import json
import threading
from pathlib import Path
from typing import Any

from ..errors import ConfigError, LaminaError
from .programs import keep_programs


def list_all(options: argparse.Namespace) -> int:
    from ..continual.presets import PRESETS
    from ..continual.scenarios import SCENARIOS
    from ..learners.config import LEARNERS
    from ..learners.decoder_config import FEED_FORWARDS
    from ..learners.optimisers import OPTIMISERS
    from ..memory.policy import ADMISSIONS, EVICTIONS
    from ..stream import list_sources

    sections = {
        "presets": {name: preset.line for name, preset in PRESETS.items()},
        "scenarios": SCENARIOS,
        "sources": dict(list_sources()),
        "learners": LEARNERS,
        "feed_forwards": FEED_FORWARDS,
        "optimisers": OPTIMISERS,
        "admission": ADMISSIONS,
        "eviction": EVICTIONS,
    }
    if options.section is not None:
        sections = {options.section: sections[options.section]}
    if options.json:
        print(json.dumps(sections))
        return 0
    width = max(len(name) for section in sections.values() for name in section)
    for title, section in sections.items():
        print(f"{title}:")
        for name, line in section.items():
            print(f"  {name:<{width}}  {line}")
    return 0


def inspect(options: argparse.Namespace) -> int:
    from ..monitoring import format_inspection, inspect_run

    found = inspect_run(Path(options.run_dir), deep=options.deep)
    print(json.dumps(found) if options.json else format_inspection(found))
    return 1 if found["problems"] else 0


def dashboard(options: argparse.Namespace) -> int:
    from ..monitoring import Dashboard

    folder = Path(options.runs_dir)
    with Dashboard(folder, options.port, what_if=what_if_for_page, explain=explain_for_page) as page:
        print(
            json.dumps({"url": page.url}) if options.json else f"dashboard of {folder}: {page.url}",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):  # how one ends it
            threading.Event().wait(options.seconds)
    return 0


def what_if_for_page(run_dir: Path) -> dict[str, Any]:
    from ..continual.what_if import what_if

    return what_if(run_dir)


def explain_for_page(
    run_dir: Path, *, split: str, index: int, layer: str, count: int, phase: str | None
) -> dict[str, Any]:
    keep_programs()
    from ..continual.explained_page import explanation_page
    from ..continual.explaining import explain_example

    found = explain_example(run_dir, split=split, index=index, layer=layer, count=count, phase=phase)
    return explanation_page(found, split, index)


def report(options: argparse.Namespace) -> int:
    from ..monitoring import write_report

    output, run_dir = _output_file(options.output), Path(options.run_dir)
    path = write_report(run_dir, output, what_if=_report_what_if(run_dir))
    print(json.dumps({"report": str(path)}) if options.json else f"report: {path}")
    return 0


def _report_what_if(run_dir: Path) -> dict[str, Any] | None:
    """What thresholds would cost; a damaged run has a report all the same, which tells what is damaged."""
    try:
        return what_if_for_page(run_dir)
    except LaminaError:
        return None


def compare(options: argparse.Namespace) -> int:
    from ..continual.comparing import FIGURES, compare_runs
    from ..monitoring import write_comparison
    from ..monitoring.text import aligned

    output = _output_file(options.output)
    groups = compare_runs([Path(run_dir) for run_dir in options.run_dirs])
    head, body = ("run", *(name.replace("_", " ") for name in FIGURES)), [group.cells() for group in groups]
    if output is not None:
        paths = [Path(run.path) for group in groups for run in group.runs]
        write_comparison(paths, output, {"head": head, "rows": body})
    if options.json:
        print(json.dumps([group.values() for group in groups]))
    else:
        print("\n".join(aligned(head, body)))
        if output is not None:
            print(f"page: {output}")
    return 0


def _output_file(name: str | None) -> Path | None:
    output = Path(name) if name else None
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ConfigError(f"--output {output}: expected a file in a folder that exists")
    return output
