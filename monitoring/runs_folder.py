"""The runs below a folder: found by name, never by a path that is sent, and never outside it."""

import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import FormatError, MissingDataError
from .predictions import LAYOUT_NAME
from .run_view import CONFIG_NAME, LOCK_NAME, MEMORY_NAME
from .summary import SUMMARY_NAME
from .table import TABLE_NAME

_DEPTH = 3  # folders below the one given, for runs kept in folders of experiments
_READ = (CONFIG_NAME, TABLE_NAME, SUMMARY_NAME, LAYOUT_NAME, LOCK_NAME, "predictions.bin", MEMORY_NAME)


class RunsFolder:
    """A folder of runs, looked through afresh at each call.

    Attributes:
      path: the folder.
    """

    def __init__(self, path: Path) -> None:
        """Looks at a folder.

        Args:
          path: of runs, or of one run.

        Raises:
          MissingDataError: there is no such folder.
        """
        if not path.is_dir():
            raise MissingDataError(f"{path}: expected a folder of runs; there is none")
        self.path = path
        self._root = path.resolve()

    def runs(self) -> dict[str, Path]:
        """Returns the runs by their names below the folder, in the order of names.

        Folders that links lead to outside are left out.
        """
        found = {str(path.relative_to(self.path)): path for path in _runs(self.path, _DEPTH)}
        found = {self._root.name if name == "." else name: path for name, path in found.items()}
        return {name: found[name] for name in sorted(found) if self._inside(found[name])}

    def run(self, name: str) -> Path:
        """Returns the folder of a run.

        Args:
          name: as `runs` gives it.

        Raises:
          MissingDataError: there is no such run.
          FormatError: the run's files are links to somewhere outside.
        """
        path = self.runs().get(name)
        if path is None:
            raise MissingDataError("no such run here; it may have been moved or deleted")
        for file in _files(path):
            if file.is_symlink() and not self._inside(file):
                raise FormatError(f"{file.name} is a link that leads outside the folder of runs: not shown")
        return path

    def _inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self._root)


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / CONFIG_NAME).is_file():
        yield folder
        return
    if depth == 0:
        return
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."]
    except OSError:  # not ours to read, or gone since
        return
    for name in names:
        yield from _runs(folder / name, depth - 1)


def _files(run: Path) -> Iterator[Path]:
    """The files of a run that are read, with the folders and columns of its memory."""
    yield from (run / name for name in _READ)
    if (run / MEMORY_NAME).is_dir():
        yield from (run / MEMORY_NAME).rglob("*")
