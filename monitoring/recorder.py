"""The recorder: the only place that maps what happens in a run to rows and metrics."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from ..errors import LaminaError
from .live import Facts, Live
from .predictions import PredictionLog, Task
from .rows import EvaluationRow, StepRow
from .sink import Sink
from .table import TABLE_NAME, DroppedRows, TableWriter, evaluation_rows

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
        facts: Facts | None = None,
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
          facts: what sinks show of the run beside its rows.
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
        earlier = evaluation_rows(run_dir / TABLE_NAME) if sinks else ()
        self._live = Live(run, clock(), facts or Facts(), earlier)
        self._publish()

    @property
    def watched(self) -> bool:
        """Whether anything shows what is only worth measuring for a sink: `distances` and `weights`."""
        return bool(self._sinks)

    def step(self, row: StepRow, lag: int | None = None) -> None:
        """Records an interval of steps.

        Args:
          row: the interval.
          lag: examples that wait in the stream's log after it; shown by sinks only.

        Raises:
          StorageError: the file system refused; the table is as it was before.
        """
        self._log.flush_if_due()
        self._table.append(row.row())
        self._live.take_step(row, self._clock(), lag)
        self._publish()

    def evaluation(self, row: EvaluationRow) -> None:
        """Records an evaluation.

        Raises:
          StorageError: the file system refused; the table is as it was before.
        """
        self._table.append(row.row())
        self._live.take_evaluation(row)
        self._publish()

    def distances(self, layer: str, distances: ArrayLike) -> None:
        """Notes a batch's distances to a layer's nearest keys, `[B]`; shown with the next row."""
        self._live.take_distances(layer, distances)

    def weights(self, layer: str, weights: Iterable[ArrayLike]) -> None:
        """Notes the effective weights of a layer's entries, in parts `[n]`; shown with the next row."""
        self._live.take_weights(layer, weights)

    def failed(self, error: BaseException) -> None:
        """Shows that the run has failed, and by what kind of exception."""
        self._live.last_error = type(error).__name__, self._clock()
        self._publish()

    def predictions(
        self, origins: ArrayLike, labels: ArrayLike, predictions: ArrayLike, losses: ArrayLike
    ) -> None:
        """Records a batch's predictions, made before learning from it; many are written at once.

        The arrays may not change afterwards.

        Args:
          origins: `[B]` int, stream offsets.
          labels: `[B]` int class indices, or `[B]` / `[B, F]` float targets.
          predictions: like `labels`.
          losses: `[B]` float.

        Raises:
          DataError: the arrays of a batch since the last write do not match each other or the log's layout.
          StorageError: the file system refused; nothing is lost of what is held.
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

    def committed(self, disk_bytes: Mapping[str, int] | None = None) -> None:
        """Notes that a commit has just been made.

        Args:
          disk_bytes: by layer, the bytes of its files; None: as before.
        """
        self._live.last_commit = self._clock()
        if disk_bytes is not None:
            self._live.disk_bytes = disk_bytes
        self._publish()

    def close(self) -> None:
        """Writes what is held and closes the files and the sinks; closing twice is harmless.

        Raises:
          DataError, StorageError: as `predictions`; all is closed all the same.
        """
        with ExitStack() as closing:
            for sink in self._sinks:
                closing.callback(sink.close)
            closing.callback(self._log.close)
            closing.callback(self._table.close)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An exception under way is told rather than the loss of the last predictions, which are made again.
        with suppress(LaminaError) if kind is not None else nullcontext():
            self.close()

    def _publish(self) -> None:
        if self._sinks:
            samples = self._live.snapshot().samples
            for sink in self._sinks:
                sink.publish(samples)
