"""What the commands of the command line do; `cli` says how they are called.

Each takes the parsed options and returns the exit code. Rooms are imported by the commands that need them, so
that help and mistakes answer at once.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ConfigError, LaminaError

if TYPE_CHECKING:
    from .continual.config import RunConfig
    from .continual.explaining import Explanation
    from .continual.run import Outcome, Run
    from .continual.watching import Watching


def run(options: argparse.Namespace) -> int:
    config = _config(options)
    if options.print_config:
        from .continual.config import config_values, config_yaml

        print(json.dumps(config_values(config)) if options.json else config_yaml(config).rstrip())
        return 0
    _prepare_jax()
    from .continual.origin import Origin
    from .continual.run import Run

    directory = Path(options.run_dir) if options.run_dir else _free_directory(Path("runs"), config.name)
    origin = Origin.parse(options.origin) if options.origin else None
    with Run.create(config, directory, origin=origin, watching=_watching(options)) as run:
        return _execute(run, options)


def resume(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.run import Run

    with Run.resume(Path(options.run_dir), watching=_watching(options)) as run:
        return _execute(run, options)


def fork(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.origin import Origin
    from .continual.run import Run

    origin, directory = Origin.parse(options.origin), Path(options.run_dir)
    with Run.fork(origin, directory, options.set, watching=_watching(options)) as run:
        return _execute(run, options)


def _watching(options: argparse.Namespace) -> "Watching":
    from .continual.watching import Watching

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
    from .monitoring import format_summary, read_summary

    return f"{format_summary(read_summary(run.directory))}\nreport: {run.directory / 'report.html'}"


def list_all(options: argparse.Namespace) -> int:
    from .continual.presets import PRESETS
    from .continual.scenarios import SCENARIOS
    from .learners.config import LEARNERS
    from .learners.decoder_config import FEED_FORWARDS
    from .learners.optimisers import OPTIMISERS
    from .memory.policy import ADMISSIONS, EVICTIONS
    from .stream import list_sources

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
    from .monitoring import format_inspection, inspect_run

    found = inspect_run(Path(options.run_dir), deep=options.deep)
    print(json.dumps(found) if options.json else format_inspection(found))
    return 1 if found["problems"] else 0


def explain(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.explaining import explain_example

    found = explain_example(
        Path(options.run_dir),
        split=options.split,
        index=options.index,
        layer=options.layer,
        count=options.count,
        phase=options.phase,
        token=options.token,
    )
    if options.picture:
        from .monitoring.pictures import draw_examples

        draw_examples(found.pictures(f"{options.split} {options.index}"), Path(options.picture))
    print(json.dumps(found.values()) if options.json else _explanation_text(found))
    return 0


def _explanation_text(found: "Explanation") -> str:
    lines = [
        f"label {found.name(found.label)}, predicted {found.name(found.predicted)}; from {found.layer}:",
        f"{'share':>8}  {'amount':>9}  {'similarity':>10}  {'step':>7}  {'phase, offset':>16}  label",
    ]
    for each, near in zip(found.contributions, found.neighbours, strict=True):
        place, label = ("", "(initial function)") if near is None else (near.place, found.behind(near))
        lines.append(
            f"{each.share:>+8.2%}  {each.amount:>+9.4f}  {each.similarity:>10.4g}  {each.created:>7,}  "
            f"{place:>16}  {label}"
        )
    return "\n".join(lines)


def generate(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.texts import go_on

    if not options.temperature >= 0:
        raise ConfigError(f"--temperature: expected a number of at least 0; found {options.temperature}")
    found = go_on(
        Path(options.run_dir),
        options.prompt,
        words=options.words,
        temperature=options.temperature,
        seed=options.seed,
    )
    print(json.dumps(found.values()) if options.json else f"{found.prompt} {found.text}")
    return 0


def forget(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.forgetting import forget_examples

    found = forget_examples(Path(options.run_dir), options.offsets, examples=options.examples)
    if options.json:
        print(json.dumps(found.values()))
        return 0
    removed = ", ".join(f"{count} of {layer}" for layer, count in found.entries.items())
    print(f"{sum(found.entries.values())} entries are gone: {removed}")
    if found.largest_change is not None:
        print(
            f"on {found.examples:,} held-out examples outputs changed by {found.mean_change:.3g} on average, "
            f"at most by {found.largest_change:.3g}"
        )
    if found.predictions_changed is not None:
        print(f"{found.predictions_changed:,} predictions changed")
    return 0


def ablate(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.ablating import ablate

    found = ablate(Path(options.run_dir), examples=options.examples)
    if options.json:
        print(json.dumps({name: scores.values() for name, scores in found.items()}))
        return 0
    width = max([8, *map(len, found)])
    print(f"{'examples':<{width}}  {'number':>7}  accuracy    loss    with 1 + x for exp(x): accuracy, loss")
    for name, scores in found.items():
        numbers = [_share(scores.accuracy), _number(scores.loss)]
        numbers += [_share(scores.linear_accuracy), _number(scores.linear_loss)]
        print(
            f"{name:<{width}}  {scores.examples:>7,}  "
            + "".join(f"{number:<10}" for number in numbers).rstrip()
        )
    return 0


def _share(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.4f}"


def _number(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4g}"


def weights(options: argparse.Namespace) -> int:
    from .continual.entry_weights import compare

    found = compare(
        options.steps,
        options.learning_rate,
        options.schedule,
        options.momentum,
        options.decay,
        coupled=options.coupled,
    )
    if options.picture:
        from .monitoring.weight_chart import draw_weights

        draw_weights(found.relative, Path(options.picture))
    print(json.dumps(found.values()) if options.json else found.text())
    return 0


def dashboard(options: argparse.Namespace) -> int:
    from .monitoring import Dashboard

    folder = Path(options.runs_dir)
    with Dashboard(folder, options.port, what_if=_what_if, explain=_explain_for_page) as page:
        print(
            json.dumps({"url": page.url}) if options.json else f"dashboard of {folder}: {page.url}",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):  # how one ends it
            threading.Event().wait(options.seconds)
    return 0


def _what_if(run_dir: Path) -> dict[str, Any]:
    from .continual.what_if import what_if

    return what_if(run_dir)


def _explain_for_page(
    run_dir: Path, *, split: str, index: int, layer: str, count: int, phase: str | None
) -> dict[str, Any]:
    _prepare_jax()
    from .continual.explained_page import explanation_page
    from .continual.explaining import explain_example

    found = explain_example(run_dir, split=split, index=index, layer=layer, count=count, phase=phase)
    return explanation_page(found, split, index)


def report(options: argparse.Namespace) -> int:
    from .monitoring import write_report

    output, run_dir = _output_file(options.output), Path(options.run_dir)
    path = write_report(run_dir, output, what_if=_report_what_if(run_dir))
    print(json.dumps({"report": str(path)}) if options.json else f"report: {path}")
    return 0


def _report_what_if(run_dir: Path) -> dict[str, Any] | None:
    """What thresholds would cost; a damaged run has a report all the same, which tells what is damaged."""
    try:
        return _what_if(run_dir)
    except LaminaError:
        return None


def compare(options: argparse.Namespace) -> int:
    from .continual.comparing import FIGURES, compare_runs
    from .monitoring import write_comparison
    from .monitoring.text import aligned

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


def stream_build(options: argparse.Namespace) -> int:
    from .stream import build_log

    config = _config(options)

    def show(done: int, total: int) -> None:
        print(f"segment {done:,} of {total:,} ({done / total:.0%})", file=sys.stderr)

    log = build_log(
        config.stream.with_seed(config.seed), Path(options.log), progress=None if options.json else show
    )
    result = {"log": str(log.path), "examples": log.total, "segments": log.segments}
    print(json.dumps(result) if options.json else f"log of {log.total:,} examples: {log.path}")
    return 0


def stream_show(options: argparse.Namespace) -> int:
    from .stream import describe_log

    found = describe_log(Path(options.log))
    if options.json:
        print(json.dumps(found))
        return 0
    texts = {each["offset"]: each.pop("text") for each in found["first"] if "text" in each}
    if texts:
        found["schema"]["vocabulary"] = f"{len(found['schema']['vocabulary']):,} words"
    for name, value in found.items():
        print(f"{name}: {value if not isinstance(value, list | dict) else json.dumps(value)}")
    for offset, documents in texts.items():
        print(f"example {offset}:")
        for text in documents:
            print(f"  {text}")
    return 0


def stream_import(options: argparse.Namespace) -> int:
    from .stream import import_dataset

    path = import_dataset(options.kind, Path(options.path), options.name, options.data_dir)
    result = {"source": f"tfds:{options.name}", "path": str(path)}
    print(json.dumps(result) if options.json else f"prepared {path}; use it as source tfds:{options.name}")
    return 0


def selftest(options: argparse.Namespace) -> int:
    from .learners.conformance import Conformance, check, shipped_files

    files = [Path(name) for name in options.files] or list(shipped_files())
    results: list[Conformance] = []
    for file in files:
        for precision in ("float32", "float64"):
            results.append(check(file, precision))
            if not options.json:
                print(_conformance_line(results[-1]))
    failed = sum(not result.passed for result in results)
    if options.json:
        rows = [{**vars(result), "passed": result.passed} for result in results]
        print(json.dumps({"results": rows, "failed": failed}))
    else:
        print(f"{len(results) - failed} of {len(results)} checks passed")
    return 1 if failed else 0


def _conformance_line(result: Any) -> str:
    verdict = "ok    " if result.passed else "FAILED"
    return (
        f"{verdict} {result.file:<36} {result.precision}  largest relative error {result.largest_error:.1e} "
        f"({result.worst_array})"
    )


def _prepare_jax() -> None:
    """Keeps compiled programs between processes: a resumed run starts without compiling."""
    import jax

    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lamina", "xla")
    except RuntimeError:  # a user without a home
        return
    # A cache that cannot be read or written, or an entry torn by a kill, costs a compilation, no more.
    warnings.filterwarnings("ignore", "Error .* persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _free_directory(parent: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3, … that does not exist."""
    directory, number = parent / name, 1
    while directory.exists():
        number += 1
        directory = parent / f"{name}-{number}"
    return directory


def _config(options: argparse.Namespace) -> "RunConfig":
    """The configuration that the options of `_add_config_options` describe."""
    values = _values(options.config)
    from .continual.config import override, parse_config

    if options.seed is not None:
        values["seed"] = options.seed
    return parse_config(override(values, options.set + _runner_settings(options)))


def _values(config: str) -> dict[str, Any]:
    """What a preset or a YAML file says."""
    if config.endswith((".yaml", ".yml")):
        from .continual.config import read_config

        return read_config(Path(config))
    from .continual.presets import preset_values

    return preset_values(config)


def _runner_settings(options: argparse.Namespace) -> list[str]:
    settings = [] if options.runner is None else [f"stream.runner={options.runner}"]
    if options.runner_option:
        settings.append(f"stream.runner_options={json.dumps(options.runner_option)}")
    return settings
