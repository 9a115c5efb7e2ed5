"""The recorder: the only place that maps what happens in a run to rows and metrics."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from . import metrics
from .metrics import Metric
from .predictions import PredictionLog, Task
from .rows import LAYER_COUNTS, STEP_PARTS, EvaluationRow, LayerRow, StepRow, plain
from .sink import Distribution, Sample, Sink
from .table import TABLE_NAME, DroppedRows, TableWriter

TABLE_POSITION = "table_bytes"
PREDICTIONS_POSITION = "predictions_bytes"


@dataclass(frozen=True)
class Dropped:
    """What a resume dropped because it came after the last commit; it is done again."""

    rows: DroppedRows  # from the table
    examples: int  # predictions, one per example


class Recorder:
    """Writes a run's table and predictions and keeps its sinks up to date.

    A run has one recorder. `sync` returns the positions that a commit stores; a recorder opened with
    them continues there.

    Attributes:
      dropped: what opening at the positions dropped.
    """

    def __init__(
        self,
        run_dir: Path,
        run: str,
        task: Task,
        *,
        outputs: int = 1,
        positions: Mapping[str, int] | None = None,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens a run's files.

        Args:
          run_dir: the run's folder.
          run: the run's name, the label `run` of every metric.
          task: what the run predicts.
          outputs: predicted values per example (regression).
          positions: from `sync()` at the last commit; None: a new run.
          sinks: where metrics are shown; the recorder closes them.
          clock: Unix time in seconds.

        Raises:
          ConfigError: the folder holds a run's rows already, and no positions were given.
          FormatError: the files and the positions do not belong together.
          StorageError: the file system refused.
        """
        places = positions or {}
        self._table = TableWriter(run_dir / TABLE_NAME, places.get(TABLE_POSITION))
        try:
            self._log = PredictionLog(run_dir, task, outputs, places.get(PREDICTIONS_POSITION))
        except BaseException:
            self._table.close()
            raise
        self.dropped = Dropped(self._table.dropped, self._log.dropped)
        self._sinks = tuple(sinks)
        self._clock = clock
        self._state = _State(run, opened=clock())
        self._publish()

    def step(self, row: StepRow) -> None:
        """Records an interval of steps.

        Raises:
          StorageError: the file system refused; the table is as it was before.
        """
        self._table.append(row.row())
        self._state.take_step(row, self._clock())
        self._publish()

    def evaluation(self, row: EvaluationRow) -> None:
        """Records an evaluation.

        Raises:
          StorageError: the file system refused; the table is as it was before.
        """
        self._table.append(row.row())
        self._state.evaluations[row.task] = row
        self._publish()

    def predictions(
        self, origins: ArrayLike, labels: ArrayLike, predictions: ArrayLike, losses: ArrayLike
    ) -> None:
        """Records the predictions of one batch, made before learning from it.

        Args:
          origins: `[B]` int, stream offsets.
          labels: `[B]` int class indices, or `[B]` / `[B, F]` float targets.
          predictions: like `labels`.
          losses: `[B]` float.

        Raises:
          DataError: the arrays do not match each other or the log's layout.
          StorageError: the file system refused; the log is as it was before.
        """
        self._log.append(origins, labels, predictions, losses)

    def sync(self) -> dict[str, int]:
        """Makes everything recorded survive a power loss, and returns the positions to commit."""
        self._table.sync()
        self._log.sync()
        return {
            TABLE_POSITION: self._table.position(),
            PREDICTIONS_POSITION: self._log.position(),
        }

    def committed(self) -> None:
        """Notes that a commit has just been made."""
        self._state.last_commit = self._clock()
        self._publish()

    def close(self) -> None:
        """Closes the files and the sinks; closing twice is harmless."""
        self._table.close()
        self._log.close()
        for sink in self._sinks:
            sink.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _publish(self) -> None:
        if self._sinks:
            samples = tuple(self._state.samples())
            for sink in self._sinks:
                sink.publish(samples)


class _State:
    """The latest of everything, and the sums since this process opened the run."""

    def __init__(self, run: str, opened: float) -> None:
        self.run = run
        self.opened = opened
        self.last_commit: float | None = None
        self.evaluations: dict[str, EvaluationRow] = {}
        self._step: StepRow | None = None
        self._last_step_time = opened
        self._seconds = dict.fromkeys((*STEP_PARTS, "wall"), 0.0)
        self._durations = [0] * (len(metrics.STEP_DURATION.buckets) + 1)
        self._duration_sum = 0.0

    def take_step(self, row: StepRow, now: float) -> None:
        steps = row.step - (self._step.step if self._step else 0)
        if self._step is not None and steps > 0:  # the first row's interval may begin before a resume
            duration = row.wall_seconds / steps
            self._durations[bisect_left(metrics.STEP_DURATION.buckets, duration)] += 1
            self._duration_sum += duration
        for part in self._seconds:
            self._seconds[part] += getattr(row, f"{part}_seconds")
        self._step, self._last_step_time = row, now

    def samples(self) -> Iterator[Sample]:
        """Yields every series that has a value now; null values have no series."""
        for metric, labels, value in self._values():
            if (shown := value if isinstance(value, Distribution) else plain(value)) is not None:
                yield Sample(metric, (self.run, *labels), shown)

    def _values(self) -> Iterator[tuple[Metric, tuple[str, ...], float | Distribution | None]]:
        yield metrics.COMMIT_AGE, (), self.last_commit or self.opened
        yield metrics.LAST_COMMIT_TIMESTAMP, (), self.last_commit
        for task, evaluation in self.evaluations.items():
            yield metrics.HELD_OUT_ACCURACY, (task,), evaluation.accuracy
            yield metrics.HELD_OUT_LOSS, (task,), evaluation.loss
        if self._step is not None:
            yield from self._step_values(self._step)
            for layer, row in self._step.layers.items():
                yield from _layer_values(layer, row)

    def _step_values(
        self, row: StepRow
    ) -> Iterator[tuple[Metric, tuple[str, ...], float | Distribution | None]]:
        yield metrics.PREQUENTIAL_ACCURACY, (row.phase,), row.prequential_accuracy
        yield metrics.WINDOW_ACCURACY, (row.phase,), row.window_accuracy
        yield metrics.PREQUENTIAL_LOSS, (row.phase,), row.loss
        yield metrics.EXAMPLES, (), row.examples
        yield metrics.STEPS, (), row.step
        yield metrics.SKIPPED_EXAMPLES, (), row.skipped_examples
        yield metrics.COMPILATIONS, (), row.compilations
        yield metrics.LAST_STEP_TIMESTAMP, (), self._last_step_time
        for part, metric in _SECONDS.items():
            yield metric, (), self._seconds[part]
        yield metrics.STEP_DURATION, (), Distribution(tuple(self._durations), self._duration_sum)


def _layer_values(layer: str, row: LayerRow) -> Iterator[tuple[Metric, tuple[str, ...], float | None]]:
    yield metrics.MEMORY_ENTRIES, (layer,), row.entries
    yield metrics.MEMORY_CAPACITY, (layer,), row.capacity
    yield metrics.MEMORY_FILL, (layer,), row.entries / row.capacity if row.capacity else None
    yield metrics.MEMORY_BYTES, (layer,), row.bytes
    for name in LAYER_COUNTS:
        yield _COUNTS[name], (layer,), getattr(row, name)


_SECONDS = {
    "wait": metrics.WAIT_SECONDS,
    "compute": metrics.COMPUTE_SECONDS,
    "append": metrics.APPEND_SECONDS,
    "maintain": metrics.MAINTAIN_SECONDS,
    "evaluate": metrics.EVALUATE_SECONDS,
    "commit": metrics.COMMIT_SECONDS,
    "wall": metrics.WALL_SECONDS,
}
_COUNTS = {
    "admitted": metrics.MEMORY_ADMITTED,
    "merged": metrics.MEMORY_MERGED,
    "rejected": metrics.MEMORY_REJECTED,
    "pruned": metrics.MEMORY_PRUNED,
    "evicted": metrics.MEMORY_EVICTED,
}
