"""Forks: a run that begins where another was at a commit, with other settings from there on."""

from collections.abc import Sequence
from pathlib import Path

from ..durable import write_durably
from ..errors import ConfigError
from ..memory.store import Store
from ..monitoring.predictions import LAYOUT_NAME, PREDICTIONS_NAME
from ..monitoring.recorder import PREDICTIONS_POSITION, TABLE_POSITION
from ..monitoring.table import TABLE_NAME
from .beginning import saved_progress
from .checkpoint import load_progress
from .config import override, parse_config, read_config
from .new_folder import require_run
from .origin import MEMORY, Origin
from .run_config import RunConfig, phases_of

_FILES = {TABLE_NAME: TABLE_POSITION, PREDICTIONS_NAME: PREDICTIONS_POSITION}


def forked_config(origin: Origin, name: str, settings: Sequence[str]) -> RunConfig:
    """The configuration of a fork.

    Args:
      origin: the run, and the commit to begin at.
      name: the fork's name where the settings give none.
      settings: `a.b=value`, as `--set` takes them.

    Raises:
      MissingDataError: there is no such run or commit.
      ConfigError: a wrong setting, one that changes what has come by already, or nothing is left to do.
    """
    values = read_config(require_run(origin.directory))
    before, config = parse_config(values), parse_config(override({**values, "name": name}, settings))
    with Store.open(origin.directory / MEMORY) as store, store.generation(origin.at) as generation:
        progress = saved_progress(before, load_progress(generation), origin)
    old, new = phases_of(before), phases_of(config)
    for number in range(progress.number + 1):
        name = old[number].name
        if number >= len(new) or new[number].name != name:
            raise ConfigError(f"fork: expected phase {number + 1} to be {name!r}, which has begun already")
        was, now = old[number].stream.content(), new[number].stream.content()
        for part in was:
            if was[part] != now[part]:
                raise ConfigError(
                    f"fork: expected stream.{part} of phase {name} to stay {was[part]!r}, as it has begun "
                    f"already; found {now[part]!r}: change a later phase, or start a new run with --from"
                )
    if progress.finished and len(new) == len(old):
        raise ConfigError(
            f"{origin.directory} is finished there: expected an earlier commit (RUN@STEP or RUN@TAG), or a "
            f"further phase, as --set phases.NAME={{}}"
        )
    return config


def share(origin: Origin, directory: Path) -> None:
    """Gives a new run's folder the memory of a commit, sharing its bytes, and what was recorded until then.

    Args:
      origin: the run, and the commit.
      directory: the new folder.

    Raises:
      MissingDataError, FormatError: there is no such commit, or it is damaged.
      StorageError: the file system refused.
    """
    with origin.branch(directory / MEMORY) as store, store.generation() as generation:
        positions = load_progress(generation)["positions"]
    for name, position in _FILES.items():
        with open(origin.directory / name, "rb") as file:
            write_durably(directory / name, file.read(positions[position]))
    write_durably(directory / LAYOUT_NAME, (origin.directory / LAYOUT_NAME).read_bytes())
