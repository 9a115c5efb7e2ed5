"""The experiments by name, in the order of the summary page."""

from ..experiment import Experiment
from . import (
    beyond,
    biography,
    biography_finetune,
    biography_memory,
    biography_people,
    capacity,
    delta_decay,
    depth,
    epochs,
    gap,
    narrow,
    newton,
    one_pass,
    policies,
    scenarios,
    teacher,
    vit,
)

_ALL: tuple[Experiment, ...] = (
    one_pass.EXPERIMENT,
    narrow.EXPERIMENT,
    beyond.EXPERIMENT,
    policies.EXPERIMENT,
    capacity.EXPERIMENT,
    teacher.EXPERIMENT,
    depth.EXPERIMENT,
    gap.EXPERIMENT,
    epochs.EXPERIMENT,
    newton.EXPERIMENT,
    delta_decay.EXPERIMENT,
    vit.EXPERIMENT,
    scenarios.EXPERIMENT,
    biography.EXPERIMENT,
    biography_people.EXPERIMENT,
    biography_finetune.EXPERIMENT,
    biography_memory.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
