"""The list of sources, from which specs are opened and the command line prints its help."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import ConfigError
from ..config import StreamConfig
from .table import Table

OpenTable = Callable[[str, StreamConfig, str | None], Table]


@dataclass(frozen=True)
class Entry:
    """One kind of source."""

    spec: str  # how a spec of this kind is written: "npz:FILE"
    line: str  # what it streams, in one line
    open: OpenTable  # (argument after the colon, config, split asked for or None) → rows


_ENTRIES: dict[str, Entry] = {}


def register(spec: str, line: str) -> Callable[[OpenTable], OpenTable]:
    """Makes the decorated function the one that opens sources of the kind named before the colon."""

    def enter(function: OpenTable) -> OpenTable:
        _ENTRIES[spec.partition(":")[0]] = Entry(spec, line, function)
        return function

    return enter


def list_sources() -> list[tuple[str, str]]:
    """The kinds of source: (how its spec is written, what it streams)."""
    return [(entry.spec, entry.line) for entry in _ENTRIES.values()]


def open_table(config: StreamConfig, split: str | None) -> Table:
    """Opens the rows that `config.source` names.

    Raises:
      ConfigError: no such kind of source, or an argument is missing or superfluous.
    """
    kind, _, argument = config.source.partition(":")
    if kind not in _ENTRIES:
        near = get_close_matches(kind, _ENTRIES, n=3, cutoff=0.5) or list(_ENTRIES)
        raise ConfigError(f"unknown source {config.source!r}; did you mean {', '.join(near)}?")
    entry = _ENTRIES[kind]
    if bool(argument) != (":" in entry.spec):
        raise ConfigError(f"the source {config.source!r} should be written {entry.spec}")
    return entry.open(argument, config, split)


def check_split(split: str, splits: tuple[str, ...], source: str) -> str:
    """Returns `split` if it is one of `splits`, else raises ConfigError."""
    if split not in splits:
        raise ConfigError(f"{source} has the splits {', '.join(splits)}, not {split!r}")
    return split
