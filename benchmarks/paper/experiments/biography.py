"""Learning facts about people: how long the plateau lasts, by the kind of feed-forward part."""

from collections.abc import Sequence

from ..experiment import Cell, Column, Experiment, Figure, Means, Size
from ..people import measure_biography
from .decoders import cos_bochner, geglu, rbf, trunk
from .verdicts import at_least, at_most, mean_of

_SIZES = {
    "full": Size("full", 16_000 * 128, 2048, 3),
    "small": Size("small", 6_000 * 16, 512, 3, "1,024 people, 6,000 steps of 16 texts (growing: 1,500)"),
    "smoke": Size("smoke", 240, 16, 1),
}
_RBF_STEPS = {"full": None, "small": 1_500, "smoke": None}


def _cells(size: Size) -> Sequence[Cell]:
    narrow, wide = {"full": (2048, 16_384), "small": (256, 1024), "smoke": (16, 32)}[size.name]
    features = {"full": (8192, 65_536), "small": (384, 1024, 2048), "smoke": (24,)}[size.name]
    capacity = {"full": 1_000_000, "small": 32_768, "smoke": 512}[size.name]
    steps = _RBF_STEPS[size.name]
    growing = trunk(size, rbf(capacity, eviction="oldest"), steps=steps)
    pure = trunk(size, {**rbf(capacity, eviction="oldest"), "ffn": "rbf"}, steps=steps)
    return [
        Cell("geglu", f"GeGLU, {narrow} wide", {"trunk": trunk(size, geglu(narrow))}, group="geglu", cost=1),
        Cell(
            "geglu-wide", f"GeGLU, {wide:,} wide", {"trunk": trunk(size, geglu(wide))}, group="geglu", cost=3
        ),
        *(
            Cell(
                f"cos-{width}",
                f"Cos-Bochner, {width:,} features",
                {"trunk": trunk(size, cos_bochner(width))},
                group="cos",
                cost=1.4 + width / 2048,
            )
            for width in features
        ),
        Cell("rbf", "RBF in the second layer, at value positions", {"trunk": growing}, group="rbf", cost=1.2),
        Cell("rbf-both", "RBF in both layers, at value positions", {"trunk": pure}, group="rbf", cost=4),
    ]


def _remarks(means: Means) -> list[str]:
    sentences = []
    for name, mean in means.items():
        ends = [figures["plateau_end"] for figures in mean.figures]
        level = mean.figures[0]["level"]
        open_ended = sum(end is None for end in ends)
        if open_ended:
            sentences.append(
                f"`{name}`: in {open_ended} of {len(ends)} runs the loss is not below 95 % of {level:.2f} "
                "nats "
                f"at the end."
            )
    geglu_end = mean_of(means, "geglu", "plateau_end")
    if "geglu" in means:
        sentences.append(at_least("GeGLU's attribute accuracy", means["geglu"].mean, 93, "%"))
    for name, words, most in (("rbf", "RBF", 0.7), ("cos-2048", "wide Cos-Bochner", 0.8)):
        end = mean_of(means, name, "plateau_end")
        if end is not None and geglu_end is not None:
            sentences.append(at_most(f"plateau's end of {words} over GeGLU's", end / geglu_end, most))
    lengths = {
        name: length
        for name in means
        if name.startswith("cos-") and (length := mean_of(means, name, "plateau_length")) is not None
    }
    if len(lengths) >= 2:
        shrinks = [*lengths.values()] == sorted(lengths.values(), reverse=True)
        widths = ", ".join(f"{length:,.0f} steps with {name[4:]}" for name, length in lengths.items())
        sentences.append(
            f"The post finds that Cos-Bochner's plateau shrinks with the number of its features: {widths}. "
            f"{'It does here too.' if shrinks else 'Here it does not.'}"
        )
    return sentences


EXPERIMENT = Experiment(
    name="biography",
    title="Learning facts: the plateau, by the kind of feed-forward part",
    paper="Zucchet et al. (2025), and the authors' post: 2 layers, 16k people",
    about="A small decoder reads biographies, each written afresh; held-out sentences ask for the facts. "
    "At first "
    "it learns how often values occur, then nothing (the plateau, at the loss of somebody without "
    "knowledge of "
    "anybody), then about people. The plateau ends at the last step at which the attribute loss falls "
    "under 95 % "
    "of the no-knowledge level, and begins where it first falls under 105 %; steps between evaluations are "
    "interpolated. FLOPs are those of the feed-forward parts for one more token at the end.",
    differs="The post has 16k people, lengths of 512 tokens and widths matched in FLOPs; the small size "
    "has 1,024 "
    "people whose city is drawn by itself, and the growing layer reads and stores only where the next word "
    "belongs to a value, which it is told.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_biography,
    images=False,
    columns=(
        Column("attribute loss", "attribute_loss", ".2f"),
        Column("plateau from", "plateau_start", ",.0f"),
        Column("to step", "plateau_end", ",.0f"),
        Column("length", "plateau_length", ",.0f"),
        Column("kFLOPs a token", "feed_forward_kiloflops", ",.0f"),
        Column("ms a step", "milliseconds", ".0f"),
    ),
    figures=(
        Figure("curves", "Attribute loss on held-out sentences", "attribute_loss", x="steps", level="level"),
        Figure("curves", "Attribute accuracy on held-out sentences", "attribute_accuracy", x="steps"),
    ),
    remarks=_remarks,
)
