"""Settings that the biography experiments share: those of the presets, and what differs from them."""

from typing import Any, get_args

from lamina.continual.presets import preset_values
from lamina.learners.decoder_config import FeedForwardKind

from ..experiment import Size, merged

_PRESETS = {"full": "biography-16k", "small": "biography-small", "smoke": "biography-smoke"}
_SMOKE_STEPS = 30
_EVERY = {"full": 200, "small": 50, "smoke": 15}  # steps between evaluations of what is learnt


def trunk(
    size: Size, learner: dict[str, Any], *, people: int | None = None, steps: int | None = None
) -> dict[str, Any]:
    """A run that learns about people: the preset's first phase.

    Args:
      size: the experiment's.
      learner: what differs from the preset's decoder.
      people: how many; None: as many as the preset has.
      steps: where it stops, the schedule being that of the preset; None: at the schedule's end.
    """
    values = preset_values(_PRESETS[size.name])
    batch, stream = values["batch_size"], values["stream"]
    if size.name == "smoke":
        steps = _SMOKE_STEPS
    changes: dict[str, Any] = {"biography": {"people": people}} if people else {}
    if steps is not None:
        changes["limit"] = batch * steps
    learner = merged(values["learner"], learner)
    used = [learner["ffn"]] if isinstance(learner["ffn"], str) else learner["ffn"]
    kinds = get_args(FeedForwardKind)  # a section each, of which the others say nothing
    return {
        "stream": merged(stream, changes),
        "learner": {name: value for name, value in learner.items() if name in used or name not in kinds},
        "batch_size": batch,
        "record_every": 50,
        "evaluation": {
            "every_examples": batch * _EVERY[size.name],
            "examples": size.held_out,
            "share": 0.1,  # of the work: fewer texts on the way than at the end
        },
        "phases": {"pretrain": {}},
    }


def fine_tuning(size: Size, *, replay: float | None = None, frozen: bool = False) -> dict[str, Any]:
    """The phase in which other people are learnt, at a small constant rate: the preset's second one.

    Args:
      size: the experiment's.
      replay: the weight of as many old biographies beside every batch of new ones; None: no old ones.
      frozen: whether parameters stay as they are, so that only entries are added.
    """
    values = preset_values(_PRESETS[size.name])
    phase = dict(values["phases"]["finetune"])
    if size.name == "smoke":
        phase = merged(phase, {"stream": {"limit": 20 * values["batch_size"]}})
    if replay is not None:
        old = {"kind": "phase", "phase": "pretrain", "examples": values["batch_size"], "weight": replay}
        phase["replay"] = old
    if frozen:
        phase["freeze"] = ["parameters"]
    return phase


def often(size: Size) -> dict[str, Any]:
    """Evaluation while others are learnt: every 20 steps, in full."""
    batch = preset_values(_PRESETS[size.name])["batch_size"]
    return {"every_examples": 20 * batch, "examples": size.held_out}


def geglu(width: int) -> dict[str, Any]:
    """A decoder whose feed-forward parts are all GeGLU."""
    return {"ffn": "geglu", "geglu": {"width": width}}


def cos_bochner(features: int) -> dict[str, Any]:
    """One whose feed-forward parts are all Cos-Bochner."""
    return {"ffn": "cos_bochner", "cos_bochner": {"features": features}}


def rbf(capacity: int, **memory: Any) -> dict[str, Any]:
    """One with a growing second layer; it reads and stores where the next word belongs to a value.

    Args:
      capacity: most entries; room for all of them is made at once, so that little is compiled.
      memory: further settings of the memory.
    """
    room = {"initial_capacity": capacity, "capacity": capacity}
    tokens = {"reading": "values", "admission": "values"}
    return {"ffn": ["geglu", "rbf"], "rbf": {"memory": {**room, **memory}, "tokens": tokens}}
