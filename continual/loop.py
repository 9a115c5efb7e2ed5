"""The loop: predict, score, learn, record, evaluate, commit."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..durable import storage_errors
from ..errors import LaminaError
from ..monitoring import ProgressLine, StepRow, write_report, write_summary
from ..monitoring.report import REPORT_NAME
from ..monitoring.summary import SUMMARY_NAME
from ..stream import Batch
from ..stream.schema import Array
from .acting import act
from .consolidating import consolidate
from .effective import effective_weights
from .examining import Examiner
from .finite import require_finite
from .phase_config import MemoryAction
from .process_memory import release_free_memory
from .run_config import END_TAG
from .scores import Score, recorded, score
from .summary import summarise
from .timing import StepTimes, Stopwatch
from .what_if import what_if

if TYPE_CHECKING:
    from .run import Run

WEIGH_SHARE = 0.003  # of the time, for looking at all entries' weights while Prometheus is served


class Loop:
    """One call of `Run.execute`: moves a run's state and progress forward.

    Args:
      run: the run.
      quiet: show no progress line.
    """

    def __init__(self, run: "Run", *, quiet: bool = False) -> None:
        self._run = run
        self._quiet = quiet
        self._watch = Stopwatch()
        self._times = StepTimes()
        self._committed_at, self._commit_seconds = time.perf_counter(), 0.0
        self._weighed_at, self._weigh_seconds = -math.inf, 0.0
        self._examiner = Examiner(run, self._watch)
        self._line = self._new_line()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def learn(self, steps: int | None, stop: threading.Event) -> bool:
        """Learns from at most `steps` batches, or until `stop` is set.

        Returns:
          Whether the end of the last phase was reached.
        """
        run, done = self._run, 0
        while True:
            if run.progress.ended:
                self._enter_next_phase()
            if not run.progress.begun:
                self._begin_phase()
            begin = time.perf_counter()
            if stop.is_set() or done == steps:
                return False
            batch = self._next()
            if batch is None:
                if run.progress.number + 1 == len(run.phases):
                    return True
                self._end_phase()
                continue
            with run.indivisible():
                self._learn_from(batch, begin)
            done += 1
            if self._commit_due():
                self._commit()
            self._show()

    def finish(self) -> None:
        """At the last phase's end: its last row, a full evaluation, the last commit, summary and report."""
        run = self._run
        if not run.progress.finished:
            self._end_phase()
        report = run.directory / REPORT_NAME
        if not (run.directory / SUMMARY_NAME).exists():
            with storage_errors(report):
                report.unlink(missing_ok=True)  # somebody may have asked for one on the way
            write_summary(run.directory, summarise(run, self._times))
        if not report.exists():
            write_report(run.directory, what_if=what_if(run.directory))

    def _enter_next_phase(self) -> None:
        with self._run.indivisible():
            self._run.enter_next_phase()
        self._line.close()
        self._line = self._new_line()

    def _begin_phase(self) -> None:
        run = self._run
        with run.indivisible():
            if run.progress.number == 0 and len(run.phases) > 1:
                self._examiner.untrained()
            self._act(run.stage.phase.config.begin)
            run.check_caps()
            run.progress = replace(run.progress, begun=True)
        if run.config.phases:
            self._commit()

    def _end_phase(self) -> None:
        run = self._run
        last = run.progress.number + 1 == len(run.phases)
        with run.indivisible():
            for batch in run.waiting.rest():
                self._update(batch, predicted=True)
            skipped = run.progress.skipped_before + run.reader.skipped  # also behind the last batch
            fresh = skipped - run.progress.skipped
            run.progress = replace(run.progress, offset=run.reader.offset, skipped=skipped)
            if run.progress.window.examples or fresh:
                self._record()
            self._examiner.phase_end()
            consolidate(run)
            self._act(run.stage.phase.config.end)
            run.progress = replace(run.progress, ended=True, finished=last)
        run.commit(END_TAG if last else run.stage.phase.name)

    def _act(self, actions: Sequence[MemoryAction]) -> None:
        """Does a phase's actions; a row says what they have left."""
        act(self._run, actions)
        if actions:
            self._record()

    def _new_line(self) -> ProgressLine:
        done = self._run.progress.phase.examples
        return ProgressLine(self._run.reader.log.total, done=done, quiet=self._quiet)

    def _next(self) -> Batch | None:
        """The next batch; None at the end. If the stream is bad, what was learnt before is committed."""
        try:
            with self._watch.part("wait"):
                return next(self._run.reader, None)
        except LaminaError:
            self._run.commit()
            raise

    def _learn_from(self, batch: Batch, begin: float) -> None:
        if self._run.waiting.late:
            self._predict(batch)
            for due in self._run.waiting.put(batch):
                self._update(due, predicted=True)
        else:
            self._update(batch, predicted=False)
        self._times.add(time.perf_counter() - begin)
        self._examiner.on_the_way(len(batch.origins))

    def _predict(self, batch: Batch) -> None:
        """Predicts a batch whose labels have not arrived; they are looked at to score it."""
        run = self._run
        with self._watch.part("compute"):
            outputs, losses = run.learner.answer(run.state, batch.x, batch.y)
        self._score(batch, batch.origins + run.stage.span.start, outputs, losses)

    def _update(self, batch: Batch, *, predicted: bool) -> None:
        """Learns from a batch; its predictions count unless it was predicted before."""
        run, count = self._run, len(batch.origins)
        lesson = run.stage.lesson(batch, run.state, run.replay)
        shape = self._shape(len(lesson.origins), replays=lesson.weights is not None)
        if shape not in run.progress.shapes:
            run.learner.drop_programs()
        with self._watch.part("compute"):
            run.state, result = run.learner.update(run.state, lesson, lesson.weights)
            jax.block_until_ready(result.losses)
        self._watch.move(result.maintain_seconds, "compute", "maintain")
        with self._watch.part("append"):
            jax.block_until_ready(result.changes)
        losses, origins = np.asarray(result.losses), lesson.origins[:count]
        require_finite(run.state.step, "losses", [losses])
        if not predicted:
            outputs = jax.tree.map(lambda found: np.asarray(found)[:count], result.outputs)
            self._score(batch, origins, outputs, losses[:count])
        for layer, distances in result.nearest.items():
            run.recorder.distances(layer, distances[_rows_of(result.examples.get(layer), count)])
        if shape not in run.progress.shapes:
            release_free_memory()  # of the compilation
        run.replay.saw(run.state.step, origins, batch.y)
        run.progress = run.progress.learnt(shape, result.pruning_bounds)
        if run.state.step % run.config.record_every == 0:
            self._record()

    def _shape(self, batch: int, *, replays: bool) -> str:
        """What the training step's program depends on."""
        capacities = (memory.database.capacity for memory in self._run.state.memories.values())
        kind = "replay " if replays else ""
        return f"{self._run.stage.label}{kind}{batch}x{'+'.join(map(str, capacities))}"

    def _score(self, batch: Batch, origins: Array, outputs: Any, losses: Array) -> None:
        """Scores and records predictions of the stream's own examples, made before learning from them."""
        run = self._run
        labels, predicted = recorded(run.learner.task, outputs, batch.y)
        run.recorder.predictions(origins, labels, predicted, losses)
        drifts = run.drift_watch.watch(labels, predicted, losses)
        run.progress = run.progress.predicted(
            score(run.learner.task, outputs, losses, batch.y),
            batch.offset,
            run.reader.skipped,
            origins[drifts].tolist(),
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
                phase=self._run.stage.phase.name,
                prequential_accuracy=progress.phase.accuracy(task),
                window_accuracy=progress.window.accuracy(task),
                loss=progress.window.mean_loss(),
                layers=layers,
                skipped_examples=progress.skipped,
                compilations=len(progress.shapes),
                drifts=len(progress.drifts),
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
        if self._run.recorder.watched and begin - self._weighed_at > self._weigh_seconds / WEIGH_SHARE:
            for layer, memory in self._run.state.memories.items():
                self._run.recorder.weights(layer, effective_weights(memory))
            self._weighed_at = time.perf_counter()
            self._weigh_seconds = self._weighed_at - begin

    def _commit_due(self) -> bool:
        every = self._run.config.commit.every_steps
        if every is not None:
            return self._run.state.step > 0 and self._run.state.step % every == 0
        elapsed = time.perf_counter() - self._committed_at
        return elapsed > self._commit_seconds / self._run.config.commit.share

    def _commit(self) -> None:
        begin = time.perf_counter()
        with self._watch.part("commit"):
            self._run.commit()
            release_free_memory()  # of the rows on their way to disk
        self._committed_at = time.perf_counter()
        self._commit_seconds = self._committed_at - begin

    def _show(self) -> None:
        run = self._run
        entries = sum(memory.entries for memory in run.state.memories.values())
        accuracy = run.progress.phase.accuracy(run.learner.task)
        self._line.update(run.state.step, run.progress.phase.examples, entries, accuracy)


def _rows_of(examples: jax.Array | None, count: int) -> slice | np.ndarray:
    """A layer's rows that belong to the first `count` examples of a batch."""
    return slice(count) if examples is None else np.asarray(examples) < count
