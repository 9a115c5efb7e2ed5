"""A run: the loop that predicts, scores, learns, evaluates, records and commits."""

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import jax
import numpy as np

from ..durable import FolderLock, storage_errors, write_durably
from ..errors import ConfigError, LaminaError, MissingDataError
from ..learners import Learner, Result, build_learner, initial_key
from ..memory.database import COUNTERS
from ..memory.store import Store
from ..monitoring import (
    EvaluationRow,
    LayerRow,
    ProgressLine,
    PrometheusExporter,
    Recorder,
    StepRow,
    write_report,
    write_summary,
)
from ..stream import Batch, LogBuilder, StreamReader, open_source
from .checkpoint import Checkpointer, load_progress, load_state
from .config import RunConfig, config_yaml, parse_config, read_config
from .evaluation import HeldOut, predictions, score, task_of
from .summary import summarise
from .window import Progress, StepTimes, Stopwatch

CONFIG, MEMORY, LOG = "config.yaml", "memory", "log"
PHASE = "online"
END_TAG = "end"  # keeps the memory of a finished run


class DivergedError(LaminaError, ArithmeticError):
    """Learning has left the finite numbers."""


@dataclass(frozen=True)
class Origin:
    """A persisted memory to start a run from: `RUN` or `RUN@STEP`."""

    directory: Path  # the run that holds it
    at: int | str | None = None  # a step or a tag; None: its last commit

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """
        >>> Origin.parse("runs/digits@180").at
        180
        """
        directory, _, at = text.partition("@")
        return cls(Path(directory), int(at) if at.isdigit() else at or None)


@dataclass(frozen=True)
class Outcome:
    """How a call of `Run.execute` ended."""

    finished: bool  # the stream was learnt to its end
    progress: Progress


class Run:
    """A run in its folder, open for writing; one at a time.

    Get one from `Run.create` or `Run.resume`, call `execute`, and close it (or use it in a `with`).

    Attributes:
      config: its configuration.
      directory: its folder.
      learner: the learner.
      state: what it has learnt.
      progress: what the run has done.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        resources: ExitStack,
        *,
        origin: Origin | None = None,
        metrics_port: int | None = None,
    ) -> None:
        self.config = config
        self.directory = directory
        self.progress = Progress()
        self._resources = resources
        self._stop = threading.Event()
        jax.config.update("jax_enable_x64", config.precision == "float64")
        store = self._open_store(origin)
        committed = store.generation() if store.head is not None else None
        if committed is not None and origin is None:
            self.progress = Progress.from_json(load_progress(committed)["run"])
        self._open_stream()
        self.learner = self._build_learner()
        self.state = self.learner.init(initial_key(config.seed))
        self._checkpointer = Checkpointer(store, {})
        positions = None
        if committed is not None:
            self.state, maps = load_state(committed, self.learner, self.state)
            self._checkpointer = Checkpointer(store, maps)
            if origin is None:
                saved = load_progress(committed)
                self._reader.restore(saved["reader"])
                positions = saved["positions"]
        self._totals = dict(self.progress.totals)
        self._counters = self._read_counters()
        sinks = () if metrics_port is None else (PrometheusExporter(metrics_port),)
        self.metrics_port = sinks[0].port if sinks else None
        self._recorder = resources.enter_context(self._open_recorder(positions, sinks))
        self._count_repeated()

    @classmethod
    def create(
        cls,
        config: RunConfig,
        directory: Path,
        *,
        origin: Origin | None = None,
        metrics_port: int | None = None,
    ) -> "Run":
        """Starts a run in a new folder; if that fails, the folder is left as it was.

        Args:
          config: the configuration.
          directory: an empty folder, or one to make.
          origin: a persisted memory to start from.
          metrics_port: serves Prometheus on this port (0: a free one).

        Raises:
          ConfigError: the folder holds something, or the memory does not fit the learner.
          BusyError: somebody else writes there, or uses the port.
          StorageError: the file system refused.
          MissingDataError, DataError: the stream or the memory cannot be read.
        """
        with storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as resources:
            resources.enter_context(FolderLock(directory))
            found = sorted(p.name for p in directory.iterdir() if p.name != ".lock")
            if found:
                raise ConfigError(
                    f"{directory} is not empty (it holds {found[0]}): choose another --run-dir, "
                    f"or go on with lamina resume {directory}"
                )
            cleaning = resources.enter_context(ExitStack())
            cleaning.callback(_clear, directory)
            open_source(config.stream.with_seed(config.seed))  # fails at once where data is missing
            write_durably(directory / CONFIG, config_yaml(config).encode())
            inner = resources.enter_context(ExitStack())
            run = cls(config, directory, inner, origin=origin, metrics_port=metrics_port)
            run.commit()
            cleaning.pop_all()
            run._resources = resources.pop_all()
            return run

    @classmethod
    def resume(cls, directory: Path, *, metrics_port: int | None = None) -> "Run":
        """Opens a run to go on from its last commit, bit for bit.

        Raises:
          MissingDataError: there is no run.
          BusyError: somebody else writes it.
          FormatError: it is damaged, or written by a newer version.
        """
        if not (directory / CONFIG).exists():
            raise MissingDataError(f"{directory}: expected a run's folder with {CONFIG}; there is none")
        with ExitStack() as resources:
            resources.enter_context(FolderLock(directory))
            config = parse_config(read_config(directory / CONFIG))
            run = cls(config, directory, resources, metrics_port=metrics_port)
            run._resources = resources.pop_all()
            return run

    def execute(self, steps: int | None = None, *, quiet: bool = False) -> Outcome:
        """Goes on with the stream: to its end, for `steps` updates, or until SIGINT or SIGTERM.

        Everything is committed before it returns. At the stream's end the held-out data is evaluated in full,
        and `summary.json` and `report.html` are written.

        Args:
          steps: most updates to do now; None: all that are left.
          quiet: show no progress line.

        Raises:
          DivergedError: a loss is not finite; the last commit is intact.
          DataError: the stream is bad; what was learnt before is committed.
        """
        if self.progress.finished:
            return Outcome(True, self.progress)
        self._watch = Stopwatch()
        self._times = StepTimes()
        self._committed_at, self._commit_seconds = time.perf_counter(), 0.0
        with self._signals(), self._progress_line(quiet) as line:
            try:
                finished = self._loop(steps, line)
            except DivergedError:
                raise
            except LaminaError:
                self.commit()
                raise
            if finished:
                self._finish()
            else:
                self.commit()
        return Outcome(finished, self.progress)

    def stop(self) -> None:
        """Asks a running `execute` to commit and return after the present step; safe from any thread."""
        self._stop.set()

    def commit(self, tag: str | None = None) -> None:
        """Makes everything durable now."""
        begin = time.perf_counter()
        self._add_counts()
        progress = {
            "run": self.progress.to_json(),
            "reader": self._reader.state(),
            "positions": self._recorder.sync(),
        }
        meta = {"run": self.config.name, "examples": self.progress.examples, "offset": self.progress.offset}
        self._checkpointer = self._checkpointer.commit(self.state, progress, meta, tag)
        self._recorder.committed()
        self._committed_at = time.perf_counter()
        self._commit_seconds = self._committed_at - begin

    def close(self) -> None:
        """Frees the folder, the port and the pipeline; closing twice is harmless."""
        self._resources.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_store(self, origin: Origin | None) -> Store:
        path = self.directory / MEMORY
        if origin is not None:
            with Store.open(origin.directory / MEMORY) as parent:
                store = parent.branch(path, origin.at)
        elif path.exists():
            store = Store.open(path, writable=True)
        else:
            store = Store.create(path)
        self._resources.callback(store.close)
        return store

    def _open_stream(self) -> None:
        stream = self.config.stream.with_seed(self.config.seed)
        split = self.config.evaluation.split
        self._held_out = None if split is None else HeldOut(stream, split)
        log, builder = Path(self.config.log or self.directory / LOG), None
        if self.config.log is None:
            builder = self._resources.enter_context(LogBuilder(stream, log, self.progress.offset))
        self._reader = StreamReader.from_config(
            log, self.config.batch_size, stream, offset=self.progress.offset, builder=builder
        )

    def _build_learner(self) -> Learner:
        schema = self._reader.log.schema
        return build_learner(
            self.config.learner,
            features=schema.x.size,
            task=task_of(schema),
            batch_size=self.config.batch_size,
            seed=self.config.seed,
        )

    def _open_recorder(
        self, positions: dict[str, int] | None, sinks: tuple[PrometheusExporter, ...]
    ) -> Recorder:
        task = self.learner.task
        return Recorder(
            self.directory,
            self.config.name,
            "classification" if task.classification else "regression",
            outputs=task.outputs,
            positions=positions,
            sinks=sinks,
        )

    def _count_repeated(self) -> None:
        """Counts the steps after the last commit that are now done again."""
        dropped = -(-self._recorder.dropped.examples // self.config.batch_size)
        self.progress = replace(self.progress, repeated_steps=self.progress.repeated_steps + dropped)

    def _loop(self, steps: int | None, line: ProgressLine) -> bool:
        """Whether the stream's end was reached."""
        done = 0
        while steps is None or done < steps:
            if self._stop.is_set():
                return False
            begin = time.perf_counter()
            with self._watch.part("wait"):
                batch = next(self._reader, None)
            if batch is None:
                return True
            self._learn(batch)
            done += 1
            self._times.add(time.perf_counter() - begin)
            if self.state.step % self.config.record_every == 0:
                self._record()
            if self._evaluation_due(len(batch.origins)):
                self._evaluate(self.config.evaluation.examples)
            if self._commit_due(done):
                with self._watch.part("commit"):
                    self.commit()
            line.update(
                self.state.step,
                self.progress.examples,
                self._entries(),
                self.progress.phase.accuracy(self.learner.task),
            )
        return False

    def _learn(self, batch: Batch) -> None:
        with self._watch.part("compute"):
            self.state, result = self.learner.update(self.state, batch)
            jax.block_until_ready(result.losses)
        with self._watch.part("append"):
            jax.block_until_ready(result.changes)
        self._score(batch, result)

    def _score(self, batch: Batch, result: Result) -> None:
        outputs, losses = np.asarray(result.outputs), np.asarray(result.losses)
        if not np.all(np.isfinite(losses)):
            raise DivergedError(
                f"step {self.state.step}: expected finite losses; found {losses[~np.isfinite(losses)][0]}: "
                f"lower the learner's rates; the memory of the last commit is intact"
            )
        predicted = predictions(self.learner.task, outputs)
        labels = batch.y.reshape(predicted.shape)
        self._recorder.predictions(batch.origins, labels, predicted, losses)
        shape = "+".join(str(memory.database.capacity) for memory in self.state.memories.values())
        batch_score = score(self.learner.task, outputs, losses, labels)
        self.progress = self.progress.learnt(
            batch_score, batch.offset, self._reader.skipped, f"{len(labels)}x{shape}"
        )

    def _record(self) -> None:
        self._add_counts()
        parts, wall = self._watch.read()
        progress, task = self.progress, self.learner.task
        self._recorder.step(
            StepRow(
                step=self.state.step,
                examples=progress.examples,
                offset=progress.offset,
                phase=PHASE,
                prequential_accuracy=progress.phase.accuracy(task),
                window_accuracy=progress.window.accuracy(task),
                loss=progress.window.mean_loss(),
                layers=self.layer_rows(),
                skipped_examples=progress.skipped,
                compilations=len(progress.shapes),
                wall_seconds=wall,
                examples_per_second=progress.window.examples / wall,
                **{f"{part}_seconds": seconds for part, seconds in parts.items()},
            )
        )
        self.progress = replace(
            progress, window=type(progress.window)(), wall_seconds=progress.wall_seconds + wall
        )

    def _evaluation_due(self, batch: int) -> bool:
        every = self.config.evaluation.every_examples
        if self._held_out is None or every is None:
            return False
        return self.progress.examples // every > (self.progress.examples - batch) // every

    def _evaluate(self, examples: int | None) -> None:
        if self._held_out is None:
            return
        with self._watch.part("evaluate"):
            begin = time.perf_counter()
            result = self._held_out.evaluate(
                self.learner, self.state, self._reader.prepare, examples=examples
            )
            seconds = time.perf_counter() - begin
        self._recorder.evaluation(
            EvaluationRow(
                step=self.state.step,
                examples=self.progress.examples,
                phase=PHASE,
                task=self._held_out.split,
                accuracy=result.accuracy(self.learner.task),
                loss=result.mean_loss(),
                evaluated_examples=result.examples,
                evaluation_seconds=seconds,
            )
        )
        self.progress = replace(self.progress, evaluation=result)

    def _finish(self) -> None:
        if self.progress.window.examples:
            self._record()
        self._evaluate(None)
        self.progress = replace(self.progress, finished=True)
        self.commit(END_TAG)
        write_summary(self.directory, summarise(self, self._times))
        write_report(self.directory)

    def _commit_due(self, done: int) -> bool:
        every = self.config.commit.every_steps
        if every is not None:
            return self.state.step % every == 0
        elapsed = time.perf_counter() - self._committed_at
        return elapsed > self._commit_seconds / self.config.commit.share

    def layer_rows(self) -> dict[str, LayerRow]:
        """Each layer's entries, capacity, bytes and counts, as of now."""
        return {
            name: LayerRow(
                entries=int(memory.database.entries),
                capacity=memory.database.capacity,
                bytes=memory.database.nbytes,
                **dict(zip(COUNTERS, self.progress.totals[name], strict=True)),
            )
            for name, memory in self.state.memories.items()
        }

    def _entries(self) -> int:
        return sum(int(memory.database.entries) for memory in self.state.memories.values())

    def _read_counters(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(memory.database.counters) for name, memory in self.state.memories.items()}

    def _add_counts(self) -> None:
        """Adds what the databases' wrapping counters gained since they were last read."""
        now = self._read_counters()
        for name, counters in now.items():
            gained = (counters.astype(np.int64) - self._counters[name]) % 2**32
            before = self._totals.get(name, (0,) * len(COUNTERS))
            self._totals[name] = tuple(int(a + b) for a, b in zip(before, gained, strict=True))
        self._counters = now
        self.progress = replace(self.progress, totals=dict(self._totals))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for a commit and an end; a second SIGINT interrupts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            if self._stop.is_set() and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop.set()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _progress_line(self, quiet: bool) -> ProgressLine:
        return ProgressLine(self._reader.log.total, done=self.progress.examples, quiet=quiet)


def _clear(directory: Path) -> None:
    """Empties the folder of a run that could not start."""
    for path in directory.iterdir():
        if path.name != ".lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
