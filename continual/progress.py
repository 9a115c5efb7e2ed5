"""What a run has done so far, beside what its learner has learnt."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .counts import Totals
from .scores import Score
from .spans import Span

Scores = Mapping[str, Score]  # by task


@dataclass(frozen=True)
class Progress:
    """What a run has done. Saved in every commit, so that a resumed run goes on exactly."""

    number: int = 0  # the present phase, from 0
    begun: bool = False  # whether its first actions are done
    ended: bool = False  # whether its stream is learnt to the end, evaluated, and its last actions done
    examples: int = 0  # predicted, then learnt from
    offset: int = 0  # position in the phase's stream
    skipped: int = 0  # bad examples passed over
    skipped_before: int = 0  # those of earlier phases
    phase: Score = field(default_factory=Score)  # of the predictions made before learning, in this phase
    window: Score = field(default_factory=Score)  # the same, since the last row
    shapes: tuple[str, ...] = ()  # memory shapes the training step was compiled for
    evaluation: Score = field(default_factory=Score)  # the last one on held-out data
    untrained: Scores = field(default_factory=dict)  # each task before the first phase (of several)
    matrix: tuple[Scores, ...] = ()  # each task after each phase that has ended
    anytime_sum: float = 0.0  # over evaluations: mean accuracy on the tasks of the phases so far
    anytime_points: int = 0  # how many evaluations those were
    totals: Totals = field(default_factory=dict)  # what happened to entries, by layer
    pruning: Mapping[str, float] = field(default_factory=dict)  # sum of the bounds on what pruning changed
    wall_seconds: float = 0.0  # of the loop
    repeated_steps: int = 0  # steps done again after interruptions
    finished: bool = False  # whether the last phase has ended
    spans: tuple[Span, ...] = ()  # where origins lie, in order; the last one is the present phase's
    drifts: tuple[int, ...] = ()  # origins of the examples at which drift was signalled

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back exactly."""
        values = dict(vars(self))
        for name in _SCORES:
            values[name] = _plain_score(values[name])
        values["untrained"] = _plain(self.untrained)
        values["matrix"] = [_plain(row) for row in self.matrix]
        values["spans"] = [span.to_json() for span in self.spans]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Progress":
        """The progress that `to_json` gave, also that of a version that knew fewer fields."""
        return cls(
            **{
                **values,
                **{name: _score(values[name]) for name in _SCORES},
                "shapes": tuple(values["shapes"]),
                "totals": {name: tuple(counts) for name, counts in values["totals"].items()},
                "untrained": _scores(values.get("untrained", {})),
                "matrix": tuple(_scores(row) for row in values.get("matrix", ())),
                "drifts": tuple(values.get("drifts", ())),
                "spans": tuple(Span.from_json(span) for span in values.get("spans", ())),
            }
        )

    def predicted(self, score: Score, offset: int, skipped: int, drifts: Iterable[int]) -> "Progress":
        """After a batch was predicted; `skipped` counts the phase's bad examples so far."""
        return replace(
            self,
            examples=self.examples + score.examples,
            offset=offset,
            skipped=self.skipped_before + skipped,
            phase=self.phase + score,
            window=self.window + score,
            drifts=(*self.drifts, *drifts),
        )

    def learnt(self, shape: str, bounds: Mapping[str, float]) -> "Progress":
        """After an update of this shape; `bounds` are of prunings."""
        shapes = self.shapes if shape in self.shapes else (*self.shapes, shape)
        pruning = {**self.pruning, **{n: self.pruning.get(n, 0.0) + bound for n, bound in bounds.items()}}
        return replace(self, shapes=shapes, pruning=pruning)

    def next_phase(self, span: Span) -> "Progress":
        """At the start of the next phase, whose examples lie in `span`."""
        return replace(
            self,
            number=self.number + 1,
            begun=False,
            ended=False,
            offset=0,
            skipped_before=self.skipped,
            phase=Score(),
            window=Score(),
            spans=(*self.spans, span),
        )

    @property
    def origins_end(self) -> int:
        """The first origin that no example has had yet."""
        return self.spans[-1].start + self.offset if self.spans else 0


_SCORES = ("phase", "window", "evaluation")


def _plain(scores: Scores) -> dict[str, Any]:
    return {task: _plain_score(score) for task, score in scores.items()}


def _scores(values: Mapping[str, Any]) -> dict[str, Score]:
    return {task: _score(score) for task, score in values.items()}


def _plain_score(score: Score) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(score).items()}


def _score(values: Mapping[str, Any]) -> Score:
    """The score of plain values, also those of a version that knew fewer fields."""
    plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    return Score(**plain)
