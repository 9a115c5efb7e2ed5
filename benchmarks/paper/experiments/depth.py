"""Fig. 3: depth and temperature of the growing softmax network, which is made linear after training."""

from collections.abc import Sequence

from lamina.continual import Run
from lamina.learners.ablation import linearised

from ..data import image_stream
from ..experiment import Cell, Experiment, Figure, Job, Means, Measured, Size
from ..network import measure_run
from .learners import at_width, evaluated, narrowed, softmax

_SIZES = {
    "full": Size("full", 50_000, 10_000, 3),
    "small": Size(
        "small", 4000, 2500, 2, "the first 4,000 training images at width 512; 2,500 test images; two seeds"
    ),
    "smoke": Size("smoke", 160, 64, 1),
}
_TEMPERATURES = (1, 3, 6, 10, 20, 40)


def _cells(size: Size) -> Sequence[Cell]:
    n, base = size.train, {**evaluated(size), **narrowed(size)}
    cells = [
        Cell(
            f"blocks-{blocks}",
            f"{blocks} blocks, T = 6",
            {**base, "learner": softmax(n, at_width(size, 6), blocks=blocks)},
            group="depth",
            x=blocks,
            cost=1 + blocks,
        )
        for blocks in (0, 1, 2, 3)
    ]
    for temperature in _TEMPERATURES:
        cells.append(
            Cell(
                f"t-{temperature}",
                f"2 blocks, T = {temperature}",
                {**base, "learner": softmax(n, at_width(size, temperature))},
                candidates={f"beta-{beta:g}": {"learner": {"value_rate": beta}} for beta in (1, 3, 10)},
                group="temperature",
                x=temperature,
                cost=5,
            )
        )
    return cells


def _measure(job: Job) -> Measured:
    stream = image_stream(job.data, job.size, job.held_out, job.shared, job.settings.get("project"))
    return measure_run(job, stream, {"test": {**stream, "split": "test", "shuffle": False}}, _linear)


def _linear(run: Run) -> Measured:
    """The accuracy that is left when the trained layers' exp(x) is replaced by 1 + x."""
    learner, state = linearised(run.learner, run.state)
    score = run.tasks["test"].evaluate(learner, state, run.reader.prepare)
    return {"linear_accuracy": round(100 * (score.accuracy(learner.task) or 0.0), 3)}


def _remarks(means: Means) -> list[str]:
    sentences = []
    depths = [f"blocks-{blocks}" for blocks in (0, 1, 2, 3)]
    if all(name in means for name in depths):
        numbers = ", ".join(f"{means[name].mean:.1f}" for name in depths)
        sentences.append(f"With 0, 1, 2 and 3 blocks the network reaches {numbers} %.")
    tempered = [f"t-{t}" for t in _TEMPERATURES if f"t-{t}" in means]
    if len(tempered) == len(_TEMPERATURES):
        best = max(tempered, key=lambda name: means[name].mean)
        inner = best not in (tempered[0], tempered[-1])
        words = "inside the range, so the dependence is not monotonic" if inner else "at the range's end"
        sentences.append(f"The best temperature is {best.removeprefix('t-')}, {words}.")
    linear = {
        name: sum(figures["linear_accuracy"] for figures in mean.figures) / len(mean.figures)
        for name, mean in means.items()
        if all("linear_accuracy" in figures for figures in mean.figures)
    }
    if linear:
        numbers = ", ".join(
            f"`{name}` {means[name].mean:.1f} → {value:.1f}" for name, value in linear.items()
        )
        sentences.append(f"With exp(x) replaced by 1 + x after training (Fig. 3, right), in %: {numbers}.")
    return sentences


EXPERIMENT = Experiment(
    name="depth",
    title="Depth, temperature, and what is left without the exponential",
    paper="Fig. 3",
    about="The growing weighted softmax network by its number of blocks, and by its temperature. For each "
    "temperature the value rate is chosen on validation. After training the exponential is linearised.",
    differs="One pass instead of 50 epochs, so the best temperature need not be the paper's 10. T is named "
    "as at width 3072.",
    sizes=_SIZES,
    cells=_cells,
    measure=_measure,
    figures=(
        Figure("points", "Accuracy by depth", x="blocks", groups=("depth",)),
        Figure("points", "Accuracy by temperature", x="temperature T", log_x=True, groups=("temperature",)),
    ),
    remarks=_remarks,
)
