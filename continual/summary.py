"""The figures that a finished run leaves behind."""

from typing import TYPE_CHECKING

from ..learners.costs import decoder_costs
from ..monitoring import Summary, installed_versions
from .outcome import continual_values
from .process_memory import peak_rss_bytes
from .timing import StepTimes

if TYPE_CHECKING:
    from .run import Run


def summarise(run: "Run", times: StepTimes) -> Summary:
    """The summary of a run that has just ended."""
    progress, task = run.progress, run.learner.task
    evaluated = progress.evaluation.mean_loss()
    return Summary(
        examples=progress.examples,
        skipped_examples=progress.skipped,
        continual=continual_values(run.config, run.progress, task),
        steps=run.state.step,
        prequential_accuracy=progress.phase.accuracy(task),
        test_accuracy=progress.evaluation.accuracy(task),
        loss=progress.phase.mean_loss() if evaluated is None else evaluated,
        layers=run.layer_rows(),
        wall_seconds=progress.wall_seconds,
        step_seconds={"p50": times.quantile(0.5), "p95": times.quantile(0.95)},
        peak_rss_bytes=peak_rss_bytes(),
        compilations=len(progress.shapes),
        seed=run.config.seed,
        versions=installed_versions(),
        drifts=progress.drifts,
        attribute_loss=progress.evaluation.attribute_loss(),
        attributes=progress.evaluation.by_attribute(task) if progress.evaluation.examples else None,
        costs=_costs(run),
    )


def _costs(run: "Run") -> dict[str, dict[str, int]] | None:
    if not run.learner.task.language:
        return None
    entries = {name: memory.entries for name, memory in run.state.memories.items()}
    network = run.learner.network(run.state)
    found = decoder_costs(network, entries, run.reader.log.schema.x.shape[0])
    return {name: {"flops": cost.flops, "bytes": cost.bytes} for name, cost in found.items()}
