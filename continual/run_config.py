"""What a run's configuration consists of: a stream, a learner, and the phases that change them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from ..learners.config import LearnerConfig
from ..stream import StreamConfig
from .detecting import DetectorConfig
from .phase_config import PhaseConfig
from .scenarios import ScenarioConfig

ONLINE = "online"  # the phase of a run whose configuration names none
END_TAG = "end"  # keeps the memory of a finished run

_STRICT = ConfigDict(extra="forbid")
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


@config(frozen=True, config=_STRICT, kw_only=True)
class EvaluationConfig:
    """Evaluation on held-out data while the stream passes by. A phase's end is always evaluated in full."""

    # Examples learnt from between two evaluations; None: only at the ends of phases.
    every_examples: Annotated[int, Field(gt=0)] | None = None
    # Most held-out examples (the first ones) of a task in an evaluation on the way; None: all.
    examples: Annotated[int, Field(gt=0)] | None = None
    # Largest share of the work that evaluations on the way may take, counted in examples so that it is the
    # same in every run: predicting an example counts as half of learning from one. None: no budget.
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    # The part of each phase's data set that is held out, a task per phase; None: no such tasks.
    split: str | None = "test"
    # Further tasks by name, each a stream whose whole is held out.
    tasks: dict[_Name, StreamConfig] = field(default_factory=dict)


@config(frozen=True, config=_STRICT, kw_only=True)
class CommitConfig:
    """When everything is made durable. An interruption loses at most what came after the last commit."""

    # Steps between two commits; None: chosen so that committing takes `share` of the time.
    every_steps: Annotated[int, Field(gt=0)] | None = None
    # Share of the time that committing may take where every_steps is None.
    share: Annotated[float, Field(gt=0, le=1)] = 0.03


@config(frozen=True, config=_STRICT, kw_only=True)
class RunConfig:
    """One run: a learner over one pass of a stream, or over several phases."""

    # Names the run in metrics and reports, and its folder where none is given.
    name: Annotated[str, Field(min_length=1)]
    # Fixes everything random: order, augmentation, replay, initial entries, initial weights.
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    # What passes by; phases say what differs from it.
    stream: StreamConfig
    # A log built before (`lamina stream build`) to read instead of building one in the run's folder.
    log: str | None = None
    # Who learns from it; phases say what differs.
    learner: LearnerConfig
    # Phases to be written out from a few options; what stands under `phases` is applied to them.
    scenario: ScenarioConfig | None = None
    # The phases by name, in their order; none: one phase of the stream and the learner above.
    phases: dict[_Name, PhaseConfig] = field(default_factory=dict)
    # Examples per update, B, replayed ones not counted.
    batch_size: Annotated[int, Field(gt=0)] = 16
    # Type of all floating-point numbers of the learner.
    precision: Literal["float32", "float64"] = "float32"
    # Devices that each growing layer's entries are spread over; on a CPU they are made as threads.
    devices: Annotated[int, Field(gt=0)] = 1
    # Examples that come by after one before its label arrives, rounded up to batches: until then it is
    # predicted but not learnt from.
    label_delay: Annotated[int, Field(ge=0)] = 0
    # Signals changes of the errors made before learning; None: nothing watches them.
    drift_detection: DetectorConfig | None = None
    # Updates between two rows of the metrics table.
    record_every: Annotated[int, Field(gt=0)] = 25
    evaluation: EvaluationConfig = EvaluationConfig()
    commit: CommitConfig = CommitConfig()

    @model_validator(mode="after")
    def _check(self) -> "RunConfig":
        for problem in (*_wrong_logs(self), *_wrong_phases(self), *_wrong_tasks(self)):
            raise ValueError(problem)
        return self


@dataclass(frozen=True)
class Phase:
    """One phase as it is run."""

    number: int  # from 0
    name: str
    config: PhaseConfig  # its stream has a seed

    @property
    def stream(self) -> StreamConfig:
        return self.config.stream


def phases_of(config: RunConfig) -> tuple[Phase, ...]:
    """The phases of a run in their order; a run without named ones has one, called "online"."""
    named = config.phases or {
        ONLINE: PhaseConfig(stream=config.stream, learner=config.learner, log=config.log)
    }
    return tuple(
        Phase(number, name, replace(phase, stream=phase.stream.with_seed(config.seed)))
        for number, (name, phase) in enumerate(named.items())
    )


def _wrong_logs(run: RunConfig) -> Iterator[str]:
    if run.log is not None and run.phases:
        yield "log belongs to a run without phases: give each phase its own log"
    parts = [("", run.log, run.stream), *((f"{n}: ", p.log, p.stream) for n, p in run.phases.items())]
    for where, log, stream in parts:
        if log is not None and stream.drop_consumed:
            yield f"{where}log names a log to be kept, and stream.drop_consumed deletes it: set one only"


def _wrong_phases(run: RunConfig) -> Iterator[str]:
    names = list(run.phases)
    if END_TAG in names:
        yield f"phases: the name {END_TAG!r} is that of a finished run's memory: choose another"
    running = {phase.stream.standardise == "running" for phase in run.phases.values()}
    if len(running) > 1:
        yield "phases: stream.standardise 'running' has to hold for all of them or for none"
    for number, (name, phase) in enumerate(run.phases.items()):
        replay = phase.replay
        if replay is not None and replay.weight != 1 and phase.learner.kind == "knn":
            yield f"phases.{name}.replay.weight scales gradients, and 'knn' stores targets: leave it at 1"
        if replay is not None and replay.phase is not None and replay.phase not in names[:number]:
            yield f"phases.{name}.replay.phase: expected an earlier phase, found {replay.phase!r}"


def _wrong_tasks(run: RunConfig) -> Iterator[str]:
    tasks = [*(run.phases if run.evaluation.split else ()), *run.evaluation.tasks]
    if twice := set(run.phases) & set(run.evaluation.tasks):
        yield f"evaluation.tasks: {min(twice)!r} is the name of a phase's own task: choose another"
    if not run.phases and run.evaluation.split in run.evaluation.tasks:
        yield f"evaluation.tasks: {run.evaluation.split!r} is the run's own task: choose another name"
    for name, phase in run.phases.items():
        if unknown := set(phase.evaluate or ()) - set(tasks):
            known = ", ".join(tasks) or "none"
            yield f"phases.{name}.evaluate: expected tasks among {known}; found {min(unknown)!r}"
