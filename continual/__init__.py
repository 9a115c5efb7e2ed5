"""The harness: configurations, presets, the run and its checkpoints."""

from .config import RunConfig, config_yaml, override, parse_config, read_config
from .loop import DivergedError
from .presets import PRESETS, preset_values
from .run import Origin, Outcome, Run

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
