"""What a step of a residual MLP costs under every optimiser, by width.

    python -m benchmarks.optimisers [--quick] [--json FILE]

One block of two matrices and a readout, 16 examples a step. In every round each optimiser takes one step,
one right after the other; `sgd`, plain optax, is the floor that the others' ratios are to. Mesa is measured
with its exact solve and with 5 and 10 Newton–Schulz iterations.
"""

import sys
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
import numpy as np
from lamina.learners import Batch, Task
from lamina.learners.optimisers import OPTIMISERS
from lamina.learners.parametric import MLPConfig, build_parametric

from ._harness import command_line, measure_cases, side_by_side

BATCH, CLASSES = 16, 10
MESA = {f"mesa, {count} Newton–Schulz": {"kind": "mesa", "newton_schulz": count} for count in (5, 10)}
CHOICES: dict[str, Any] = {name: {"kind": name} for name in OPTIMISERS} | MESA


@dataclass(frozen=True)
class Case:
    """A width of the network and how many steps to time."""

    width: int  # D
    rounds: int


CASES = {
    "full": (Case(256, 30), Case(1024, 10), Case(3072, 3)),
    "quick": (Case(128, 10), Case(512, 3)),
    "tiny": (Case(8, 2), Case(16, 2)),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures every width, prints a table for each, and optionally writes JSON."""
    return measure_cases(command_line("optimisers", __doc__), CASES, measure, _print, arguments)


def measure(case: Case) -> dict[str, Any]:
    """Times steps of every optimiser.

    Returns:
      The width, and by optimiser `step_seconds` (median) and `ratio_to_sgd`.
    """
    runs = {name: _Steps(case.width, choice) for name, choice in CHOICES.items()}
    seconds = {name: median(times) for name, times in side_by_side(runs, case.rounds).items()}
    ratios = {name: each / seconds["sgd"] for name, each in seconds.items()}
    return {"width": case.width, "step_seconds": seconds, "ratio_to_sgd": ratios}


class _Steps:
    """A learner that takes a step whenever it is called; compiled beforehand."""

    def __init__(self, width: int, choice: Any) -> None:
        config = MLPConfig(kind="mlp", optimiser=choice)
        self._learner = build_parametric(config, features=width, task=Task(CLASSES, True), seed=0)
        self._state = self._learner.init(jax.random.key(0))
        draw = np.random.default_rng(0)
        x = draw.normal(size=(BATCH, width)).astype(np.float32)
        self._batch = Batch(x, draw.integers(0, CLASSES, BATCH), np.arange(BATCH))
        self(0)

    def __call__(self, _: int) -> None:
        self._state, _result = self._learner.update(self._state, self._batch)
        jax.block_until_ready((self._state.parameters, self._state.optimiser))


def _print(result: dict[str, Any]) -> None:
    print(f"width {result['width']}\n  optimiser                ms a step   of sgd")
    for name, seconds in result["step_seconds"].items():
        print(f"  {name:<24} {seconds * 1e3:9.2f} {result['ratio_to_sgd'][name]:8.2f}")


if __name__ == "__main__":
    sys.exit(main())
