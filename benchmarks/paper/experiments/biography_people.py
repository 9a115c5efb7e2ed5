"""How the plateau grows with the number of people."""

from collections.abc import Sequence

from lamina.monitoring import fit_power_law

from ..experiment import Cell, Column, Experiment, Figure, Means, Size
from ..people import measure_biography
from .decoders import cos_bochner, geglu, rbf, trunk
from .verdicts import at_least, mean_of

_SIZES = {
    "full": Size("full", 16_000 * 128, 2048, 3),
    "small": Size(
        "small", 6_000 * 16, 512, 3, "256 to 2,048 people; runs stop some time after the plateau's end"
    ),
    "smoke": Size("smoke", 240, 16, 1),
}
_STEPS = {
    "full": {4096: None, 8192: None, 16_384: None, 32_768: None, 65_536: None},
    "small": {256: 750, 512: 1_000, 1024: 1_500, 2048: 2_500},
    "smoke": {32: None, 48: None},
}
_PUBLISHED = 0.81


def _cells(size: Size) -> Sequence[Cell]:
    features = {"full": 8192, "small": 2048, "smoke": 24}[size.name]
    capacity = {"full": 1_000_000, "small": 32_768, "smoke": 512}[size.name]
    width = {"full": 2048, "small": 256, "smoke": 16}[size.name]
    kinds = {
        "geglu": ("GeGLU", geglu(width)),
        "cos": ("Cos-Bochner", cos_bochner(features)),
        "rbf": ("RBF", rbf(capacity, eviction="oldest")),
    }
    return [
        Cell(
            f"{kind}-{people}",
            f"{label}, {people:,} people",
            {"trunk": trunk(size, learner, people=people, steps=steps)},
            group=label,
            x=people,
            cost=people * (1 if kind == "geglu" else 3),
        )
        for kind, (label, learner) in kinds.items()
        for people, steps in _STEPS[size.name].items()
    ]


def _remarks(means: Means) -> list[str]:
    sentences = []
    for kind in ("geglu", "cos", "rbf"):
        points = {
            int(name.partition("-")[2]): end
            for name in means
            if name.startswith(kind) and (end := mean_of(means, name, "plateau_end")) is not None
        }
        if len(points) >= 3:
            fit = fit_power_law(list(points), list(points.values()))
            error = "" if fit.error is None else f" ± {fit.error:.2f}"
            sentences.append(
                f"`{kind}`: the plateau ends at {fit.factor:.3g}·N^{fit.exponent:.2f} steps (exponent "
                f"{fit.exponent:.2f}{error} from {len(points)} sizes); published for GeGLU-like parts at "
                "a batch of "
                f"128: 0.43·N^{_PUBLISHED}."
            )
    one, two = (mean_of(means, f"geglu-{people}", "plateau_end") for people in (1024, 2048))
    if one is not None and two is not None:
        sentences.append(at_least("GeGLU's plateau end for 2,048 over that for 1,024 people", two / one, 1.7))
    return sentences


EXPERIMENT = Experiment(
    name="biography_people",
    title="The plateau against the number of people",
    paper="Zucchet et al. (2025): 0.43·N^0.81 steps at a batch of 128",
    about="The learning experiment with populations of several sizes; all runs of a size share the "
    "schedule of the "
    "learning rate.",
    differs="The small size has a batch of 16 and one biography a sequence, and far fewer people.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_biography,
    images=False,
    columns=(
        Column("plateau from", "plateau_start", ",.0f"),
        Column("to step", "plateau_end", ",.0f"),
        Column("no-knowledge level", "level", ".2f"),
    ),
    figures=(
        Figure("points", "Step at which the plateau ends", "plateau_end", x="people", log_x=True, log_y=True),
        Figure("curves", "Attribute loss, GeGLU", "attribute_loss", x="steps", groups=("GeGLU",)),
    ),
    remarks=_remarks,
)
