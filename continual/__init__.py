"""The harness: configurations, presets, the run and its checkpoints.

Names are imported when first used, so that what needs no learner (a preset's name) answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import RunConfig, config_yaml, override, parse_config, read_config
    from .finite import DivergedError
    from .origin import Origin
    from .presets import PRESETS, preset_values
    from .run import Outcome, Run

_MODULES = {
    "config": ("RunConfig", "config_yaml", "override", "parse_config", "read_config"),
    "finite": ("DivergedError",),
    "origin": ("Origin",),
    "presets": ("PRESETS", "preset_values"),
    "run": ("Outcome", "Run"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PRESETS",
    "DivergedError",
    "Origin",
    "Outcome",
    "Run",
    "RunConfig",
    "config_yaml",
    "override",
    "parse_config",
    "preset_values",
    "read_config",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
