"""The configuration of a run: read from presets, YAML files and `--set` overrides, and checked."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ..errors import ConfigError, MissingDataError
from ..stream.config import SOURCE_OPTIONS, StreamConfig, config_to_json
from .config_errors import one_line
from .run_config import CommitConfig, EvaluationConfig, RunConfig
from .scenarios import scenario_phases

__all__ = [
    "CommitConfig",
    "EvaluationConfig",
    "RunConfig",
    "config_values",
    "config_yaml",
    "override",
    "parse_config",
    "read_config",
]

_RUN = TypeAdapter(RunConfig)
_STREAMED_ONLY = ("limit", "augment", "label_noise", "drift")


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, unchecked.

    Raises:
      MissingDataError: no such file.
      ConfigError: not YAML, or not a mapping.
    """
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise MissingDataError(f"{path}: expected a YAML configuration; there is no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        found = " ".join(str(error).split())
        raise ConfigError(f"{path}: expected a YAML configuration; found: {found}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a YAML mapping; found {type(values).__name__}")
    return values


def override(values: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A configuration with `a.b=value` settings applied; values are YAML.

    >>> override({"learner": {"kind": "rbf"}}, ["learner.temperature=5", "seed=1"])
    {'learner': {'kind': 'rbf', 'temperature': 5}, 'seed': 1}
    """
    changed: dict[str, Any] = _copy(values)
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name:
            raise ConfigError(f"--set {setting}: expected NAME=VALUE, for example learner.temperature=5")
        *parents, last = name.strip().split(".")
        place = changed
        for parent in parents:
            inner = place.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {setting}: {parent} is {inner!r}, which has nothing inside to set")
            place = inner
        try:
            place[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ConfigError(f"--set {setting}: expected a YAML value; found {text!r}") from None
    return changed


def parse_config(values: Mapping[str, Any]) -> RunConfig:
    """The checked configuration.

    Raises:
      ConfigError: a name is unknown or missing, or a value of the wrong type or out of range.
    """
    try:
        return _RUN.validate_python(_complete(values))
    except ValidationError as error:
        raise ConfigError(one_line(error)) from None


def config_values(config: RunConfig) -> dict[str, Any]:
    """A configuration as plain values, as `parse_config` takes them.

    The options of a source that no stream reads are left out where nobody has set them.
    """
    values: dict[str, Any] = _RUN.dump_python(config, mode="json")
    streams = list(_streams(values))
    for source, options in SOURCE_OPTIONS.items():
        unset = config_to_json(StreamConfig(source))[options]
        if all(_unread(stream, source) and stream[options] == unset for stream in streams):
            for stream in streams:
                del stream[options]
    return values


def config_yaml(config: RunConfig) -> str:
    """A configuration as YAML, as `read_config` takes it."""
    return yaml.safe_dump(config_values(config), sort_keys=False, allow_unicode=True)


def _streams(values: Any) -> Iterator[dict[str, Any]]:
    """The streams anywhere in a configuration: the run's, its phases', its tasks'."""
    if isinstance(values, dict):
        if values.keys() >= {"source", *SOURCE_OPTIONS.values()}:
            yield values
        for inner in values.values():
            yield from _streams(inner)


def _unread(stream: Mapping[str, Any], source: str) -> bool:
    return source not in (stream["source"], (stream["drift"] or {}).get("source"))


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(v) if isinstance(v, Mapping) else v for name, v in values.items()}


def _complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose phases and tasks say everything, not only what differs from the run's own."""
    complete = dict(values)
    stream, learner = values.get("stream"), values.get("learner")
    phases = values.get("phases")
    written_out = _written_out(values.get("scenario"), values.get("seed", 0))
    if written_out and isinstance(phases, Mapping | None):
        phases = {
            name: _merge(written_out.get(name), (phases or {}).get(name))
            for name in {**written_out, **(phases or {})}
        }
        complete["scenario"] = None  # its phases stand for it from now on
    if isinstance(phases, Mapping):
        complete["phases"] = {
            name: {
                **phase,
                "stream": _merge(stream, phase.get("stream")),
                "learner": _merge(learner, phase.get("learner")),
            }
            if isinstance(phase, Mapping)
            else phase
            for name, phase in phases.items()
        }
    evaluation = values.get("evaluation")
    if isinstance(evaluation, Mapping) and isinstance(tasks := evaluation.get("tasks"), Mapping):
        base = stream
        if isinstance(stream, Mapping):  # what belongs to the streamed examples alone
            base = {name: value for name, value in stream.items() if name not in _STREAMED_ONLY}
        whole = {name: _merge(base, task) for name, task in tasks.items()}
        complete["evaluation"] = {**evaluation, "tasks": whole}
    return complete


def _written_out(scenario: Any, seed: Any) -> dict[str, Any]:
    """A scenario's phases; none if there is none, or if it is wrong, as the checks will say."""
    try:
        return {} if scenario is None else scenario_phases(scenario, seed if isinstance(seed, int) else 0)
    except ValidationError:
        return {}


def _merge(base: Any, changes: Any) -> Any:
    """`base` with changes applied, inner mappings too; another `kind` (of learner) begins from nothing."""
    if changes is None:
        return base
    if not isinstance(base, Mapping) or not isinstance(changes, Mapping):
        return changes
    if "kind" in changes and changes["kind"] != base.get("kind"):
        return changes
    return {
        **base,
        **{
            name: _merge(base.get(name), value) if value is not None else None
            for name, value in changes.items()
        },
    }
