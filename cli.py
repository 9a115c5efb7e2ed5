"""The command line: `lamina COMMAND`.

A user's mistake ends in one line on standard error and exit code 2, a failure in one line and exit code 1; a
traceback is shown only with `--debug`. Rooms are imported by the commands that need them, so that `--help`
and a mistyped preset answer at once.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__
from .errors import ConfigError, LaminaError

if TYPE_CHECKING:
    from .continual.config import RunConfig
    from .continual.explaining import Explanation
    from .continual.run import Outcome, Run

_FAILED, _MISTAKE, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()  # a reader that went away is noticed here, not at the interpreter's end
        return code
    except LaminaError as error:
        if options.debug:
            raise
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; what was committed is kept", _INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except Exception as error:
        if options.debug:
            raise
        line = " ".join(str(error).split()) or "no message"
        return _fail(f"{type(error).__name__}: {line} (--debug shows where)", _FAILED)


def _fail(line: str, code: int) -> int:
    print(f"lamina: {line}", file=sys.stderr)
    return code


def _run(options: argparse.Namespace) -> int:
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
    with Run.create(config, directory, origin=origin, metrics_port=options.metrics_port) as run:
        return _execute(run, options)


def _resume(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.run import Run

    with Run.resume(Path(options.run_dir), metrics_port=options.metrics_port) as run:
        return _execute(run, options)


def _execute(run: "Run", options: argparse.Namespace) -> int:
    if not options.quiet and not options.json:
        if run.progress.finished:
            print("the run is finished already; nothing is left to do", file=sys.stderr)
        if run.repeating:
            print(f"{run.repeating} steps since the last commit are done again", file=sys.stderr)
        if run.metrics_port is not None:
            print(f"metrics at http://127.0.0.1:{run.metrics_port}/metrics", file=sys.stderr)
        print(f"run folder: {run.directory}", file=sys.stderr)
    outcome = run.execute(options.steps, quiet=options.quiet)
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


def _list(options: argparse.Namespace) -> int:
    from .continual.presets import PRESETS
    from .learners.config import LEARNERS
    from .memory.policies import ADMISSIONS, EVICTIONS
    from .stream import list_sources

    sections = {
        "presets": {name: preset.line for name, preset in PRESETS.items()},
        "sources": dict(list_sources()),
        "learners": LEARNERS,
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


def _inspect(options: argparse.Namespace) -> int:
    from .monitoring import format_inspection, inspect_run

    found = inspect_run(Path(options.run_dir), deep=options.deep)
    print(json.dumps(found) if options.json else format_inspection(found))
    return _FAILED if found["problems"] else 0


def _explain(options: argparse.Namespace) -> int:
    _prepare_jax()
    from .continual.explaining import explain_example

    found = explain_example(
        Path(options.run_dir),
        split=options.split,
        index=options.index,
        layer=options.layer,
        count=options.count,
    )
    if options.picture:
        from .monitoring.pictures import draw_examples

        draw_examples(found.pictures(f"{options.split} {options.index}"), Path(options.picture))
    print(json.dumps(found.values()) if options.json else _explanation_text(found))
    return 0


def _explanation_text(found: "Explanation") -> str:
    lines = [
        f"label {found.name(found.label)}, predicted {found.name(found.predicted)}; from {found.layer}:",
        f"{'share':>8}  {'amount':>9}  {'similarity':>10}  {'step':>7}  {'offset':>8}  label",
    ]
    for each, pair in zip(found.contributions, found.neighbours, strict=True):
        label = "(initial function)" if pair is None else found.name(pair[1])
        lines.append(
            f"{each.share:>+8.2%}  {each.amount:>+9.4f}  {each.similarity:>10.4g}  {each.created:>7,}  "
            f"{each.origin:>8,}  {label}"
        )
    return "\n".join(lines)


def _report(options: argparse.Namespace) -> int:
    from .monitoring import write_report

    output = Path(options.output) if options.output else None
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ConfigError(f"--output {output}: expected a file in a folder that exists")
    path = write_report(Path(options.run_dir), output)
    print(json.dumps({"report": str(path)}) if options.json else f"report: {path}")
    return 0


def _stream_build(options: argparse.Namespace) -> int:
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


def _stream_show(options: argparse.Namespace) -> int:
    from .stream import describe_log

    found = describe_log(Path(options.log))
    if options.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        print(f"{name}: {value if not isinstance(value, list | dict) else json.dumps(value)}")
    return 0


def _stream_import(options: argparse.Namespace) -> int:
    from .stream import import_dataset

    path = import_dataset(options.kind, Path(options.path), options.name, options.data_dir)
    result = {"source": f"tfds:{options.name}", "path": str(path)}
    print(json.dumps(result) if options.json else f"prepared {path}; use it as source tfds:{options.name}")
    return 0


def _selftest(options: argparse.Namespace) -> int:
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
    return _FAILED if failed else 0


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


class _Parser(argparse.ArgumentParser):
    """Says mistakes in one line, as every other failure."""

    def error(self, message: str) -> NoReturn:
        self.exit(_MISTAKE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show a traceback where something fails")
    common.add_argument("--json", action="store_true", help="print the result as JSON")
    parser = _Parser(
        prog="lamina",
        description="Streaming online learning with networks made of growing databases.",
        epilog="Start with: lamina run digits-online",
    )
    parser.add_argument("--version", action="version", version=f"lamina {__version__}")
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run_commands(commands, common)
    _add_view_commands(commands, common)
    _add_stream_commands(commands, common)
    return parser


def _add_run_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    run = commands.add_parser("run", parents=[common], help="learn from one pass of a stream")
    run.set_defaults(command=_run)
    run.add_argument("config", metavar="PRESET|CONFIG.yaml", help="a preset (see lamina list) or a YAML file")
    run.add_argument("--run-dir", metavar="DIR", help="the run's folder (default: runs/NAME)")
    run.add_argument("--from", dest="origin", metavar="RUN[@STEP]", help="start from a persisted memory")
    run.add_argument("--print-config", action="store_true", help="print the configuration and stop")
    _add_config_options(run)
    _add_execute_options(run)
    resume = commands.add_parser("resume", parents=[common], help="go on with an interrupted run")
    resume.set_defaults(command=_resume)
    resume.add_argument("run_dir", metavar="RUN_DIR")
    _add_execute_options(resume)


def _add_view_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    show = commands.add_parser("list", parents=[common], help="presets, sources, learners and policies")
    show.set_defaults(command=_list)
    sections = ("presets", "sources", "learners", "admission", "eviction")
    show.add_argument("section", nargs="?", choices=sections, help="only this list")
    inspect = commands.add_parser("inspect", parents=[common], help="what a run has learnt and stored")
    inspect.set_defaults(command=_inspect)
    inspect.add_argument("run_dir", metavar="RUN_DIR")
    inspect.add_argument("--deep", action="store_true", help="also read every stored byte (checksums)")
    explain = commands.add_parser("explain", parents=[common], help="trace a prediction to training examples")
    explain.set_defaults(command=_explain)
    explain.add_argument("run_dir", metavar="RUN_DIR")
    explain.add_argument("--split", default="test", help="the part the example is in (default: test)")
    explain.add_argument("--index", type=int, default=0, metavar="N", help="its offset there (default: 0)")
    explain.add_argument("--layer", default="readout", help="whose entries (default: readout)")
    explain.add_argument("--count", type=_positive, default=5, metavar="K", help="how many (default: 5)")
    explain.add_argument("--picture", metavar="FILE.png", help="draw the example and those behind the answer")
    report = commands.add_parser("report", parents=[common], help="write a run's report as one HTML page")
    report.set_defaults(command=_report)
    report.add_argument("run_dir", metavar="RUN_DIR")
    report.add_argument("--output", metavar="FILE", help="where (default: RUN_DIR/report.html)")
    selftest = commands.add_parser("selftest", parents=[common], help="check this installation's numbers")
    selftest.set_defaults(command=_selftest)
    selftest.add_argument("files", nargs="*", metavar="FILE.npz", help="reference files (default: shipped)")


def _add_stream_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    stream = commands.add_parser("stream", help="build, show and import data")
    parts = stream.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    build = parts.add_parser("build", parents=[common], help="write a stream's log, to be read by many runs")
    build.set_defaults(command=_stream_build)
    build.add_argument("config", metavar="PRESET|CONFIG.yaml", help="whose stream to build")
    build.add_argument("log", metavar="LOG_DIR", help="the log's folder")
    _add_config_options(build)
    show = parts.add_parser("show", parents=[common], help="what a log holds")
    show.set_defaults(command=_stream_show)
    show.add_argument("log", metavar="LOG_DIR")
    importing = parts.add_parser("import", parents=[common], help="prepare data for tensorflow-datasets")
    importing.set_defaults(command=_stream_import)
    importing.add_argument("kind", choices=("folder", "npz", "cifar10", "cifar100"))
    importing.add_argument("path", metavar="PATH", help="a folder of images, an .npz, or the binary archive")
    importing.add_argument("name", metavar="NAME", help="of the new data set, then the source tfds:NAME")
    importing.add_argument("--data-dir", metavar="DIR", help="where prepared data sets lie")


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, metavar="N", help="fixes everything random (default: the config's)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as learner.temperature=5; repeatable",
    )
    parser.add_argument("--runner", metavar="NAME", help="the Beam runner that writes the stream's log")
    parser.add_argument(
        "--runner-option", action="append", default=[], metavar="--X=Y", help="an option of it; repeatable"
    )


def _add_execute_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_positive, metavar="N", help="stop after N more steps")
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="serve Prometheus (0: a free port)")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no result")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return int(text)
