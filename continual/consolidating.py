"""Elastic weight consolidation at the end of a phase."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ..learners.ewc import consolidated
from ..learners.parametric import HeldConfig

if TYPE_CHECKING:
    from .run import Run


def consolidate(run: "Run") -> None:
    """Where the learner asks for it, holds its parameters where the phase that ends has left them."""
    config = run.stage.phase.config.learner
    if not isinstance(config, HeldConfig) or not config.ewc:
        return
    x, y = run.stage.first_examples(config.ewc_examples)
    importance = run.learner.squared_gradients(run.state, x, y)
    optimiser = consolidated(run.state.optimiser, run.state.parameters, importance)
    run.state = replace(run.state, optimiser=optimiser)
