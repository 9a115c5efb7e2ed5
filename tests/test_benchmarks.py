"""Every benchmark runs and writes its figures; what the figures are is not judged here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks._browser import CHROMIUM

ROOT = Path(__file__).parents[1]


def check_pass(figures: Any) -> None:
    plan, growing = figures["plan"], figures["growing"]
    features, classes = plan["features"], plan["classes"]
    assert [point["entries"] for point in growing["points"]] == plan["entries"] == [128, 512]
    assert growing["compilations"] == len(plan["entries"])  # filling compiles no training step
    for point in growing["points"]:
        assert point["slots"] in growing["capacities"]
        assert point["slots"] >= point["entries"]
        # Floats: keys, values, two norms; and three integers a slot.
        numbers = 2 * (2 * features + 5) + features + classes + 5
        assert point["database_bytes"] == 4 * point["slots"] * numbers
        assert min(point["step_seconds"], point["floor_seconds"], point["gigabytes_per_second"]) > 0
    # Two points lie on their line, so the pass is the sum over it at the slots before each of its steps.
    slots = [min(c for c in growing["capacities"] if c >= entries) for entries in range(0, 512, 16)]
    xs, ys = zip(*((point["slots"], point["step_seconds"]) for point in growing["points"]), strict=True)
    slope = (ys[1] - ys[0]) / (xs[1] - xs[0])
    steps = sum(ys[0] + slope * (count - xs[0]) for count in slots)
    assert growing["pass_seconds"] - growing["pass_compile_seconds"] == pytest.approx(steps, abs=1e-9)
    assert growing["fit_by_slots"]["slope"] == pytest.approx(slope)
    assert growing["fit_by_entries"]["largest_residual"] < 1e-6
    for strategy in ("fixed", "fixed_lean"):
        fixed = figures[strategy]
        assert [point["slots"] for point in fixed["points"]] == [528, 528]
        assert fixed["database_bytes"] == 4 * 528 * (2 * 2 * features + features + classes)
        mean = np.mean([point["step_seconds"] for point in fixed["points"]])
        assert fixed["pass_seconds"] - fixed["pass_compile_seconds"] == pytest.approx(32 * mean)
        ratios = figures["ratios"][strategy]
        assert ratios["timed"] == pytest.approx(fixed["pass_seconds"] / growing["pass_seconds"])
        speeds = [np.mean([point["gigabytes_per_second"] for point in f["points"]]) for f in (fixed, growing)]
        assert ratios["at_equal_bandwidth"] == pytest.approx(ratios["timed"] * speeds[0] / speeds[1])
        assert fixed["peak_rss_bytes"] > fixed["database_bytes"]
        assert np.max(np.abs(np.subtract(fixed["outputs"], growing["outputs"]))) < 1e-4
    assert np.max(np.abs(growing["outputs"])) > 0.01  # something was learnt by then
    assert figures["largest_difference"] < 1e-3


def check_store(figures: Any) -> None:
    assert [(case["case"], case["entries"]) for case in figures] == [("narrow", 192), ("wide", 96)]
    for case in figures:
        assert set(case["commit_seconds"]) == set(case["megabytes_per_second"]) == {"floor", "peer", "ours"}
        assert min(case["commit_seconds"].values()) > 0
        assert case["read_megabytes_per_second"] == pytest.approx(
            case["entries"] * _store_row_bytes(case["case"]) / 1e6 / case["read_seconds"]
        )


def _store_row_bytes(case: str) -> int:
    return 4 * (2 * {"narrow": 8, "wide": 96}[case] + 6)  # keys and values, and six single columns


def check_retrieval(figures: Any) -> None:
    assert [tuple(case["shape"].values())[:4] for case in figures] == [(300, 24, 24, 4), (900, 8, 8, 64)]
    for case in figures:
        assert {"lamina", "jnp"} <= set(case["seconds"]["both"]) <= set(case["seconds"]["forward"])
        assert "keops" in case["missing"]
        rates = case["rates"]
        n, d, f, b = list(case["shape"].values())[:4]
        once = max(
            4 * n * (d + f) / rates["gigabytes_per_second"],
            2 * n * b * (d + f) / rates["gigaflops_per_second"],
        )
        exp = n * b / rates["giga_exp_per_second"]
        for direction, passes in (("forward", 1), ("both", 2)):
            floor = case["floor_seconds"][direction]
            assert floor == pytest.approx((passes * once + exp) / 1e9)
            for way, seconds in case["seconds"][direction].items():
                assert seconds > 0
                assert case["ratios"][direction][way] == pytest.approx(seconds / floor)
        assert 0 < case["largest_difference"] < 1e-3


def check_growth(figures: Any) -> None:
    appends, memory, start = figures["appends"], figures["memory"], figures["start"]
    assert appends["entries"] == 1024
    timed = sum(point["appends"] for point in appends["by_capacity"])
    assert timed + len(appends["growth_seconds"]) == 1024 // 16
    assert len(appends["by_capacity"]) > 2
    assert appends["slowdown"]["median"] == pytest.approx(
        appends["by_capacity"][-1]["median_seconds"] / appends["by_capacity"][0]["median_seconds"]
    )
    capacities = [point["capacity"] for point in memory["points"]]
    assert capacities == [192, 320, 512]  # after a step in slots that were full
    for point in memory["points"]:
        assert point["peak_rss_bytes"] > memory["empty_bytes"]
        above = point["peak_rss_bytes"] - memory["empty_bytes"]
        assert point["ratio"] == pytest.approx(above / point["database_bytes"])
    assert memory["compilations_per_doubling"] > 0
    assert start["first"]["misses"] > 10
    assert start["second"]["misses"] == 0
    assert start["second"]["hits"] >= start["first"]["misses"]


def check_optimisers(figures: Any) -> None:
    assert [result["width"] for result in figures] == [8, 16]
    for result in figures:
        seconds, ratios = result["step_seconds"], result["ratio_to_sgd"]
        assert {"sgd", "muon", "mesa", "delta", "mesa, 10 Newton–Schulz"} <= set(seconds) == set(ratios)
        assert min(seconds.values()) > 0
        assert ratios["mesa"] == pytest.approx(seconds["mesa"] / seconds["sgd"])


def check_cold(figures: Any) -> None:
    assert [(case["case"], case["entries"]) for case in figures] == [("narrow", 5 * 64), ("wide", 3 * 16)]
    for case, width, files in zip(figures, (8, 96), (5 * 4, 3 * 4), strict=True):
        # Keys, values, creation step and ‖k‖², and a checksum a file.
        assert case["bytes"] == case["entries"] * 4 * (2 * width + 2) + 4 * files
        assert set(case["seconds"]) == {"first", "floor", "read", "stream", "forward", "both"}
        assert min(case["seconds"].values()) > 0
        for whole, shares in (("floor", "share_of_disk"), ("read", "share_of_read")):
            for way, share in case[shares].items():
                passes = 2 if way == "both" else 1
                assert share == pytest.approx(passes * case["seconds"][whole] / case["seconds"][way])


def check_recording(figures: Any) -> None:
    [case] = figures
    assert case["share"] == pytest.approx(case["recording_seconds"] / case["step_seconds"])
    assert 0 < case["recording_seconds"] * 25 < case["longest_seconds"] * 26
    assert case["scrapes"] >= 1


def check_dashboard(figures: Any) -> None:
    assert [each["rows"] for each in figures] == [20, 200]
    for each in figures:
        assert 0 < each["seconds"]["figures"] < each["seconds"]["charts"]
        assert each["table_bytes"] > 500 * each["rows"]


def check_peers(figures: Any) -> None:
    assert figures["examples"] == 48
    found = figures["learners"]
    assert {"lamina rbf", "lamina softmax", "lamina mlp", "10 nearest neighbours"} <= set(found)
    for each in found.values():
        assert 0 <= each["accuracy"] <= 1
        assert each["seconds"] > 0
    assert found["10 nearest neighbours"]["accuracy"] > 0.2  # a tenth by chance


CHECKS = {
    "cold": check_cold,
    "dashboard": check_dashboard,
    "growth": check_growth,
    "optimisers": check_optimisers,
    "pass": check_pass,
    "peers": check_peers,
    "recording": check_recording,
    "retrieval": check_retrieval,
    "store": check_store,
}


def test_every_benchmark_is_checked() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_benchmark_writes_its_figures(name: str, tmp_path: Path) -> None:
    if name == "dashboard" and CHROMIUM is None:
        pytest.skip("needs chromium: apt-get install chromium")
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", "--tiny", "--json", str(file)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout
    CHECKS[name](json.loads(file.read_text()))
