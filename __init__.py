"""Lamina: streaming online learning with networks made of growing databases.

Public names are imported from their rooms when first used, so that `import lamina` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .continual.checkpoint import load, save
    from .continual.run import Run
    from .learners.config import build_learner
    from .learners.growing_config import LinearConfig, RBFConfig, SoftmaxConfig
    from .learners.learner import Learner
    from .learners.losses import Task
    from .learners.parametric import MLPConfig, ParametricSoftmaxConfig
    from .learners.state import Batch, Result, State
    from .memory.database import Database
    from .memory.policy import MemoryConfig
    from .memory.retrieval import retrieve
    from .memory.store import Store
    from .stream import GivenStatistics, StreamConfig, StreamReader, build_log, open_source

_ROOMS = {
    "continual.checkpoint": ("load", "save"),
    "continual.run": ("Run",),
    "learners.config": ("build_learner",),
    "learners.growing_config": ("LinearConfig", "RBFConfig", "SoftmaxConfig"),
    "learners.learner": ("Learner",),
    "learners.losses": ("Task",),
    "learners.parametric": ("MLPConfig", "ParametricSoftmaxConfig"),
    "learners.state": ("Batch", "Result", "State"),
    "memory.database": ("Database",),
    "memory.policy": ("MemoryConfig",),
    "memory.retrieval": ("retrieve",),
    "memory.store": ("Store",),
    "stream": ("GivenStatistics", "StreamConfig", "StreamReader", "build_log", "open_source"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Batch",
    "Database",
    "GivenStatistics",
    "Learner",
    "LinearConfig",
    "MLPConfig",
    "MemoryConfig",
    "ParametricSoftmaxConfig",
    "RBFConfig",
    "Result",
    "Run",
    "SoftmaxConfig",
    "State",
    "Store",
    "StreamConfig",
    "StreamReader",
    "Task",
    "build_learner",
    "build_log",
    "load",
    "open_source",
    "retrieve",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
