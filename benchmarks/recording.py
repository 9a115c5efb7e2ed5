"""What recording a run costs, beside the steps that it records.

    python -m benchmarks.recording [--quick] [--json FILE]

A learner takes random batches in the shape of each case. After every step its predictions are recorded, after
every 25th a row of the table with all layers, as the loop does, with a Prometheus exporter that is scraped
once a second meanwhile. Steps and recording alternate and are timed apart, so that both see the same load.
All recording counts, the writes of many predictions at once too; making what is scraped is part of the steps'
time, beside which it happens.
"""

import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from lamina.continual.counts import EntryCounts, layer_rows
from lamina.learners import Batch, Task, build_learner, initial_key
from lamina.learners.growing_config import RBFConfig
from lamina.memory import MemoryConfig
from lamina.monitoring import PrometheusExporter, Recorder, StepRow

from ._harness import command_line, save

Figures = dict[str, Any]
RECORD_EVERY = 25
SCRAPE_SECONDS = 1.0


@dataclass(frozen=True)
class Case:
    """A learner's shape and how long it learns."""

    name: str
    features: int
    blocks: int
    batch: int
    entries: int  # held before the clock starts
    rounds: int  # of RECORD_EVERY steps


CASES = {
    "full": (
        Case("digits", 64, 1, 8, 1_438, rounds=40),
        Case("CIFAR-10, a tenth of a pass", 3072, 2, 16, 5_000, rounds=6),
    ),
    "quick": (
        Case("digits", 64, 1, 8, 1_438, rounds=12),
        Case("CIFAR-10, a fiftieth of a pass", 3072, 2, 16, 1_000, rounds=3),
    ),
    "tiny": (Case("tiny", 8, 0, 4, 32, rounds=2),),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures every case, prints a line for each, and optionally writes JSON."""
    options = command_line("recording", __doc__).parse_args(arguments)
    results = [measure(case) for case in CASES[options.size]]
    print(f"{'case':32} {'step':>10} {'recording':>11} {'share':>8} {'scrapes':>8} {'longest':>10}")
    for result in results:
        print(
            f"{result['case']['name']:32} {result['step_seconds'] * 1e3:7.2f} ms "
            f"{result['recording_seconds'] * 1e6:8.1f} µs {result['share']:8.2%} {result['scrapes']:8} "
            f"{result['longest_seconds'] * 1e3:7.2f} ms"
        )
    save(results, options.json)
    return 0


def measure(case: Case) -> Figures:
    """Times steps and their recording.

    Returns:
      The case; `step_seconds` and `recording_seconds` of a step (means over all rounds), their ratio `share`,
      `longest_seconds` of a single call of the recorder, and how many `scrapes` were answered.
    """
    learning = _Learning(case)
    exporter = PrometheusExporter(0)  # its recorder closes it
    with tempfile.TemporaryDirectory() as folder:
        with Recorder(Path(folder), "benchmark", "classification", sinks=[exporter]) as recorder:
            with _Scraper(exporter.port) as scraper:
                rounds = [learning.round(recorder) for _ in range(case.rounds)]
    step = statistics.mean(steps for steps, _, _ in rounds) / RECORD_EVERY
    recording = statistics.mean(recorded for _, recorded, _ in rounds) / RECORD_EVERY
    return {
        "case": asdict(case),
        "step_seconds": step,
        "recording_seconds": recording,
        "share": recording / step,
        "longest_seconds": max(longest for _, _, longest in rounds),
        "scrapes": scraper.answers,
    }


class _Learning:
    """A learner on random examples, and what the loop hands to its recorder."""

    def __init__(self, case: Case) -> None:
        self._case = case
        steps = RECORD_EVERY * case.rounds + 1
        slots = case.entries + case.batch * steps
        config = RBFConfig(
            kind="rbf",
            blocks=case.blocks,
            temperature=5.0,
            value_rate=0.1,
            memory=MemoryConfig(initial_capacity=slots),  # never grows: compiling is no part of a step
        )
        self._learner = build_learner(
            config, features=case.features, task=Task(10, True), batch_size=case.batch, seed=0
        )
        self._state = self._learner.init(initial_key(0))
        self._draw = np.random.default_rng(0)
        self._step = 0
        while self._learn_entries() < case.entries:
            self._update()
        self._counts = EntryCounts(self._state, {})

    def round(self, recorder: Recorder) -> tuple[float, float, float]:
        """Some steps and one row; seconds of the steps, of recording, and of its longest call."""
        steps, calls = 0.0, []
        for _ in range(RECORD_EVERY):
            begin = time.perf_counter()
            batch, predicted, losses = self._update()
            learnt = time.perf_counter()
            recorder.predictions(batch.origins, batch.y, predicted, losses)
            calls.append(time.perf_counter() - learnt)
            steps += learnt - begin
        begin = time.perf_counter()
        recorder.step(self._row(steps))
        calls.append(time.perf_counter() - begin)
        return steps, sum(calls), max(calls)

    def _learn_entries(self) -> int:
        return max(int(memory.database.entries) for memory in self._state.memories.values())

    def _update(self) -> tuple[Batch, np.ndarray, np.ndarray]:
        case, self._step = self._case, self._step + 1
        x = self._draw.standard_normal((case.batch, case.features)).astype(np.float32)
        y = self._draw.integers(0, 10, case.batch).astype(np.int32)
        batch = Batch(x, y, np.arange(case.batch) + case.batch * self._step)
        self._state, result = self._learner.update(self._state, batch)
        jax.block_until_ready(result.changes)
        predicted = np.argmax(np.asarray(result.outputs), axis=1).astype(np.int32)
        return batch, predicted, np.asarray(result.losses)

    def _row(self, seconds: float) -> StepRow:
        layers = layer_rows(self._state, self._counts.read(self._state), {})
        parts = ("wait", "compute", "append", "maintain", "evaluate", "commit")
        return StepRow(
            step=self._step,
            examples=self._step * self._case.batch,
            offset=self._step * self._case.batch,
            phase="online",
            prequential_accuracy=0.5,
            window_accuracy=0.5,
            loss=1.0,
            layers=layers,
            skipped_examples=0,
            compilations=1,
            wall_seconds=seconds,
            examples_per_second=RECORD_EVERY * self._case.batch / seconds,
            **{f"{part}_seconds": seconds / len(parts) for part in parts},
        )


class _Scraper:
    """Asks an exporter once a second, from a thread of its own."""

    def __init__(self, port: int) -> None:
        self.answers = 0
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "_Scraper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._over.is_set():
            with urllib.request.urlopen(self._url) as answer:
                answer.read()
            self.answers += 1
            self._over.wait(SCRAPE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
