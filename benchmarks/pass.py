"""What one pass costs with a memory that grows by blocks, and with one of fixed capacity.

    python -m benchmarks.pass [--quick] [--optimiser adam|sgd] [--json FILE]

The pass is CIFAR-10's in shape (50,000 examples of 3072 numbers, batches of 16, two growing RBF blocks and a
growing readout), the examples are random. Three ways of training are measured, each in its own process:
`growing` is Lamina's learner as it is; `fixed` allocates all rows at the start, computes over all of them
and applies an optimiser to the whole tree at every step; `fixed_lean` does so too, but answers queries
with Lamina's retrieval. The floor is what streaming the keys and values as often as a step must read
them takes. It is timed in turn with the steps, and its GB/s tell how busy the machine was.

The optimiser matters: Adam, the default, has state for every row and needs 15 GiB at full size. Under plain
SGD the compiler sees that the rows' gradients are zero and drops the update, which leaves the price of
computing over all rows alone. On two quiet cores the pass cost 16 times growing's with Adam, 6.5 times with
SGD.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ._harness import command_line, save
from ._plan import PLANS, Plan

Figures = dict[str, Any]

_STRATEGIES = ("growing", "fixed", "fixed_lean")
_AGREEMENT = 1e-3  # of an output's largest magnitude, after a few steps in float32


def main(arguments: list[str] | None = None) -> int:
    """Measures all strategies, prints what they cost, and optionally writes JSON."""
    parser = command_line("pass", __doc__)
    parser.add_argument(
        "--optimiser", choices=("adam", "sgd"), default="adam", help="what the fixed strategies apply"
    )
    options = parser.parse_args(arguments)
    plan = PLANS[options.size]
    _print_plan(plan)
    figures: Figures = {"plan": asdict(plan), "optimiser": options.optimiser, "machine": _machine()}
    for strategy in _STRATEGIES:
        settings = [] if strategy == "growing" else [options.optimiser]
        measured = _measure(strategy, options.size, *settings)
        figures[strategy] = {**measured, **_whole_pass(plan, measured)}
    figures["ratios"] = {s: _ratios(figures[s], figures["growing"]) for s in _STRATEGIES[1:]}
    figures["largest_difference"] = _agree(figures)
    figures["machine"]["load_average_after"] = os.getloadavg()[0]
    _print_figures(figures)
    save(figures, options.json)
    return 0


def linear_fit(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Fits y = intercept + slope·x with the least relative residuals.

    Returns:
      `intercept`, `slope`, `r_squared` and `largest_residual` (relative to y).
    """
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    slope, intercept = np.polyfit(xs, ys, 1, w=1 / ys)
    residuals = ys - (intercept + slope * xs)
    return {
        "intercept": float(intercept),
        "slope": float(slope),
        "r_squared": float(1 - np.sum(residuals**2) / np.sum((ys - ys.mean()) ** 2)),
        "largest_residual": float(np.max(np.abs(residuals) / ys)),
    }


def _measure(strategy: str, *settings: str) -> Figures:
    command = [sys.executable, "-m", "benchmarks._measure", strategy, *settings]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if process.returncode != 0:
        sys.exit(f"measuring {strategy} ended with exit code {process.returncode} (−9: out of memory)")
    figures: Figures = json.loads(process.stdout)
    return figures


def _whole_pass(plan: Plan, measured: Figures) -> Figures:
    """Seconds of the whole pass, compiling included, extrapolated from the measured points."""
    points = measured["points"]
    seconds = [point["step_seconds"] for point in points]
    compiling = max(point["compile_seconds"] for point in points)
    if "capacities" not in measured:
        steps = plan.steps * float(np.mean(seconds))
        return {"pass_seconds": steps + compiling, "pass_compile_seconds": compiling}
    # A step computes over the slots, which grow ahead of the entries.
    by_slots = linear_fit([point["slots"] for point in points], seconds)
    capacities = np.asarray(measured["capacities"])
    before = plan.batch * np.arange(plan.steps)  # entries when a step begins
    slots = capacities[np.searchsorted(capacities, before)]
    steps = float(np.sum(by_slots["intercept"] + by_slots["slope"] * slots))
    compiling *= len(capacities)
    return {
        "fit_by_entries": linear_fit([point["entries"] for point in points], seconds),
        "fit_by_slots": by_slots,
        "pass_seconds": steps + compiling,
        "pass_compile_seconds": compiling,
    }


def _ratios(fixed: Figures, growing: Figures) -> dict[str, float]:
    """How many times the growing pass a fixed one takes: as timed, and if both had had the same bandwidth.

    On a machine that others use too, the second tells more: the strategies are not measured at one moment.
    """
    timed = fixed["pass_seconds"] / growing["pass_seconds"]
    bandwidth = [
        float(np.mean([point["gigabytes_per_second"] for point in figures["points"]]))
        for figures in (fixed, growing)
    ]
    return {"timed": timed, "at_equal_bandwidth": timed * bandwidth[0] / bandwidth[1]}


def _agree(figures: Figures) -> float:
    """The largest difference between what the strategies predict after a few steps at a tiny size."""
    expected = np.asarray(figures["growing"]["outputs"])
    differences = [np.max(np.abs(np.asarray(figures[s]["outputs"]) - expected)) for s in _STRATEGIES[1:]]
    largest = float(max(differences) / np.max(np.abs(expected)))
    if not largest < _AGREEMENT:
        sys.exit(f"the strategies' predictions differ by {largest:.1e}: they do not do the same work")
    return largest


def _machine() -> Figures:
    return {"cpus": os.cpu_count(), "load_average": os.getloadavg()[0]}


def _print_plan(plan: Plan) -> None:
    print(
        f"one pass: {plan.examples:,} examples in {plan.steps:,} steps of {plan.batch}, "
        f"D = {plan.features:,}, {plan.blocks} growing RBF blocks and readout",
        flush=True,
    )


def _print_figures(figures: Figures) -> None:
    machine = figures["machine"]
    print(
        f"{machine['cpus']} CPUs, load average {machine['load_average']:.1f} before and "
        f"{machine['load_average_after']:.1f} after (of others and this)"
    )
    _print_growing(figures["growing"])
    for strategy, ratios in figures["ratios"].items():
        _print_fixed(strategy, figures["optimiser"], figures[strategy], ratios)


def _print_growing(growing: Figures) -> None:
    print("growing (Lamina)\n  entries    slots   ms a step   floor ms   ours/floor   GB/s")
    for point in growing["points"]:
        step, floor = point["step_seconds"], point["floor_seconds"]
        print(
            f"  {point['entries']:7,}  {point['slots']:7,}  {step * 1e3:10.1f}  {floor * 1e3:9.1f}"
            f"  {step / floor:11.1f}  {point['gigabytes_per_second']:5.1f}"
        )
    for unit in ("entries", "slots"):
        fit = growing[f"fit_by_{unit}"]
        print(
            f"  ms a step = {fit['intercept'] * 1e3:.1f} + {fit['slope'] * 1e6:.2f}·thousand {unit}"
            f"  (R² {fit['r_squared']:.4f}, largest residual {fit['largest_residual']:.0%})"
        )
    _print_pass(growing)


def _print_fixed(strategy: str, optimiser: str, fixed: Figures, ratios: dict[str, float]) -> None:
    print(f"{strategy} (all rows at every step, {optimiser})\n  entries    slots   ms a step   GB/s")
    for point in fixed["points"]:
        print(
            f"  {point['entries']:7,}  {point['slots']:7,}  {point['step_seconds'] * 1e3:10.1f}"
            f"  {point['gigabytes_per_second']:5.1f}"
        )
    _print_pass(fixed)
    print(
        f"  {ratios['timed']:.1f} times growing "
        f"({ratios['at_equal_bandwidth']:.1f} at equal memory bandwidth)"
    )


def _print_pass(figures: Figures) -> None:
    print(
        f"  whole pass: {figures['pass_seconds']:,.0f} s, of it {figures['pass_compile_seconds']:.0f} s "
        f"compiling; peak resident memory {figures['peak_rss_bytes'] / 2**30:.2f} GiB"
    )


if __name__ == "__main__":
    sys.exit(main())
