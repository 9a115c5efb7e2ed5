"""How soon the dashboard shows a long run, in a browser that has never seen the page.

    python -m benchmarks.dashboard [--quick] [--json FILE]

A run's table is made as long as wanted. Beside it stands a short one, which is opened in turns with it: what
that takes is the browser's and the page's own time. Needs Chromium (`apt-get install chromium`).
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lamina.continual import Run, parse_config
from lamina.monitoring import Dashboard
from lamina.monitoring.table import TABLE_NAME, last_step_row
from pydantic_core import to_json

from ._browser import CHROMIUM, Browser
from ._harness import command_line, save

ROWS = {"full": (100, 1_000_000), "quick": (100, 100_000), "tiny": (20, 200)}
ROUNDS = {"full": 5, "quick": 3, "tiny": 1}
STARTING_SECONDS = 2.0  # a browser that starts is busy with itself
SHOWN = {
    "figures": "document.querySelector('.figures')?.innerText.length > 20",
    "charts": "document.querySelectorAll('.plot .main-svg').length >= 8",
}
RUN = {
    "name": "long",
    "stream": {"source": "digits", "limit": 32, "flatten": True},
    "batch_size": 8,
    "learner": {"kind": "rbf", "temperature": 5.0, "value_rate": 0.1, "memory": {"initial_capacity": 64}},
}


def main(arguments: list[str] | None = None) -> int:
    """Opens every run in turns, prints a line for each, and optionally writes JSON."""
    options = command_line("dashboard", __doc__).parse_args(arguments)
    if CHROMIUM is None:
        print("no Chromium here: apt-get install chromium")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for rows in ROWS[options.size]:
            make_run(Path(folder, str(rows)), rows)
        results = measure(Path(folder), ROWS[options.size], ROUNDS[options.size])
    print(f"{'rows':>10} {'table':>10} {'figures':>10} {'charts':>10}")
    for result in results:
        figures, charts = (f"{result['seconds'][what]:8.2f} s" for what in SHOWN)
        print(f"{result['rows']:10,} {result['table_bytes'] / 1e6:7.1f} MB {figures} {charts}")
    save(results, options.json)
    return 0


def make_run(folder: Path, rows: int) -> None:
    """A run that learnt a little, and whose table then goes on."""
    with Run.create(parse_config(RUN), folder) as run:
        run.execute(quiet=True)
    row = last_step_row(folder / TABLE_NAME)
    assert row is not None
    first, batch = row["step"] + 1, row["examples"] // row["step"]
    with open(folder / TABLE_NAME, "ab") as table:
        for step in range(first, first + rows):
            table.write(
                to_json(row | {"step": step, "examples": step * batch, "offset": step * batch}) + b"\n"
            )


def measure(folder: Path, lengths: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Opens each run in a fresh browser, in turns.

    Returns:
      Of each length, `table_bytes`, and the median `seconds` from going to its page to what is SHOWN.
    """
    seconds: dict[int, list[dict[str, float]]] = {rows: [] for rows in lengths}
    with Dashboard(folder) as page:
        for _ in range(rounds):
            for rows in lengths:
                with Browser() as browser:
                    time.sleep(STARTING_SECONDS)
                    begin = time.perf_counter()
                    browser.go(f"{page.url}#/run/{rows}")
                    found = {}
                    for what, condition in SHOWN.items():
                        browser.wait(condition)
                        found[what] = time.perf_counter() - begin
                    seconds[rows].append(found)
    return [
        {
            "rows": rows,
            "table_bytes": (folder / str(rows) / TABLE_NAME).stat().st_size,
            "seconds": {what: statistics.median(each[what] for each in found) for what in SHOWN},
        }
        for rows, found in seconds.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
