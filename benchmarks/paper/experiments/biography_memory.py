"""What a memory's budget buys, what may give way at the cap, and what the growing layer has to be told."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..experiment import Cell, Column, Experiment, Figure, Means, Size, merged
from ..people import measure_biography
from .decoders import fine_tuning, often, rbf, trunk
from .verdicts import mean_of

_SIZES = {
    "full": Size("full", 16_000 * 128, 2048, 1),
    "small": Size("small", 1_500 * 16, 512, 1, "1,024 people for 1,500 steps, then 128 for 400; one seed"),
    "smoke": Size("smoke", 240, 16, 1),
}
_CAPS = {
    "full": (62_500, 250_000, 1_000_000),
    "small": (4096, 8192, 16_384, 32_768, 65_536),
    "smoke": (128, 512),
}
_MIDDLE = {"full": 250_000, "small": 16_384, "smoke": 512}
_TOKENS: dict[str, tuple[str, dict[str, Any]]] = {
    "everywhere": ("read everywhere, stored at values", {"reading": "everywhere", "admission": "values"}),
    "gate": ("read through a learnt gate, stored at values", {"reading": "gate", "admission": "values"}),
    "high-loss": (
        "read everywhere, stored where the loss exceeds 1 nat",
        {"reading": "everywhere", "admission": "high_loss", "loss_threshold": 1.0},
    ),
}


def _cells(size: Size) -> Sequence[Cell]:
    caps = _CAPS[size.name]
    middle = _MIDDLE[size.name]
    steps = {"full": None, "small": 1_500, "smoke": None}[size.name]
    largest = max(caps)

    def cell(name: str, words: str, learner: Mapping[str, Any], group: str, cost: float) -> Cell:
        settings = {
            "trunk": trunk(size, learner, steps=steps),
            "finetune": fine_tuning(size),
            "evaluation": often(size),
        }
        return Cell(name, words, settings, group=group, cost=cost)

    return [
        *(
            cell(f"oldest-{cap}", f"cap {cap:,}, the oldest give way", rbf(cap, eviction="oldest"), "oldest",
                 1 + cap / largest)
            for cap in caps
        ),
        *(
            cell(f"smallest-{cap}", f"cap {cap:,}, the least effective give way",
                 rbf(cap, eviction="smallest"), "smallest", 1.5 + cap / largest)
            for cap in caps
        ),
        cell(
            f"merged-{middle}",
            f"cap {middle:,}, keys within 0.1 merged, the least effective give way",
            rbf(middle, eviction="smallest", admission="quantize", quantize_radius=0.1),
            "merged",
            2,
        ),
        *(
            cell(name, f"cap {middle:,}, {words}",
                 merged(rbf(middle, eviction="smallest"), {"rbf": {"tokens": tokens}}), "tokens", 4)
            for name, (words, tokens) in _TOKENS.items()
        ),
    ]  # fmt: skip


def _remarks(means: Means) -> list[str]:
    sentences = []
    for group in ("oldest", "smallest"):
        cells = {name: mean for name, mean in means.items() if name.startswith(f"{group}-")}
        if len(cells) >= 2:
            caps = {int(name.partition("-")[2]): mean for name, mean in cells.items()}
            small, large = caps[min(caps)], caps[max(caps)]
            right_after = [
                mean_of(means, f"{group}-{cap}", "old_before") or 0 for cap in (min(caps), max(caps))
            ]
            sentences.append(
                f"`{group}`: from a cap of {min(caps):,} to one of {max(caps):,}, accuracy on the first "
                "people "
                f"goes from {right_after[0]:.1f} to {right_after[1]:.1f} % right after their phase, and from "
                f"{small.mean:.1f} to {large.mean:.1f} % after the others'."
            )
    at_one_cap = _at_one_cap(means)
    if len(at_one_cap) >= 2:
        kept = [
            f"`{name}` {means[name].mean:.1f} of {mean_of(means, name, 'old_before') or 0:.1f}"
            for name in at_one_cap
        ]
        sentences.append(f"What is left of the first people at one cap, in %: {', '.join(kept)}.")
    return sentences


def _at_one_cap(means: Means) -> list[str]:
    for cap in _MIDDLE.values():
        names = [f"oldest-{cap}", f"smallest-{cap}", f"merged-{cap}"]
        if any(name in means for name in names):
            return [name for name in (*names, *_TOKENS) if name in means]
    return []


EXPERIMENT = Experiment(
    name="biography_memory",
    title="What a memory's budget buys",
    paper="none; the post's growing layers keep everything",
    about="A growing RBF layer in the decoder's second layer, at caps and with policies. The table's "
    "accuracy is "
    "that on the first people after others were learnt; reading and storing happens at value positions "
    "unless "
    "the line says otherwise. FLOPs are those of the feed-forward parts for one more token.",
    differs="Not in the paper.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_biography,
    images=False,
    columns=(
        Column("old before", "old_before", ".1f"),
        Column("new", "new_at_400", ".1f"),
        Column("to step", "plateau_end", ",.0f"),
        Column("kFLOPs a token", "feed_forward_kiloflops", ",.0f"),
        Column("ms a step", "milliseconds", ".0f"),
    ),
    figures=(
        Figure("points", "First people, after others were learnt", "accuracy", x="entries", log_x=True,
               groups=("oldest", "smallest")),
        Figure("points", "First people, right after their phase", "old_before", x="entries", log_x=True,
               groups=("oldest", "smallest")),
    ),
    remarks=_remarks,
)  # fmt: skip
