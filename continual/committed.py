"""A run's last commit, for those who only ask what was learnt."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..learners import Learner, State, initial_key
from ..memory.store import Generation, Store
from ..stream import Schema
from .building import learner_of, prepare_jax
from .checkpoint import load_progress, load_state
from .config import RunConfig, parse_config, read_config
from .new_folder import require_run
from .origin import MEMORY
from .progress import Progress
from .run_config import Phase, phases_of


@dataclass(frozen=True)
class Committed:
    """What a run has committed, while it is open."""

    config: RunConfig
    saved: dict[str, Any]  # progress of run and reader, as plain values
    progress: Progress
    phase: Phase  # the present one
    generation: Generation

    def learner(self, schema: Schema) -> Learner:
        """Who learns in the present phase, from a stream of that schema."""
        return learner_of(self.config, self.phase, schema)

    def state(self, learner: Learner) -> State:
        """What the learner has learnt."""
        return load_state(self.generation, learner, learner.init(initial_key(self.config.seed)))[0]


@contextmanager
def committed(directory: Path) -> Iterator[Committed]:
    """Opens a run's last commit; the run's folder is only read.

    Args:
      directory: the run's folder.

    Raises:
      MissingDataError: there is no run, or nothing is committed.
      FormatError: it is damaged.
    """
    config = parse_config(read_config(require_run(directory)))
    prepare_jax(config)
    with Store.open(directory / MEMORY) as store, store.generation() as generation:
        saved = load_progress(generation)
        progress = Progress.from_json(saved["run"])
        yield Committed(config, saved, progress, phases_of(config)[progress.number], generation)
