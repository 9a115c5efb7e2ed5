"""What a phase consists of: a stream, a learner's setting, replay, and what is done to the memory."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

from ..learners.config import LearnerConfig
from ..stream import StreamConfig

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

ReplayKind = Literal["reservoir", "balanced", "memory", "phase"]


@config(frozen=True, config=_STRICT, kw_only=True)
class ReplayConfig:
    """Examples of the past that are learnt from again beside every batch, read from their streams."""

    # Where from: "reservoir", a uniform sample of all examples so far (Vitter's algorithm R); "balanced", the
    # same balanced over classes (Chrysakis & Moens, 2020); "memory", what the growing readout's entries came
    # from; "phase", an earlier phase's stream in its order, over and over.
    kind: ReplayKind
    # Examples added to every batch.
    examples: Annotated[int, Field(gt=0)]
    # What an example's gradient is multiplied by; new examples count 1.
    weight: Annotated[float, Field(gt=0)] = 1.0
    # Examples remembered ("reservoir", "balanced").
    size: Annotated[int, Field(gt=0)] = 500
    # The earlier phase ("phase").
    phase: str | None = None
    # The first part of it that is streamed again ("phase").
    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _check(self) -> "ReplayConfig":
        if (self.kind == "phase") != (self.phase is not None):
            raise ValueError("kind 'phase' and the name of a phase belong together: set both or neither")
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class MemoryAction:
    """One thing done to all growing layers' memories between two steps: exactly one of these."""

    # Takes memory and parameters back to the end of an earlier phase, or another tag of this run.
    restore: str | None = None
    # Adds the entries of a persisted memory, RUN or RUN@STEP, to those here: their functions are summed. At a
    # phase's begin only.
    merge: str | None = None
    # Multiplies what every entry so far contributes, the initial function aside.
    decay: Annotated[float, Field(ge=0, le=1)] | None = None
    # ε: removes the entries whose effective value and weight stay below it (App. D.1).
    prune: Annotated[float, Field(gt=0)] | None = None
    # Removes the least effective entries until so many are left, initial ones included.
    cap: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "MemoryAction":
        if sum(value is not None for value in vars(self).values()) != 1:
            raise ValueError("expected exactly one of restore, merge, decay, prune and cap in an action")
        return self


@config(frozen=True, config=_STRICT, kw_only=True)
class PhaseConfig:
    """One phase of a run. In a file it says only what differs from the run's own stream and learner."""

    # What passes by, once; its `limit` is the phase's duration.
    stream: StreamConfig
    # A log built before to read instead of building one.
    log: str | None = None
    # Rates, temperatures and policies; the layers and their sizes are the same in all phases.
    learner: LearnerConfig
    # What stays as it is: "memory" (nothing is added and nothing fades), "parameters", or growing layers.
    freeze: tuple[str, ...] = ()
    # Examples of the past learnt from beside the phase's own.
    replay: ReplayConfig | None = None
    # The tasks evaluated on the way; None: all. At the phase's end every task is.
    evaluate: tuple[str, ...] | None = None
    # What is done to the memory before the first step, and after the last one.
    begin: tuple[MemoryAction, ...] = ()
    end: tuple[MemoryAction, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "PhaseConfig":
        if any(action.merge is not None for action in self.end):
            raise ValueError("end: merge belongs to a phase's begin: move it to the begin of the next phase")
        return self
