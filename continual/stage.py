"""What a run has open in its present phase: the stream, the learner, and what is replayed beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..learners import Learner, State
from ..stream import Batch, LogBuilder, StreamReader
from ..stream.schema import Array
from .building import learner_of
from .past import Past
from .progress import Progress
from .replay import Replay
from .run_config import Phase, RunConfig
from .spans import Span

LOG = "log"
SPILL = "spill"  # chunks of entries on disk that no commit has taken over yet


@dataclass(frozen=True)
class Lesson:
    """What one update learns from: a batch of the stream, then what is replayed."""

    batch: Batch  # of the stream alone
    x: Array  # [B + R, …]
    y: Array  # [B + R, …]
    origins: Array  # [B + R] int64, numbered through all phases
    weights: Array | None  # [B + R]; None: nothing is replayed


class Stage:
    """One phase of a run, open.

    Attributes:
      phase: the phase.
      reader: its stream, at the present position.
      learner: who learns.
      label: tells the programs of learners with other settings apart; "" for those of the first phase.
    """

    def __init__(
        self,
        config: RunConfig,
        phases: tuple[Phase, ...],
        directory: Path,
        progress: Progress,
        builder: LogBuilder | None,
        before: "Stage | None" = None,
    ) -> None:
        """Opens the phase that `progress` is in.

        Args:
          config: the run's configuration.
          phases: its phases.
          directory: its folder.
          progress: where it is.
          builder: the process that writes the logs of this phase and the later ones.
          before: the phase before, whose learner goes on if its settings are the same.

        Raises:
          ConfigError, MissingDataError, DataError: the stream or the learner cannot be had.
        """
        self.phase = phases[progress.number]
        kept = self.phase.config.log
        self.reader = StreamReader.from_config(
            kept or log_folder(config, self.phase, directory),
            config.batch_size,
            self.phase.stream,
            offset=progress.offset,
            builder=builder if kept is None else None,
        )
        alike = next(phase for phase in phases if _settings(phase) == _settings(self.phase))
        self.label = f"{alike.name}:" if alike.number else ""
        self.learner: Learner
        if before is not None and _settings(before.phase) == _settings(self.phase):
            self.learner = before.learner
        else:
            self.learner = learner_of(config, self.phase, self.reader.log.schema, directory / SPILL)
        self._past = Past(progress.spans)

    @property
    def span(self) -> Span:
        """Where the origins of the phase's examples lie."""
        return self._past.spans[-1]

    def lesson(self, batch: Batch, state: State, replay: Replay) -> Lesson:
        """Adds what is replayed to a batch of the stream.

        Args:
          batch: the batch, with its offsets in the phase's stream.
          state: what is learnt so far.
          replay: the run's buffers; a restreamed phase advances.
        """
        origins = batch.origins + self.span.start
        wanted = self.phase.config.replay
        if wanted is None:
            return Lesson(batch, batch.x, batch.y, origins, None)
        drawn = replay.draw(wanted, state.step + 1, state, self._restreamed())
        if not len(drawn):
            return Lesson(batch, batch.x, batch.y, origins, None)
        x, y, drawn = self._past.read(drawn, self.reader.prepare)
        weights = np.concatenate([np.ones(len(origins)), np.full(len(drawn), wanted.weight)])
        return Lesson(
            batch,
            np.concatenate([batch.x, x]),
            np.concatenate([batch.y, y]),
            np.concatenate([origins, drawn]),
            weights,
        )

    def first_examples(self, count: int) -> tuple[Array, Array]:
        """x and y of the first good examples that have come by in the phase, as batches have them."""
        seen = min(count, self.reader.offset)
        x, y, _ = self._past.read(self.span.start + np.arange(seen), self.reader.prepare)
        return x, y

    def move_origins(self, spans: tuple[Span, ...]) -> None:
        """From now on origins lie in these spans, the last one the phase's own."""
        self._past = Past(spans)

    def continue_statistics(self, before: Mapping[str, Any]) -> None:
        """Goes on with the running statistics of the phase before.

        Args:
          before: the state of that phase's reader.
        """
        self.reader.restore(self.reader.state() | {"standardiser": before["standardiser"]})

    def _restreamed(self) -> tuple[int, int] | None:
        """First origin and number of examples of the phase that is streamed again."""
        wanted = self.phase.config.replay
        if wanted is None or wanted.phase is None:
            return None
        span = next(each for each in reversed(self._past.spans) if each.phase == wanted.phase)
        length = self._past.length(span.stream)
        assert length is not None  # that phase came to its end
        return span.start, length


def log_folder(config: RunConfig, phase: Phase, directory: Path) -> Path:
    """Where a run builds the log of a phase."""
    return directory / LOG / phase.name if config.phases else directory / LOG


def log_builder(
    config: RunConfig, phases: tuple[Phase, ...], directory: Path, progress: Progress
) -> LogBuilder | None:
    """The process, not started, that writes the logs from the present phase on; None: all are there."""
    wanted = [phase for phase in phases[progress.number :] if phase.config.log is None]
    logs = [(phase.stream, log_folder(config, phase, directory)) for phase in wanted]
    if not logs:
        return None
    offset = progress.offset if wanted[0].number == progress.number else 0
    return LogBuilder(*logs[0], offset, later=logs[1:])


def _settings(phase: Phase) -> tuple[Any, frozenset[str]]:
    return phase.config.learner, frozenset(phase.config.freeze)
