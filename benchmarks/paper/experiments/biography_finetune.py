"""Learning other people afterwards: what is forgotten, what replay keeps, what comes back."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..experiment import Cell, Column, Experiment, Figure, Means, Size, merged
from ..people import measure_biography
from .decoders import cos_bochner, fine_tuning, geglu, often, rbf, trunk
from .verdicts import at_least, at_most, mean_of

_SIZES = {
    "full": Size("full", 16_000 * 128, 2048, 3),
    "small": Size("small", 6_000 * 16, 512, 3, "1,024 people first, then 128 others for 400 steps"),
    "smoke": Size("smoke", 240, 16, 1),
}
_AXIS = "steps among the new"
_WEIGHTS = (2.0, 1.0, 0.5, 0.25, 0.125, 1 / 32)


def _cells(size: Size) -> Sequence[Cell]:
    width = {"full": 2048, "small": 256, "smoke": 16}[size.name]
    features = {"full": 8192, "small": 2048, "smoke": 24}[size.name]
    capacity = {"full": 1_000_000, "small": 32_768, "smoke": 512}[size.name]
    steps = {"full": None, "small": 1_500, "smoke": None}[size.name]
    trunks = {
        "geglu": ("GeGLU", trunk(size, geglu(width)), {}),
        "cos": ("Cos-Bochner", trunk(size, cos_bochner(features)), {}),
        "rbf": ("RBF", trunk(size, rbf(capacity, eviction="oldest"), steps=steps), _roomy(capacity)),
    }

    def cell(
        kind: str, name: str, words: str, cost: float, changes: Mapping[str, Any], **options: Any
    ) -> Cell:
        label, base, _ = trunks[kind]
        phase = merged(fine_tuning(size, **options), changes)
        settings = {"trunk": base, "finetune": phase, "evaluation": often(size)}
        return Cell(f"{kind}-{name}", f"{label}, {words}", settings, group=kind, cost=cost)

    roomy = trunks["rbf"][2]
    return [
        cell("geglu", "none", "no replay", 1, {}),
        *(
            cell("geglu", f"replay-{weight:g}", f"replay with weight {weight:g}", 1.1, {}, replay=weight)
            for weight in _WEIGHTS
        ),
        cell("cos", "none", "no replay", 2, {}),
        cell("cos", "replay-0.25", "replay with weight 0.25", 2.1, {}, replay=0.25),
        cell("rbf", "none", "nothing evicted", 1.2, roomy),
        cell("rbf", "frozen", "nothing evicted, parameters frozen", 1.3, roomy, frozen=True),
        cell("rbf", "oldest", "the oldest evicted", 1.4, {}),
        cell("rbf", "replay-0.25", "nothing evicted, replay with weight 0.25", 1.5, roomy, replay=0.25),
    ]


def _roomy(capacity: int) -> dict[str, Any]:
    """Room for everything that the phase adds, so that nothing is evicted."""
    return {"learner": {"rbf": {"memory": {"capacity": 4 * capacity, "eviction": "none"}}}}


def _remarks(means: Means) -> list[str]:
    sentences = []
    before, after = mean_of(means, "geglu-none", "old_before"), mean_of(means, "geglu-none", "old_at_100")
    if before is not None and after is not None:
        sentences.append(
            at_least("drop of GeGLU's accuracy on old people in 100 steps", before - after, 30, "points")
        )
    kept, lost = (mean_of(means, f"geglu-{name}", "old_at_400") for name in ("replay-0.25", "none"))
    if kept is not None and lost is not None:
        sentences.append(
            at_least("what replay with weight ¼ keeps above none after 400 steps", kept - lost, 20, "points")
        )
    new = mean_of(means, "rbf-none", "new_at_60")
    if new is not None:
        sentences.append(at_least("RBF's accuracy on new people by step 60", new, 90, "%"))
    before, after = mean_of(means, "rbf-none", "old_before"), mean_of(means, "rbf-none", "old_at_100")
    if before is not None and after is not None:
        sentences.append(at_most("what RBF loses of old people by step 100", before - after, 5, "points"))
    back = {
        name: found
        for name in means
        if not name.partition("-")[2].startswith("replay")
        and (found := mean_of(means, name, "old_recovered")) is not None
    }
    if back:
        most = max(back, key=lambda name: back[name])
        sentences.append(
            f"Without replay, the accuracy on old people rises again by at most {back[most]:.1f} points "
            "after its "
            f"lowest (`{most}`); differences of a point or two are those of an evaluation's sample."
        )
    return sentences


EXPERIMENT = Experiment(
    name="biography_finetune",
    title="Learning other people: what is forgotten",
    paper="Zucchet et al. (2025), and the authors' post",
    about="After the people of the learning experiment come others, at a small constant rate, with or "
    "without as "
    "many biographies of the first ones beside every batch, whose gradients are weighted. The table's "
    "accuracy "
    "is that on the first people at the end.",
    differs="The paper takes 3e-5 and 1k to 16k new people; the small size takes 5e-4 and 128.",
    sizes=_SIZES,
    cells=_cells,
    measure=measure_biography,
    images=False,
    columns=(
        Column("old before", "old_before", ".1f"),
        Column("old at 100", "old_at_100", ".1f"),
        Column("came back", "old_recovered", ".1f"),
        Column("new at 60", "new_at_60", ".1f"),
        Column("new at 100", "new_at_100", ".1f"),
        Column("new at 400", "new_at_400", ".1f"),
    ),
    figures=(
        Figure("curves", "Old people, GeGLU", "old", x=_AXIS, groups=("geglu",)),
        Figure("curves", "New people, GeGLU", "new", x=_AXIS, groups=("geglu",)),
        Figure("curves", "Old people, Cos-Bochner and RBF", "old", x=_AXIS, groups=("cos", "rbf")),
        Figure("curves", "New people, Cos-Bochner and RBF", "new", x=_AXIS, groups=("cos", "rbf")),
    ),
    remarks=_remarks,
)
