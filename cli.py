"""The command line: `lamina COMMAND`.

A user's mistake ends in one line on standard error and exit code 2, a failure in one line and exit code 1; a
traceback is shown only with `--debug`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __version__
from .commands import asking, checking, learning, showing, streams
from .errors import LaminaError

_FAILED, _MISTAKE, _INTERRUPTED = 1, 2, 130
_SCHEDULES = ("constant", "linear", "cosine", "warmup-cosine", "exponential")


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
    parts = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run_commands(parts, common)
    _add_view_commands(parts, common)
    _add_stream_commands(parts, common)
    return parser


def _add_run_commands(parts: Any, common: argparse.ArgumentParser) -> None:
    run = parts.add_parser("run", parents=[common], help="learn from one pass of a stream")
    run.set_defaults(command=learning.run)
    run.add_argument("config", metavar="PRESET|CONFIG.yaml", help="a preset (see lamina list) or a YAML file")
    run.add_argument("--run-dir", metavar="DIR", help="the run's folder (default: runs/NAME)")
    run.add_argument("--from", dest="origin", metavar="RUN[@STEP]", help="start from a persisted memory")
    run.add_argument("--print-config", action="store_true", help="print the configuration and stop")
    _add_config_options(run)
    _add_execute_options(run)
    resume = parts.add_parser("resume", parents=[common], help="go on with an interrupted run")
    resume.set_defaults(command=learning.resume)
    resume.add_argument("run_dir", metavar="RUN_DIR")
    _add_execute_options(resume)
    fork = parts.add_parser("fork", parents=[common], help="go on with a run in a new folder, set otherwise")
    fork.set_defaults(command=learning.fork)
    fork.add_argument("origin", metavar="RUN[@STEP]", help="the run, and the commit to begin at")
    fork.add_argument("run_dir", metavar="NEW_DIR", help="the new run's folder")
    _add_settings(fork)
    _add_execute_options(fork)


def _add_view_commands(parts: Any, common: argparse.ArgumentParser) -> None:
    show = parts.add_parser(
        "list", parents=[common], help="presets, scenarios, sources, learners and policies"
    )
    show.set_defaults(command=showing.list_all)
    sections = (
        "presets",
        "scenarios",
        "sources",
        "learners",
        "feed_forwards",
        "optimisers",
        "admission",
        "eviction",
    )
    show.add_argument("section", nargs="?", choices=sections, help="only this list")
    inspect = parts.add_parser("inspect", parents=[common], help="what a run has learnt and stored")
    inspect.set_defaults(command=showing.inspect)
    inspect.add_argument("run_dir", metavar="RUN_DIR")
    inspect.add_argument("--deep", action="store_true", help="also read every stored byte (checksums)")
    explain = parts.add_parser("explain", parents=[common], help="trace a prediction to training examples")
    explain.set_defaults(command=asking.explain)
    explain.add_argument("run_dir", metavar="RUN_DIR")
    explain.add_argument("--split", default="test", help="the part the example is in (default: test)")
    explain.add_argument("--index", type=int, default=0, metavar="N", help="its offset there (default: 0)")
    explain.add_argument("--phase", metavar="NAME", help="whose data it is (default: the present phase's)")
    explain.add_argument("--layer", help="whose entries (default: readout, or else the last growing layer)")
    explain.add_argument("--count", type=_positive, default=5, metavar="K", help="how many (default: 5)")
    explain.add_argument(
        "--token", type=int, metavar="N", help="of a text (default: that before the first value)"
    )
    explain.add_argument("--picture", metavar="FILE.png", help="draw the example and those behind the answer")
    generate = parts.add_parser("generate", parents=[common], help="go on with a text as a run predicts it")
    generate.set_defaults(command=asking.generate)
    generate.add_argument("run_dir", metavar="RUN_DIR")
    generate.add_argument("--prompt", required=True, metavar="TEXT", help="how the text begins")
    generate.add_argument(
        "--words", type=_positive, default=20, metavar="N", help="words to add (default: 20)"
    )
    generate.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="how freely words are drawn (default: 0, the likeliest)",
    )
    generate.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    forget = parts.add_parser(
        "forget", parents=[common], help="remove what training examples left in a run's memory"
    )
    forget.set_defaults(command=asking.forget)
    forget.add_argument("run_dir", metavar="RUN_DIR")
    forget.add_argument("offsets", type=int, nargs="+", metavar="OFFSET", help="as explain shows them")
    forget.add_argument(
        "--examples",
        type=_positive,
        default=1000,
        metavar="N",
        help="held-out examples to measure the change on (default: 1000)",
    )
    ablate = parts.add_parser(
        "ablate", parents=[common], help="score a run on what it learnt from, and with a linear exponential"
    )
    ablate.set_defaults(command=asking.ablate)
    ablate.add_argument("run_dir", metavar="RUN_DIR")
    ablate.add_argument(
        "--examples",
        type=_positive,
        metavar="N",
        help="of each set, the first N (default: all held-out ones)",
    )
    weights = parts.add_parser(
        "weights", parents=[common], help="what a schedule, decay and momentum make of old entries"
    )
    weights.set_defaults(command=asking.weights)
    weights.add_argument("--steps", type=_positive, default=200, metavar="N", help="(default: 200)")
    weights.add_argument("--learning-rate", type=float, default=0.1, metavar="RATE", help="(default: 0.1)")
    weights.add_argument("--schedule", choices=_SCHEDULES, default="cosine", help="of it (default: cosine)")
    weights.add_argument("--momentum", type=float, default=0.9, metavar="RATE", help="(default: 0.9)")
    weights.add_argument("--decay", type=float, default=0.1, metavar="RATE", help="(default: 0.1)")
    weights.add_argument("--coupled", action="store_true", help="decay passes through momentum")
    weights.add_argument("--picture", metavar="FILE.png", help="draw them")
    dashboard = parts.add_parser(
        "dashboard", parents=[common], help="serve a page of all runs, live, to this machine"
    )
    dashboard.set_defaults(command=showing.dashboard)
    dashboard.add_argument(
        "runs_dir", metavar="RUNS_DIR", nargs="?", default="runs", help="folder of runs (default: runs)"
    )
    dashboard.add_argument(
        "--port", type=int, default=8384, help="on loopback (default: 8384; 0: a free one)"
    )
    dashboard.add_argument(
        "--seconds", type=_positive, metavar="N", help="end after so long (default: until Ctrl-C)"
    )
    report = parts.add_parser("report", parents=[common], help="write a run's report as one HTML page")
    report.set_defaults(command=showing.report)
    report.add_argument("run_dir", metavar="RUN_DIR")
    report.add_argument("--output", metavar="FILE", help="where (default: RUN_DIR/report.html)")
    compare = parts.add_parser("compare", parents=[common], help="put runs over phases side by side")
    compare.set_defaults(command=showing.compare)
    compare.add_argument(
        "run_dirs", metavar="RUN_DIR", nargs="+", help="those that differ in their seed: mean"
    )
    compare.add_argument("--output", metavar="FILE.html", help="also write a page with matrices and curves")
    selftest = parts.add_parser("selftest", parents=[common], help="check this installation's numbers")
    selftest.set_defaults(command=checking.selftest)
    selftest.add_argument("files", nargs="*", metavar="FILE.npz", help="reference files (default: shipped)")


def _add_stream_commands(parts: Any, common: argparse.ArgumentParser) -> None:
    stream = parts.add_parser("stream", help="build, show and import data")
    inner = stream.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    build = inner.add_parser("build", parents=[common], help="write a stream's log, to be read by many runs")
    build.set_defaults(command=streams.build)
    build.add_argument("config", metavar="PRESET|CONFIG.yaml", help="whose stream to build")
    build.add_argument("log", metavar="LOG_DIR", help="the log's folder")
    _add_config_options(build)
    show = inner.add_parser("show", parents=[common], help="what a log holds")
    show.set_defaults(command=streams.show)
    show.add_argument("log", metavar="LOG_DIR")
    importing = inner.add_parser("import", parents=[common], help="prepare data for tensorflow-datasets")
    importing.set_defaults(command=streams.import_data)
    importing.add_argument("kind", choices=("folder", "npz", "cifar10", "cifar100"))
    importing.add_argument("path", metavar="PATH", help="a folder of images, an .npz, or the binary archive")
    importing.add_argument("name", metavar="NAME", help="of the new data set, then the source tfds:NAME")
    importing.add_argument("--data-dir", metavar="DIR", help="where prepared data sets lie")


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, metavar="N", help="fixes everything random (default: the config's)"
    )
    _add_settings(parser)
    parser.add_argument("--runner", metavar="NAME", help="the Beam runner that writes the stream's log")
    parser.add_argument(
        "--runner-option", action="append", default=[], metavar="--X=Y", help="an option of it; repeatable"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as learner.temperature=5; repeatable",
    )


def _add_execute_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_positive, metavar="N", help="stop after N more steps")
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="serve Prometheus (0: a free port)")
    parser.add_argument(
        "--metrics-linger",
        type=_positive,
        metavar="SECONDS",
        help="after the end wait so long at most for Prometheus to read the last figures",
    )
    parser.add_argument(
        "--metrics-targets", metavar="DIR", help="name the port to a Prometheus that discovers files there"
    )
    parser.add_argument("--push-gateway", metavar="URL", help="push the metrics to a Prometheus Pushgateway")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no result")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return int(text)
