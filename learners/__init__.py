"""Learners: growing and parametric layers, networks, and the triple init, predict, update."""

from .config import LEARNERS, LearnerConfig, build_learner, initial_key
from .conformance import Conformance, check, shipped_files
from .learner import Learner
from .losses import Task
from .state import Batch, Memory, Result, State

__all__ = [
    "LEARNERS",
    "Batch",
    "Conformance",
    "Learner",
    "LearnerConfig",
    "Memory",
    "Result",
    "State",
    "Task",
    "build_learner",
    "check",
    "initial_key",
    "shipped_files",
]
