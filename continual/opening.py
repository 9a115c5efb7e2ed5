"""Opening what a run consists of: store, stream, learner and tasks, at the last commit or at the start."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..learners import State, Task, initial_key
from ..memory.spill import clear_spilled
from ..memory.store import Store
from ..monitoring import Recorder, Sink
from ..monitoring.predictions import Task as PredictedKind
from ..stream import LogBuilder
from .beginning import first_progress
from .building import check_learners, prepare_jax
from .checkpoint import Checkpointer, load_progress, load_state, load_waiting
from .evaluation import HeldOut
from .origin import MEMORY, Origin
from .progress import Progress
from .replay import Replay
from .run_config import Phase, RunConfig, phases_of
from .stage import SPILL, Stage, log_builder
from .tasks import check_schemas, open_tasks, phase_schemas
from .waiting import Waiting
from .watching import facts


@dataclass(frozen=True)
class Parts:
    """What a run consists of, beside its files of metrics and predictions."""

    checkpointer: Checkpointer
    progress: Progress
    builder: LogBuilder | None  # writes the logs from the present phase on
    stage: Stage
    tasks: dict[str, HeldOut]
    state: State
    replay: Replay
    waiting: Waiting
    positions: dict[str, int] | None  # where those files end in the last commit; None: a new run


def check_new(config: RunConfig) -> None:
    """Refuses, before a folder is made, phases that cannot be learnt one after the other.

    Raises:
      ConfigError: their examples or learners do not agree.
      MissingDataError, DataError: a stream cannot be read.
    """
    phases = phases_of(config)
    schema, others = phase_schemas(phases)
    check_schemas(schema, others)
    if len(phases) > 1:
        check_learners(config, phases, schema)


def open_parts(
    config: RunConfig,
    phases: tuple[Phase, ...],
    directory: Path,
    resources: ExitStack,
    origin: Origin | None,
) -> Parts:
    """Opens a run's folder.

    Args:
      config: the run's configuration.
      phases: its phases.
      directory: its folder, locked.
      resources: closes what is opened.
      origin: a persisted memory that a new run starts from.

    Raises:
      ConfigError: what is committed, the learner, the stream and the tasks do not fit each other.
      MissingDataError, DataError, FormatError, StorageError: something cannot be read or written.
    """
    prepare_jax(config)
    store = _open_store(directory / MEMORY, origin)
    resources.callback(store.close)
    committed = store.generation() if store.head is not None else None
    found = None if committed is None else load_progress(committed)
    progress = first_progress(config, found, origin)
    saved: dict[str, Any] = found if found is not None and origin is None else {}
    builder = log_builder(config, phases, directory, progress)
    if builder is not None:
        resources.enter_context(builder)
    clear_spilled(directory / SPILL)
    stage = Stage(config, phases, directory, progress, builder)
    tasks = open_tasks(config, phases)
    check_schemas(stage.reader.log.schema, {f"task {name}": task.schema for name, task in tasks.items()})
    state = stage.learner.init(initial_key(config.seed))
    checkpointer = Checkpointer(store, {})
    if committed is not None:
        # The first actions of a phase may see to a cap that does not hold yet.
        capped = progress.begun or not stage.phase.config.begin
        state, maps = load_state(committed, stage.learner, state, capped=capped)
        checkpointer = Checkpointer(store, maps)
    if saved:
        stage.reader.restore(saved["reader"])
    replay = Replay(config.seed, [phase.config.replay for phase in phases], saved.get("replay"))
    late = load_waiting(committed) if committed is not None and saved else None
    waiting = Waiting(-(-config.label_delay // config.batch_size), late)
    positions = saved.get("positions")
    return Parts(checkpointer, progress, builder, stage, tasks, state, replay, waiting, positions)


def open_recorder(
    directory: Path,
    config: RunConfig,
    stage: Stage,
    positions: dict[str, int] | None,
    sinks: tuple[Sink, ...],
) -> Recorder:
    """Opens a run's files of metrics and predictions, at the positions of its last commit if it has one."""
    task = stage.learner.task
    return Recorder(
        directory,
        config.name,
        _kind(task),
        outputs=task.outputs,
        positions=positions,
        sinks=sinks,
        facts=facts(stage.learner, stage.reader.log.total),
    )


def _kind(task: Task) -> PredictedKind:
    if task.language:
        return "language"
    return "classification" if task.classification else "regression"


def _open_store(path: Path, origin: Origin | None) -> Store:
    if origin is not None:
        return origin.branch(path)
    return Store.open(path, writable=True) if path.exists() else Store.create(path)
