"""Doing a phase's actions to a run's memories, between two steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..memory.store import Store
from .actions import brought_forward, cap, decay, merge, prune_all
from .beginning import saved_progress
from .checkpoint import load_progress, load_state
from .origin import MEMORY, Origin
from .phase_config import MemoryAction

if TYPE_CHECKING:
    from .run import Run


def act(run: "Run", actions: Sequence[MemoryAction]) -> None:
    """Does actions in their order.

    Args:
      run: whose memories.
      actions: what is done.

    Raises:
      ConfigError, MissingDataError, FormatError: a memory to restore or merge is none, or does not fit.
    """
    for action in actions:
        if action.restore is not None:
            _restore(run, action.restore)
        elif action.merge is not None:
            _merge(run, Origin.parse(action.merge))
        elif action.decay is not None:
            run.state = decay(run.state, action.decay)
        elif action.prune is not None:
            run.state = prune_all(run.state, run.learner, action.prune)
        elif action.cap is not None:
            run.state = cap(run.state, run.learner, action.cap)


def _restore(run: "Run", tag: str) -> None:
    with run.store.generation(tag) as generation:
        past, _ = load_state(generation, run.learner, run.first_state(), capped=False)
    run.replace_memory(brought_forward(past, run.state.step))


def _merge(run: "Run", origin: Origin) -> None:
    """At a phase's begin: another memory's entries, whose origins get numbers before the phase's own."""
    with Store.open(origin.directory / MEMORY) as store, store.generation(origin.at) as generation:
        other, _ = load_state(generation, run.learner, run.first_state(), capped=False)
        theirs = saved_progress(run.config, load_progress(generation), origin)
    present = run.stage.span
    moved = [replace(span, start=span.start + present.start) for span in theirs.spans]
    later = replace(present, start=present.start + theirs.origins_end)
    run.progress = replace(run.progress, spans=(*run.progress.spans[:-1], *moved, later))
    run.stage.move_origins(run.progress.spans)
    run.state = merge(run.state, other, run.learner, present.start)
