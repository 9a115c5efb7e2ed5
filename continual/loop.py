"""The loop: predict, score, learn, record, evaluate, commit."""

import math
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np

from ..durable import storage_errors
from ..errors import LaminaError
from ..learners import Result
from ..monitoring import EvaluationRow, ProgressLine, StepRow, write_report, write_summary
from ..monitoring.report import REPORT_NAME
from ..monitoring.summary import SUMMARY_NAME
from ..stream import Batch
from .effective import effective_weights
from .evaluation import Score, predictions, score
from .finite import require_finite
from .process_memory import release_free_memory
from .summary import summarise
from .timing import StepTimes, Stopwatch

if TYPE_CHECKING:
    from .run import Run

PHASE = "online"
_WEIGH_SHARE = 0.003  # of the time, for looking at all entries' weights while Prometheus is served
END_TAG = "end"  # keeps the memory of a finished run


class Loop:
    """One call of `Run.execute`: moves a run's state and progress forward.

    Args:
      run: the run.
      quiet: show no progress line.
    """

    def __init__(self, run: "Run", *, quiet: bool = False) -> None:
        self._run = run
        self._watch = Stopwatch()
        self._times = StepTimes()
        self._committed_at, self._commit_seconds = time.perf_counter(), 0.0
        self._weighed_at, self._weigh_seconds = -math.inf, 0.0
        self._line = ProgressLine(run.reader.log.total, done=run.progress.examples, quiet=quiet)

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def learn(self, steps: int | None, stop: threading.Event) -> bool:
        """Learns from at most `steps` batches, or until `stop` is set.

        Returns:
          Whether the stream's end was reached.
        """
        done = 0
        while steps is None or done < steps:
            if stop.is_set():
                return False
            begin = time.perf_counter()
            batch = self._next()
            if batch is None:
                return True
            with self._run.indivisible():
                self._learn_from(batch, begin)
            done += 1
            if self._commit_due():
                self._commit()
            self._show()
        return False

    def finish(self) -> None:
        """At the stream's end: the last row, a full evaluation, the last commit, summary and report."""
        run = self._run
        if not run.progress.finished:
            with run.indivisible():
                self._end()
            run.commit(END_TAG)
        report = run.directory / REPORT_NAME
        if not (run.directory / SUMMARY_NAME).exists():
            with storage_errors(report):
                report.unlink(missing_ok=True)  # somebody may have asked for one on the way
            write_summary(run.directory, summarise(run, self._times))
        if not report.exists():
            write_report(run.directory)

    def _next(self) -> Batch | None:
        """The next batch; None at the end. If the stream is bad, what was learnt before is committed."""
        try:
            with self._watch.part("wait"):
                return next(self._run.reader, None)
        except LaminaError:
            self._run.commit()
            raise

    def _learn_from(self, batch: Batch, begin: float) -> None:
        self._update(batch)
        self._times.add(time.perf_counter() - begin)
        if self._run.state.step % self._run.config.record_every == 0:
            self._record()
        if self._evaluation_due(len(batch.origins)):
            self._evaluate(self._run.config.evaluation.examples)

    def _end(self) -> None:
        run = self._run
        skipped = run.reader.skipped - run.progress.skipped  # behind the last batch
        run.progress = replace(run.progress, offset=run.reader.offset, skipped=run.reader.skipped)
        if run.progress.window.examples or skipped:
            self._record()
        self._evaluate(None)
        run.progress = replace(run.progress, finished=True)

    def _update(self, batch: Batch) -> None:
        shape = self._shape(len(batch.origins))
        if shape not in self._run.progress.shapes:
            self._run.learner.drop_programs()
        with self._watch.part("compute"):
            self._run.state, result = self._run.learner.update(self._run.state, batch)
            jax.block_until_ready(result.losses)
        self._watch.move(result.maintain_seconds, "compute", "maintain")
        with self._watch.part("append"):
            jax.block_until_ready(result.changes)
        self._score(batch, result, shape)

    def _shape(self, batch: int) -> str:
        """What the training step's program depends on."""
        capacities = (memory.database.capacity for memory in self._run.state.memories.values())
        return f"{batch}x{'+'.join(map(str, capacities))}"

    def _score(self, batch: Batch, result: Result, shape: str) -> None:
        outputs, losses = np.asarray(result.outputs), np.asarray(result.losses)
        require_finite(self._run.state.step, "losses", [losses])
        predicted = predictions(self._run.learner.task, outputs)
        labels = batch.y.reshape(predicted.shape)
        self._run.recorder.predictions(batch.origins, labels, predicted, losses)
        for layer, distances in result.nearest.items():
            self._run.recorder.distances(layer, distances)
        batch_score = score(self._run.learner.task, outputs, losses, labels)
        if shape not in self._run.progress.shapes:
            release_free_memory()  # of the compilation
        self._run.progress = self._run.progress.learnt(
            batch_score, batch.offset, self._run.reader.skipped, shape
        )

    def _record(self) -> None:
        parts, wall = self._watch.read()
        layers = self._run.layer_rows()
        progress, task = self._run.progress, self._run.learner.task
        self._weigh()
        self._run.recorder.step(
            StepRow(
                step=self._run.state.step,
                examples=progress.examples,
                offset=progress.offset,
                phase=PHASE,
                prequential_accuracy=progress.phase.accuracy(task),
                window_accuracy=progress.window.accuracy(task),
                loss=progress.window.mean_loss(),
                layers=layers,
                skipped_examples=progress.skipped,
                compilations=len(progress.shapes),
                wall_seconds=wall,
                examples_per_second=progress.window.examples / wall,
                **{f"{part}_seconds": seconds for part, seconds in parts.items()},
            ),
            lag=self._run.reader.lag() if self._run.recorder.watched else None,
        )
        self._run.progress = replace(progress, window=Score(), wall_seconds=progress.wall_seconds + wall)

    def _weigh(self) -> None:
        """Shows the effective weights of all entries, as often as takes a small share of the time."""
        begin = time.perf_counter()
        if self._run.recorder.watched and begin - self._weighed_at > self._weigh_seconds / _WEIGH_SHARE:
            for layer, memory in self._run.state.memories.items():
                self._run.recorder.weights(layer, effective_weights(memory))
            self._weighed_at = time.perf_counter()
            self._weigh_seconds = self._weighed_at - begin

    def _evaluation_due(self, batch: int) -> bool:
        every = self._run.config.evaluation.every_examples
        at_end = self._run.progress.offset == self._run.reader.log.total  # evaluated in full by `finish`
        if self._run.held_out is None or every is None or at_end:
            return False
        return self._run.progress.examples // every > (self._run.progress.examples - batch) // every

    def _evaluate(self, examples: int | None) -> None:
        if self._run.held_out is None:
            return
        with self._watch.part("evaluate"):
            begin = time.perf_counter()
            result = self._run.held_out.evaluate(
                self._run.learner, self._run.state, self._run.reader.prepare, examples=examples
            )
            seconds = time.perf_counter() - begin
            release_free_memory()
        self._run.recorder.evaluation(
            EvaluationRow(
                step=self._run.state.step,
                examples=self._run.progress.examples,
                phase=PHASE,
                task=self._run.held_out.split,
                accuracy=result.accuracy(self._run.learner.task),
                loss=result.mean_loss(),
                evaluated_examples=result.examples,
                evaluation_seconds=seconds,
            )
        )
        self._run.progress = replace(self._run.progress, evaluation=result)

    def _commit_due(self) -> bool:
        every = self._run.config.commit.every_steps
        if every is not None:
            return self._run.state.step % every == 0
        elapsed = time.perf_counter() - self._committed_at
        return elapsed > self._commit_seconds / self._run.config.commit.share

    def _commit(self) -> None:
        begin = time.perf_counter()
        with self._watch.part("commit"):
            self._run.commit()
        self._committed_at = time.perf_counter()
        self._commit_seconds = self._committed_at - begin

    def _show(self) -> None:
        run = self._run
        entries = sum(int(memory.database.entries) for memory in run.state.memories.values())
        accuracy = run.progress.phase.accuracy(run.learner.task)
        self._line.update(run.state.step, run.progress.examples, entries, accuracy)
