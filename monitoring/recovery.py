"""What a later phase does to what was known before: the loss of accuracy, and what of it comes back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .rows import Row


@dataclass(frozen=True)
class Recovery:
    """A task's accuracy through a later phase."""

    before: float  # accuracy at the phase's begin
    lowest: float  # the lowest one in the phase
    lowest_step: int  # steps into the phase at which it was lowest first
    last: float  # the phase's last one
    recovered: float  # the highest accuracy after the lowest, less the lowest: what came back

    @property
    def drop(self) -> float:
        """What was lost at most."""
        return self.before - self.lowest

    @property
    def regained(self) -> float | None:
        """The share of the drop that came back; None where nothing was lost."""
        return self.recovered / self.drop if self.drop > 0 else None


@dataclass(frozen=True)
class AccuracyCurve:
    """Accuracies of a task by steps since a phase's begin; the first one is that at its begin."""

    steps: tuple[int, ...]  # ascending, from 0
    accuracies: tuple[float, ...]

    def at(self, step: int) -> float | None:
        """The accuracy after so many steps, between two evaluations linearly; None beyond them."""
        for place, end in enumerate(self.steps):
            if step == end:
                return self.accuracies[place]
            if place and (start := self.steps[place - 1]) < step < end:
                share = (step - start) / (end - start)
                return self.accuracies[place - 1] * (1 - share) + self.accuracies[place] * share
        return None

    def recovery(self) -> Recovery:
        """What was lost and what came back."""
        lowest = min(self.accuracies)
        place = self.accuracies.index(lowest)
        return Recovery(
            before=self.accuracies[0],
            lowest=lowest,
            lowest_step=self.steps[place],
            last=self.accuracies[-1],
            recovered=max(self.accuracies[place:]) - lowest,
        )


def accuracy_curve(rows: Iterable[Row], phase: str, task: str) -> AccuracyCurve | None:
    """A task's accuracies through a phase, from a run's table.

    The last evaluation before the phase counts as the one at its begin.

    Args:
      rows: the table, in order.
      phase: the phase's name.
      task: the name of the held-out task.

    Returns:
      The curve; None where the task was not evaluated both before and in the phase.
    """
    scored = [row for row in rows if row["kind"] == "evaluation" and row["task"] == task]
    scored = [row for row in scored if row["accuracy"] is not None]
    inside = {row["step"]: row["accuracy"] for row in scored if row["phase"] == phase}
    earlier = _before(scored, phase)
    if not earlier or not inside:
        return None
    begin = earlier[-1]["step"]
    points = {begin: earlier[-1]["accuracy"], **inside}
    steps = sorted(points)
    return AccuracyCurve(tuple(step - begin for step in steps), tuple(points[step] for step in steps))


def _before(rows: Sequence[Row], phase: str) -> list[Row]:
    earlier: list[Row] = []
    for row in rows:
        if row["phase"] == phase:
            break
        earlier.append(row)
    return earlier
