"""When a run is evaluated on its tasks, and how the scores are recorded."""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..monitoring import EvaluationRow
from .evaluation import PART
from .process_memory import release_free_memory
from .scores import Score
from .tasks import examples_on_the_way, own_task
from .timing import Stopwatch

if TYPE_CHECKING:
    from .run import Run


class Examiner:
    """Evaluates a run on its tasks: before the first of several phases, on the way, and at every phase's end.

    Args:
      run: the run.
      watch: where the time goes.
    """

    def __init__(self, run: "Run", watch: Stopwatch) -> None:
        self._run = run
        self._watch = watch

    def on_the_way(self, batch: int) -> None:
        """After a batch of so many examples: evaluates the phase's tasks if that is due."""
        wanted = self._run.stage.phase.config.evaluate
        tasks = [name for name in self._run.tasks if wanted is None or name in wanted]
        if self._due(batch) and tasks:
            examples = examples_on_the_way(self._run.config.evaluation, len(tasks))
            if examples != 0:
                self._evaluate(tasks, examples)

    def untrained(self) -> None:
        """Before the first of several phases: all tasks in full."""
        scores = self._evaluate(self._run.tasks, None, counts=False)
        self._run.progress = replace(self._run.progress, untrained=scores)

    def phase_end(self) -> None:
        """At a phase's end: all tasks in full, a row of the accuracy matrix."""
        scores = self._evaluate(self._run.tasks, None)
        progress = self._run.progress
        self._run.progress = replace(progress, matrix=(*progress.matrix, scores))

    def _due(self, batch: int) -> bool:
        every = self._run.config.evaluation.every_examples
        at_end = self._run.progress.offset == self._run.reader.log.total  # evaluated in full by `phase_end`
        if every is None or at_end:
            return False
        return self._run.progress.examples // every > (self._run.progress.examples - batch) // every

    def _evaluate(
        self, names: Collection[str], examples: int | None, *, counts: bool = True
    ) -> dict[str, Score]:
        sizes = [min(PART, self._run.tasks[name].length, examples or PART) for name in names]
        scores = {name: self._score(name, examples, max(sizes)) for name in names}
        progress, task = self._run.progress, self._run.learner.task
        own = [own_task(self._run.config, phase) for phase in self._run.phases]
        taught = [scores[name] for name in own[: progress.number + 1] if name in scores]
        accuracies = [accuracy for score in taught if (accuracy := score.accuracy(task)) is not None]
        if accuracies and counts:
            progress = replace(
                progress,
                anytime_sum=progress.anytime_sum + sum(accuracies) / len(accuracies),
                anytime_points=progress.anytime_points + 1,
            )
        if (present := own[progress.number]) in scores:
            progress = replace(progress, evaluation=scores[present])
        self._run.progress = progress
        return scores

    def _score(self, name: str, examples: int | None, rows: int) -> Score:
        run = self._run
        with self._watch.part("evaluate"):
            begin = time.perf_counter()
            score = run.tasks[name].evaluate(
                run.learner, run.state, run.reader.prepare, examples=examples, rows=rows
            )
            seconds = time.perf_counter() - begin
            release_free_memory()
        run.recorder.evaluation(
            EvaluationRow(
                step=run.state.step,
                examples=run.progress.examples,
                phase=run.stage.phase.name,
                task=name,
                accuracy=score.accuracy(run.learner.task),
                loss=score.mean_loss(),
                evaluated_examples=score.examples,
                evaluation_seconds=seconds,
                attribute_loss=score.attribute_loss(),
                attributes=score.by_attribute(run.learner.task),
                no_knowledge_level=run.tasks[name].no_knowledge_level,
            )
        )
        return score
