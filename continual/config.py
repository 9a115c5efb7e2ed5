"""The configuration of a run: read from presets, YAML files and `--set` overrides, and checked.

What is wrong in a configuration is said in one line: where, what was expected, what was found, and for a name
that does not exist the nearest ones.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as config

from ..errors import ConfigError, MissingDataError
from ..learners.config import LEARNERS, LearnerConfig
from ..stream import StreamConfig

_STRICT = ConfigDict(extra="forbid")


@config(frozen=True, config=_STRICT, kw_only=True)
class EvaluationConfig:
    """Evaluation on held-out data while the stream passes by. A run's end is always evaluated in full."""

    # Examples learnt from between two evaluations; None: only at the end.
    every_examples: Annotated[int, Field(gt=0)] | None = None
    # Most held-out examples (the first ones) in an evaluation before the end; None: all.
    examples: Annotated[int, Field(gt=0)] | None = None
    # The part of the data set held out; None: no evaluation.
    split: str | None = "test"


@config(frozen=True, config=_STRICT, kw_only=True)
class CommitConfig:
    """When everything is made durable. An interruption loses at most what came after the last commit."""

    # Steps between two commits; None: chosen so that committing takes `share` of the time.
    every_steps: Annotated[int, Field(gt=0)] | None = None
    # Share of the time that committing may take where every_steps is None.
    share: Annotated[float, Field(gt=0, le=1)] = 0.03


@config(frozen=True, config=_STRICT, kw_only=True)
class RunConfig:
    """One run: a learner over one pass of a stream."""

    # Names the run in metrics and reports, and its folder where none is given.
    name: Annotated[str, Field(min_length=1)]
    # Fixes everything random: order, augmentation, initial entries, initial weights.
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    # What passes by.
    stream: StreamConfig
    # A log built before (`lamina stream build`) to read instead of building one in the run's folder.
    log: str | None = None
    # Who learns from it.
    learner: LearnerConfig
    # Examples per update, B.
    batch_size: Annotated[int, Field(gt=0)] = 16
    # Type of all floating-point numbers of the learner.
    precision: Literal["float32", "float64"] = "float32"
    # Devices that each growing layer's entries are spread over; on a CPU they are made as threads.
    devices: Annotated[int, Field(gt=0)] = 1
    # Updates between two rows of the metrics table.
    record_every: Annotated[int, Field(gt=0)] = 25
    evaluation: EvaluationConfig = EvaluationConfig()
    commit: CommitConfig = CommitConfig()

    @model_validator(mode="after")
    def _check(self) -> "RunConfig":
        if self.log is not None and self.stream.drop_consumed:
            raise ValueError("log names a log to be kept, and stream.drop_consumed deletes it: set one only")
        return self


_RUN = TypeAdapter(RunConfig)


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
        return _RUN.validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(_one_line(error)) from None


def config_values(config: RunConfig) -> dict[str, Any]:
    """A configuration as plain values, as `parse_config` takes them."""
    values: dict[str, Any] = _RUN.dump_python(config, mode="json")
    return values


def config_yaml(config: RunConfig) -> str:
    """A configuration as YAML, as `read_config` takes it."""
    return yaml.safe_dump(config_values(config), sort_keys=False, allow_unicode=True)


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(v) if isinstance(v, Mapping) else v for name, v in values.items()}


def _one_line(error: ValidationError) -> str:
    # Where a value may be of several types, the error that went deepest is about the one that was meant.
    first = max(error.errors(include_url=False), key=lambda e: (len(_path(e["loc"])), len(e["loc"])))
    path = ".".join(_path(first["loc"]))
    if first["type"] == "unexpected_keyword_argument":
        return _unknown(path, str(first["loc"][-1]))
    if first["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{path} is missing: add it to the configuration, or give --set {path}=VALUE"
    if first["type"] == "union_tag_not_found":
        return f"{path}.kind is missing: expected one of {', '.join(LEARNERS)}"
    if first["type"] == "union_tag_invalid":
        kind = str(first["ctx"]["tag"])
        near = get_close_matches(kind, LEARNERS, n=3) or LEARNERS
        return f"{path}.kind: unknown learner {kind!r}; did you mean {' or '.join(near)}?"
    message = str(first["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "value_error" or isinstance(first["input"], Mapping):
        return f"{path or 'configuration'}: {message}"
    return f"{path}: {message}; found {first['input']!r}"


def _path(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """The names of a place, without the tags of unions that pydantic puts in between."""
    known = set(_names(RunConfig))
    names: tuple[str, ...] = ()
    for part in map(str, location):
        names = (*names, part) if (*names, part) in known else names
    return names


def _unknown(parent: str, name: str) -> str:
    parents = tuple(parent.split(".")) if parent else ()
    siblings = sorted({p[-1] for p in _names(RunConfig) if p[:-1] == parents})
    near = get_close_matches(name, siblings, n=3)
    elsewhere = sorted({".".join(p) for p in _names(RunConfig) if p[-1] == name})
    hints = [".".join([*parents, n]) for n in near] or elsewhere
    known = f"did you mean {' or '.join(hints)}?" if hints else f"known names: {', '.join(siblings)}"
    full = ".".join([*parents, name])
    return f"unknown name {full}: {parent or 'the configuration'} has no {name!r}; {known}"


def _names(kind: Any) -> Iterator[tuple[str, ...]]:
    """All dotted names of a configuration class, as tuples."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        yield (each.name,)
        for member in _members(hints[each.name]):
            if is_dataclass(member):
                yield from ((each.name, *inner) for inner in _names(member))


def _members(hint: Any) -> Iterator[Any]:
    """The types that an annotation admits."""
    if get_origin(hint) is Annotated:
        yield from _members(get_args(hint)[0])
    elif get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint
