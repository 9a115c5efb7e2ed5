"""The configuration that a command's options describe."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..continual.config import RunConfig


def chosen_config(options: argparse.Namespace) -> "RunConfig":
    """The configuration that the options of `cli._add_config_options` describe."""
    values = _values(options.config)
    from ..continual.config import override, parse_config

    if options.seed is not None:
        values["seed"] = options.seed
    return parse_config(override(values, options.set + _runner_settings(options)))


def _values(config: str) -> dict[str, Any]:
    """What a preset or a YAML file says."""
    if config.endswith((".yaml", ".yml")):
        from ..continual.config import read_config

        return read_config(Path(config))
    from ..continual.presets import preset_values

    return preset_values(config)


def _runner_settings(options: argparse.Namespace) -> list[str]:
    settings = [] if options.runner is None else [f"stream.runner={options.runner}"]
    if options.runner_option:
        settings.append(f"stream.runner_options={json.dumps(options.runner_option)}")
    return settings
