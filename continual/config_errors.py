"""What is wrong in a configuration, in one line; for a name that does not exist with the nearest ones."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from ..learners.config import LEARNERS
from ..learners.optimisers import OPTIMISERS, PLAIN
from ..learners.parts import PART_KINDS
from .run_config import RunConfig
from .scenarios import SCENARIOS

_ANY = "*"  # stands for a name that the user chooses, or for a place in a list


def one_line(error: ValidationError) -> str:
    """What is wrong in a configuration: where, what was expected, what was found."""
    # Where a value may be of several types, the error that went deepest is about the one that was meant.
    first = max(error.errors(include_url=False), key=lambda e: (len(_path(e["loc"])), len(e["loc"])))
    path = ".".join(_path(first["loc"]))
    if first["type"] == "unexpected_keyword_argument":
        return _unknown(".".join(_path(first["loc"][:-1])), str(first["loc"][-1]))
    if first["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{path} is missing: add it to the configuration, or give --set {path}=VALUE"
    if first["type"].startswith("union_tag_"):
        return _unknown_kind(path, first["ctx"].get("tag"))
    message = str(first["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "value_error" or isinstance(first["input"], Mapping):
        return f"{path or 'configuration'}: {message}"
    return f"{path}: {message}; found {first['input']!r}"


def _unknown_kind(path: str, kind: str | None) -> str:
    """What is wrong with the `kind` of a learner, scenario or optimiser, which may be missing."""
    inside, _, what = path.rpartition(".")
    what = "layer" if inside.endswith("layers") or what == "ffn" else what
    lists = {"learner": LEARNERS, "scenario": SCENARIOS, "others": PLAIN, "layer": PART_KINDS}
    known = list(lists.get(what, OPTIMISERS))
    if kind is None:
        return f"{path}.kind is missing: expected one of {', '.join(known)}"
    near = get_close_matches(kind, known, n=3) or known
    what = what if what in ("learner", "scenario", "layer") else "optimiser"
    return f"{path}.kind: unknown {what} {kind!r}; did you mean {' or '.join(near)}?"


def _path(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """The names of a place, without the tags of unions that pydantic puts in between."""
    known, tagged = _known(), _tagged()
    names: tuple[str, ...] = ()
    tag_follows = False
    for part in map(str, location):
        if tag_follows and "[" not in part:  # a tag may be a name as well: learner.rbf of decoders
            tag_follows = False
        elif (pattern := _pattern((*names, part), known)) in known:
            names = (*names, part)
            tag_follows = pattern in tagged
    return names


def _pattern(names: tuple[str, ...], known: frozenset[tuple[str, ...]]) -> tuple[str, ...]:
    """Names with those that a user chose replaced by `_ANY`."""
    pattern: tuple[str, ...] = ()
    for name in names:
        pattern = (*pattern, name if (*pattern, name) in known else _ANY)
    return pattern


def _unknown(parent: str, name: str) -> str:
    known = _known()
    parents = tuple(parent.split(".")) if parent else ()
    pattern = _pattern(parents, known)
    siblings = sorted({p[-1] for p in known if p[:-1] == pattern and p[-1] != _ANY})
    full = ".".join([*parents, name])
    if name in siblings:
        return f"{full}: {parent} of this kind has no {name!r}, which belongs to another kind: leave it out"
    near = get_close_matches(name, siblings, n=3)
    elsewhere = sorted((p for p in known if p[-1] == name and _ANY not in p), key=lambda p: (len(p), p))
    inside = [".".join(p) for p in elsewhere if p[:-1] != parents and p[: len(parents)] == parents][:1]
    outside = [".".join(p) for p in elsewhere if len(p) == len(elsewhere[0])]
    hints = inside or [".".join([*parents, n]) for n in near] or outside
    hint = f"did you mean {' or '.join(hints)}?" if hints else f"known names: {', '.join(siblings)}"
    return f"unknown name {full}: {parent or 'the configuration'} has no {name!r}; {hint}"


@cache
def _known() -> frozenset[tuple[str, ...]]:
    """All names of a configuration, with `_ANY` where a user chooses one."""
    return frozenset(names for names, _ in _places(RunConfig))


@cache
def _tagged() -> frozenset[tuple[str, ...]]:
    """The names under which a `kind` says which of several configurations stands there."""
    return frozenset(names for names, tagged in _places(RunConfig) if tagged)


def _places(kind: Any) -> Iterator[tuple[tuple[str, ...], bool]]:
    """All dotted names of a configuration class, as tuples, and whether a kind is chosen there."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        yield (each.name,), False
        for path, member, tagged in _members(hints[each.name]):
            if is_dataclass(member):
                yield (each.name, *path), tagged
                yield from (((each.name, *path, *inner), t) for inner, t in _places(member))


def _members(
    hint: Any, path: tuple[str, ...] = (), tagged: bool = False
) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    """The types that an annotation admits, the places inside it where they stand, and whether by kind."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        by_kind = any(getattr(each, "discriminator", None) is not None for each in arguments[1:])
        yield from _members(arguments[0], path, tagged or by_kind)
    elif origin in (Union, types.UnionType):
        for member in arguments:
            yield from _members(member, path, tagged)
    elif origin is dict:
        yield from _members(arguments[1], (*path, _ANY))
    elif origin is tuple and arguments[1:] == (Ellipsis,):
        yield from _members(arguments[0], (*path, _ANY))
    else:
        yield path, hint, tagged
