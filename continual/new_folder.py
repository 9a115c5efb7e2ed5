"""The folder of a run that is being started: locked, marked until the run stands, else cleared."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Self

from ..durable import FolderLock, storage_errors, sync_folder, write_durably
from ..errors import ConfigError, MissingDataError

CONFIG = "config.yaml"
STARTING = "config.yaml.starting"  # the name of the configuration until the run's first commit


class NewFolder:
    """Claims a folder for a new run, in a `with` whose body makes the run and calls `complete`.

    A start that was killed leaves its mark, by which the next start in that folder knows what to clear: the
    folder becomes a run, to be resumed, only by its first commit.

    Args:
      directory: an empty folder, or one to make.
      config: the run's configuration, as YAML.

    Raises:
      ConfigError: the folder holds something, or is none.
      BusyError: somebody else writes there.
      StorageError: the file system refused.
    """

    def __init__(self, directory: Path, config: str) -> None:
        self._directory = directory
        self._made = _make(directory)
        self._lock = FolderLock(directory)
        self._complete = False
        try:
            if (directory / STARTING).exists():
                self._clear()
            _require_empty(directory)
            write_durably(directory / STARTING, config.encode())
        except BaseException:
            self._leave()
            raise

    def complete(self) -> FolderLock:
        """Makes the folder a run and hands its lock over."""
        with storage_errors(self._directory):
            os.replace(self._directory / STARTING, self._directory / CONFIG)
            sync_folder(self._directory)
        self._complete = True
        return self._lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._complete:
            with suppress(OSError):  # what the disk will not give up, the next start clears
                self._clear()
            self._leave()

    def _leave(self) -> None:
        """Releases the folder, and takes it away if it was made here and is empty."""
        if self._made:
            with suppress(OSError):
                (self._directory / ".lock").unlink()
                self._directory.rmdir()
        self._lock.close()

    def _clear(self) -> None:
        """Removes what a start has left, its mark last."""
        with storage_errors(self._directory):
            for path in sorted(self._directory.iterdir(), key=lambda path: path.name == STARTING):
                if path.name != ".lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def require_run(directory: Path) -> Path:
    """The configuration of the run in a folder.

    Raises:
      MissingDataError: there is no run.
    """
    if not (directory / CONFIG).exists():
        started = (directory / STARTING).exists()
        raise MissingDataError(
            f"{directory}: expected a run's folder with {CONFIG}; "
            + ("found a run that never began: start it again" if started else "there is none")
        )
    return directory / CONFIG


def _make(directory: Path) -> bool:
    """Makes a folder; returns whether it was not there before."""
    try:
        with storage_errors(directory):
            directory.mkdir(parents=True)
    except (FileExistsError, NotADirectoryError):
        if not directory.is_dir():
            raise ConfigError(
                f"{directory}: expected a folder for the run, or a path to make one; found a file there: "
                f"choose another --run-dir"
            ) from None
        return False
    return True


def _require_empty(directory: Path) -> None:
    found = sorted(path.name for path in directory.iterdir() if path.name != ".lock")
    if found:
        raise ConfigError(
            f"{directory} is not empty (it holds {found[0]}): choose another --run-dir, "
            f"or go on with lamina resume {directory}"
        )
