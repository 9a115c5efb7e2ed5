"""A run in its folder: created, forked, resumed, executed, committed, closed."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..durable import FolderLock
from ..errors import LaminaError
from ..learners import Learner, State, initial_key
from ..memory.store import Store
from ..monitoring import LayerRow
from ..stream import StreamReader
from .adopting import adopted, check_cap
from .building import prepare_jax
from .config import RunConfig, config_yaml, parse_config, read_config
from .counts import EntryCounts, Totals, layer_rows
from .detecting import DriftWatch
from .forking import forked_config, share
from .interrupts import interruptible
from .loop import Loop
from .new_folder import NewFolder, require_run
from .opening import check_new, open_parts, open_recorder
from .origin import Origin
from .progress import Progress
from .run_config import phases_of
from .spans import Span
from .stage import Stage
from .watching import Watching, layer_disk_bytes, open_sinks

_UNWATCHED = Watching()


class HaltedError(LaminaError, RuntimeError):
    """A run that stopped in the middle of a step, so that only its last commit can go on."""


@dataclass(frozen=True)
class Outcome:
    """How a call of `Run.execute` ended."""

    finished: bool  # the last phase was learnt to its end
    progress: Progress


class Run:
    """A run in its folder, open for writing; one at a time.

    Get one from `Run.create` or `Run.resume`, call `execute`, and close it (or use it in a `with`).

    Attributes:
      config: its configuration.
      phases: its phases.
      directory: its folder.
      stage: what is open in the present phase: reader and learner.
      state: what the learner has learnt.
      progress: what the run has done.
      replay: the examples that may be learnt from again.
      waiting: the batches that are predicted and wait for their labels.
      drift_watch: watches the errors of its predictions.
      tasks: the data it is evaluated on, by name.
      recorder: where its metrics and predictions go.
      exporter: serves Prometheus, or None.
      metrics_port: where it does, or None.
      repeating: steps after the last commit that are known to be done again after this resume.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        resources: ExitStack,
        *,
        origin: Origin | None = None,
        watching: Watching = _UNWATCHED,
    ) -> None:
        self.config, self.directory, self.phases = config, directory, phases_of(config)
        self.repeating = 0
        self.drift_watch = DriftWatch(config.drift_detection)
        self._resources = resources
        self._stop = threading.Event()
        self._halted = False
        parts = open_parts(config, self.phases, directory, resources, origin)
        self.stage, self.tasks = parts.stage, parts.tasks
        self.replay, self.waiting = parts.replay, parts.waiting
        self._builder = parts.builder
        self.state, self.progress = parts.state, parts.progress
        self._checkpointer = parts.checkpointer
        self._counts = EntryCounts(self.state, self.progress.totals)
        sinks = open_sinks(watching, resources, directory)
        self.exporter = sinks.exporter
        self.metrics_port = None if self.exporter is None else self.exporter.port
        self.recorder = resources.enter_context(
            open_recorder(directory, config, self.stage, parts.positions, sinks.all)
        )
        self.drift_watch.catch_up(directory)

    @classmethod
    def create(
        cls,
        config: RunConfig,
        directory: Path,
        *,
        origin: Origin | None = None,
        metrics_port: int | None = None,
        watching: Watching = _UNWATCHED,
    ) -> "Run":
        """Starts a run in a new folder; if that fails, the folder is as it was before.

        Args:
          config: the configuration.
          directory: an empty folder, or one to make.
          origin: a persisted memory to start from.
          metrics_port: serves Prometheus on this port (0: a free one); short for `watching`'s.
          watching: where its metrics go beside the folder.

        Raises:
          ConfigError: the folder holds something, or the memory does not fit the learner.
          BusyError: somebody else writes there, or uses the port.
          StorageError: the file system refused.
          MissingDataError, DataError: the stream or the memory cannot be read.
        """
        check_new(config)
        with NewFolder(directory, config_yaml(config)) as folder, ExitStack() as resources:
            run = cls(config, directory, resources, origin=origin, watching=_with(watching, metrics_port))
            return run._begun(folder, resources)

    @classmethod
    def fork(
        cls,
        origin: Origin,
        directory: Path,
        settings: Sequence[str] = (),
        *,
        watching: Watching = _UNWATCHED,
    ) -> "Run":
        """Starts a run where another was at a commit, with other settings from there on.

        The two share the memory's bytes, and the other run is never changed.

        Args:
          origin: the other run, and one of its commits: the last one or a tagged one.
          directory: an empty folder, or one to make; its name is the run's.
          settings: `a.b=value`; what has come by already cannot be changed.
          watching: where its metrics go beside the folder.

        Raises:
          ConfigError: the folder holds something, or a setting is wrong.
          MissingDataError, FormatError: there is no such run or commit, or it is damaged.
          BusyError, StorageError: as `create`.
        """
        config = forked_config(origin, directory.resolve().name, settings)
        check_new(config)
        with NewFolder(directory, config_yaml(config)) as folder, ExitStack() as resources:
            share(origin, directory)
            run = cls(config, directory, resources, watching=watching)
            run.progress = replace(run.progress, finished=False)
            return run._begun(folder, resources)

    @classmethod
    def resume(
        cls, directory: Path, *, metrics_port: int | None = None, watching: Watching = _UNWATCHED
    ) -> "Run":
        """Opens a run to go on from its last commit, bit for bit.

        Raises:
          MissingDataError: there is no run.
          BusyError: somebody else writes it.
          FormatError: it is damaged, or written by a newer version.
        """
        config_file = require_run(directory)
        with ExitStack() as resources:
            resources.enter_context(FolderLock(directory))
            config = parse_config(read_config(config_file))
            run = cls(config, directory, resources, watching=_with(watching, metrics_port))
            run._count_repeated()
            run._resources = resources.pop_all()
            return run

    def execute(self, steps: int | None = None, *, quiet: bool = False) -> Outcome:
        """Goes on with the phases: to their end, for `steps` updates, or until SIGINT or SIGTERM.

        Everything is committed before it returns. At each phase's end the held-out data is evaluated in full,
        and after the last one `summary.json` and `report.html` are written.

        Args:
          steps: most updates to do now; None: all that are left.
          quiet: show no progress line.

        Raises:
          DivergedError: learning left the finite numbers; the last commit is intact.
          StorageError: the file system refused; the last commit is intact.
          DataError: the stream is bad; what was learnt before is committed.
          HaltedError: an earlier call ended in the middle of a step; close the run and resume it.
        """
        prepare_jax(self.config)
        self._check_whole()
        loop = Loop(self, quiet=quiet)
        with interruptible(self._stop), loop, self._failures_shown():
            finished = self.progress.finished or loop.learn(steps, self._stop)
            if finished:
                loop.finish()
            else:
                self.commit()
        self._stop.clear()
        return Outcome(finished, self.progress)

    @contextmanager
    def indivisible(self) -> Iterator[None]:
        """What is done inside is done wholly; failing that, only the last commit can go on."""
        self._halted = True
        yield
        self._halted = False

    @contextmanager
    def _failures_shown(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.recorder.failed(error)
            raise

    def stop(self) -> None:
        """Asks a running `execute` to commit and return after the present step; safe from any thread."""
        self._stop.set()

    def commit(self, tag: str | None = None) -> None:
        """Makes everything durable now.

        Args:
          tag: keeps this commit under a name, to start other runs from.

        Raises:
          DivergedError: something learnt is not finite; the commit before is intact.
          StorageError: the file system refused; the commit before is intact.
          HaltedError: the run was stopped in the middle of a step or of a commit.
        """
        self._check_whole()
        with self.indivisible():
            self._commit(tag)

    def enter_next_phase(self) -> None:
        """Leaves the present phase, which has ended, and opens the next; what was learnt is handed on.

        Raises:
          ConfigError: the next phase's learner cannot go on with what was learnt.
          MissingDataError, DataError: its stream cannot be read.
        """
        before, statistics = self.stage, self.stage.reader.state()
        phase = self.phases[self.progress.number + 1]
        span = Span(self.progress.origins_end, self.config.name, phase.name, phase.stream)
        self.progress = self.progress.next_phase(span)
        self.stage = Stage(self.config, self.phases, self.directory, self.progress, self._builder, before)
        self.replay.begin_phase()
        if phase.stream.standardise == "running":
            self.stage.continue_statistics(statistics)
        if self.learner is not before.learner:
            self.state = adopted(self.state, self.learner, self.first_state(), f"phase {phase.name}")

    def check_caps(self) -> None:
        """Refuses to go on with more entries than the present learner's caps allow.

        Raises:
          ConfigError: a layer holds more.
        """
        for name, memory in self.state.memories.items():
            check_cap(f"phase {self.stage.phase.name}", name, int(memory.database.entries), self.learner)

    @property
    def learner(self) -> Learner:
        """Who learns in the present phase."""
        return self.stage.learner

    @property
    def reader(self) -> StreamReader:
        """The present phase's stream, at its present position."""
        return self.stage.reader

    def first_state(self) -> State:
        """The learner's own first state."""
        return self.learner.init(initial_key(self.config.seed))

    def replace_memory(self, state: State) -> None:
        """Goes on with entries that are not the last commit's: counts go on, the next commit writes them all.

        Args:
          state: the entries and all else that is learnt, of the present step.
        """
        counted = self._take_counts()
        self.state = state
        self._checkpointer = self._checkpointer.from_scratch()
        self._counts = EntryCounts(state, counted)

    @property
    def store(self) -> Store:
        """Where the run is committed."""
        return self._checkpointer.store

    def layer_rows(self) -> dict[str, LayerRow]:
        """Each layer's entries, capacity, bytes and counts, as of now."""
        return layer_rows(self.state, self._take_counts(), self.progress.pruning)

    def close(self) -> None:
        """Frees the folder, the port and the pipeline; closing twice is harmless."""
        self._resources.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begun(self, folder: NewFolder, resources: ExitStack) -> "Run":
        """Makes a new folder a run, by its first commit."""
        self.commit()
        self._resources = ExitStack()
        self._resources.enter_context(folder.complete())
        self._resources.push(resources.pop_all())
        return self

    def _commit(self, tag: str | None) -> None:
        self._take_counts()
        progress = {
            "run": self.progress.to_json(),
            "reader": self.reader.state(),
            "positions": self.recorder.sync(),
            "replay": self.replay.state(),
        }
        meta = {
            "run": self.config.name,
            "phase": self.stage.phase.name,
            "examples": self.progress.examples,
            "offset": self.progress.offset,
            "totals": self.progress.totals,
            "pruning": self.progress.pruning,
        }
        waiting = self.waiting.dump()
        self._checkpointer = self._checkpointer.commit(self.state, progress, meta, tag, waiting)
        store = self._checkpointer.store
        self.recorder.committed(layer_disk_bytes(store) if self.recorder.watched else None)

    def _check_whole(self) -> None:
        if self._halted:
            raise HaltedError(
                f"{self.directory}: the run was stopped in the middle of a step; close it, and go on "
                f"from its last commit with Run.resume"
            )

    def _take_counts(self) -> Totals:
        totals = self._counts.read(self.state)
        self.progress = replace(self.progress, totals=totals)
        return totals

    def _count_repeated(self) -> None:
        """Counts the steps after the last commit that are now done again, at once durably."""
        dropped = self.recorder.dropped
        predicted = -(-dropped.examples // self.config.batch_size)
        self.repeating = max(dropped.rows.last_step - self.state.step, predicted, 0)  # as far as was written
        if self.repeating:
            repeated = self.progress.repeated_steps + self.repeating
            self.progress = replace(self.progress, repeated_steps=repeated)
            self.commit()


def _with(watching: Watching, port: int | None) -> Watching:
    return watching if port is None else replace(watching, port=port)
