"""Fig. 3, left: depth and temperature of the growing softmax network."""

from collections.abc import Sequence

from ..experiment import Cell, Experiment, Figure, Means, Size
from ..network import measure_images
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
    return sentences


EXPERIMENT = Experiment(
    name="depth",
    title="Depth and temperature",
    paper="Fig. 3, left",
    about="The growing weighted softmax network by its number of blocks, and by its temperature. For each "
    "temperature the value rate is chosen on validation.",
    differs="One pass instead of 50 epochs, so the best temperature need not be the paper's 10. T is named "
    "as at width 3072.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_images,
    figures=(
        Figure("points", "Accuracy by depth", x="blocks", groups=("depth",)),
        Figure("points", "Accuracy by temperature", x="temperature T", log_x=True, groups=("temperature",)),
    ),
    remarks=_remarks,
)
