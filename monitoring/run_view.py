"""A read-only view of a run's folder, also while the run goes on: it takes no lock and writes nothing."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from numpy.typing import NDArray

from ..errors import FormatError, MissingDataError
from ..memory.store import Store
from .predictions import LAYOUT_NAME, read_predictions
from .rows import Row
from .summary import SUMMARY_NAME, Summary, read_summary
from .table import TABLE_NAME, read_table, row_of_step

CONFIG_NAME = "config.yaml"
MEMORY_NAME = "memory"
LOCK_NAME = ".lock"


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"  # a process holds the folder
    INTERRUPTED = "interrupted"  # nobody holds it, and there is more to do
    FINISHED = "finished"  # it left its summary


class RunView:
    """What a run's folder holds now; every method reads it afresh.

    Attributes:
      path: the folder.
    """

    def __init__(self, path: Path) -> None:
        """Looks at a folder.

        Args:
          path: the run's folder.

        Raises:
          MissingDataError: it is not the folder of a run.
        """
        if not (path / CONFIG_NAME).is_file():
            what = "an empty folder" if path.is_dir() and not any(path.iterdir()) else "not a run"
            raise MissingDataError(
                f"{path} is {what if path.is_dir() else 'not a folder'}: expected the folder of a "
                f"run, which has a {CONFIG_NAME}; `lamina run` prints where it makes one"
            )
        self.path = path

    def config(self) -> dict[str, Any]:
        """Returns the run's configuration as plain values.

        Raises:
          FormatError: the file is damaged.
        """
        path = self.path / CONFIG_NAME
        try:
            config = yaml.safe_load(path.read_text())
        except (yaml.YAMLError, UnicodeDecodeError):
            config = None
        if not isinstance(config, dict):
            raise FormatError(
                f"{path} is damaged: expected a YAML mapping; restore it from a copy of the run"
            )
        return config

    def name(self) -> str:
        """Returns the run's name: what its configuration says, else that of the folder.

        Raises:
          FormatError: the configuration is damaged.
        """
        return str(self.config().get("name") or self.path.resolve().name)

    def rows(self) -> list[Row]:
        """Returns the table's rows, none if the run has not recorded any yet.

        Raises:
          FormatError: the table is damaged before its end.
        """
        path = self.path / TABLE_NAME
        return read_table(path) if path.exists() else []

    def step_row(self, step: int) -> Row | None:
        """Returns the table's row of a step, or None if it has none.

        Raises:
          FormatError: the table is damaged there.
        """
        path = self.path / TABLE_NAME
        return row_of_step(path, step) if path.exists() else None

    def predictions(self) -> NDArray[Any] | None:
        """Returns the predictions as a read-only structured array, or None if there are none.

        Raises:
          FormatError: their layout is damaged.
        """
        return read_predictions(self.path) if (self.path / LAYOUT_NAME).exists() else None

    def memory(self) -> Store | None:
        """Returns the run's memory, to be closed, or None if it has none yet.

        Its files are not compared with its inventory: a damaged memory can be looked into, and
        `Store.verify` tells what is wrong with it.

        Raises:
          MissingDataError: the folder is there but holds no store.
          FormatError: its head is damaged or of a newer format.
        """
        path = self.path / MEMORY_NAME
        return Store.open(path, check=False) if path.exists() else None

    def summary(self) -> Summary | None:
        """Returns the summary, or None if the run is not finished.

        Raises:
          FormatError: the file is damaged.
        """
        return read_summary(self.path) if (self.path / SUMMARY_NAME).exists() else None

    def state(self, committed_step: int = 0) -> RunState:
        """Tells whether the run goes on, was interrupted or is finished.

        Args:
          committed_step: the step of the last commit; a summary of fewer steps is left from before
            the run was taken up again.

        Raises:
          FormatError: the summary is damaged.
        """
        summary = self.summary()
        if summary is not None and summary.steps >= committed_step:
            return RunState.FINISHED  # even while its process still holds the folder
        return RunState.RUNNING if _is_held(self.path / LOCK_NAME) else RunState.INTERRUPTED


def _is_held(lock: Path) -> bool:
    """Tells whether the process named in a lock file still has it open.

    Trying the lock could make a writer that starts at this moment fail, so it is not tried.
    """
    try:
        found = lock.stat()
        process = int(lock.read_text().removeprefix("process "))
        if process <= 0:  # would mean a group of processes
            return False
        os.kill(process, 0)
    except (FileNotFoundError, ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # alive, but somebody else's
    return _has_open(process, (found.st_dev, found.st_ino))


def _has_open(process: int, file: tuple[int, int]) -> bool:
    descriptors = Path(f"/proc/{process}/fd")
    try:
        names = list(descriptors.iterdir())
    except OSError:  # no /proc on this system, or somebody else's process: it is alive at least
        return True
    for name in names:
        try:
            found = name.stat()
        except OSError:
            continue  # closed since it was listed
        if (found.st_dev, found.st_ino) == file:
            return True
    return False
