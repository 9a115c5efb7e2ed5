"""What the benchmarks share: their command line, timing side by side, and printing."""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark takes."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick",
        dest="size",
        action="store_const",
        const="quick",
        default="full",
        help="a smaller size; under a minute",
    )
    # The size at which the tests run every benchmark; its figures mean nothing.
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser


def measure_cases[Case](
    parser: argparse.ArgumentParser,
    cases: Mapping[str, Sequence[Case]],
    measure: Callable[[Case], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    arguments: list[str] | None,
) -> int:
    """Measures the cases of the size asked for, shows each as soon as it is measured, and saves them all."""
    options = parser.parse_args(arguments)
    results = []
    for case in cases[options.size]:
        results.append(measure(case))
        show(results[-1])
    save(results, options.json)
    return 0


def side_by_side(
    ways: Mapping[str, Callable[[int], object]], rounds: int, *, patience: float = math.inf
) -> dict[str, list[float]]:
    """Times every way once a round, one right after the other, so that all see the same load.

    Args:
      ways: by name, called with the round's number 1 … rounds.
      rounds: how often.
      patience: a way whose rounds have taken so many seconds in all sits out the later ones.

    Returns:
      Seconds of each round taken part in, by way.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1, rounds + 1):
        for name, way in ways.items():
            if sum(seconds[name]) > patience:
                continue
            start = time.perf_counter()
            way(number)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def save(figures: Any, file: Path | None) -> None:
    """Writes the figures as JSON, if a file was asked for."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=2) + "\n")
