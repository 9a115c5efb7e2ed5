"""What a run has done so far, beside what its learner has learnt."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .counts import Totals
from .evaluation import Score


@dataclass(frozen=True)
class Progress:
    """What a run has done. Saved in every commit, so that a resumed run goes on exactly."""

    examples: int = 0  # learnt from
    offset: int = 0  # position in the stream
    skipped: int = 0  # bad examples passed over
    phase: Score = field(default_factory=Score)  # of the predictions made before learning, in this phase
    window: Score = field(default_factory=Score)  # the same, since the last row
    shapes: tuple[str, ...] = ()  # memory shapes the training step was compiled for
    evaluation: Score = field(default_factory=Score)  # the last one on held-out data
    totals: Totals = field(default_factory=dict)  # what happened to entries, by layer
    wall_seconds: float = 0.0  # of the loop
    repeated_steps: int = 0  # steps done again after interruptions
    finished: bool = False  # whether the stream was learnt to its end

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back exactly."""
        values = dict(vars(self))
        for name in ("phase", "window", "evaluation"):
            values[name] = vars(values[name])
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Progress":
        """The progress that `to_json` gave."""
        scores = {name: Score(**values[name]) for name in ("phase", "window", "evaluation")}
        totals = {name: tuple(counts) for name, counts in values["totals"].items()}
        return cls(**{**values, **scores, "shapes": tuple(values["shapes"]), "totals": totals})

    def learnt(self, score: Score, offset: int, skipped: int, shape: str) -> "Progress":
        """After a batch."""
        shapes = self.shapes if shape in self.shapes else (*self.shapes, shape)
        return replace(
            self,
            examples=self.examples + score.examples,
            offset=offset,
            skipped=skipped,
            phase=self.phase + score,
            window=self.window + score,
            shapes=shapes,
        )
