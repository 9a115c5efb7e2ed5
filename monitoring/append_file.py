"""An append-only file with a committed position: the one mechanism under the table and the predictions.

A commit of the run stores the position of each such file. What was appended after the last commit is
dropped when the run is resumed from it, so that it is done again and written again, identically.
"""

import os
from pathlib import Path

from ..durable import storage_errors, sync_folder
from ..errors import ConfigError, FormatError


class AppendFile:
    """A file that only grows, opened by its one writer at a committed position.

    Every append reaches the operating system before it returns: a killed process loses nothing it
    appended. `sync` makes it survive a power loss too.

    Attributes:
      tail: the bytes found after the position, dropped from the file.
    """

    def __init__(self, path: Path, position: int | None = None) -> None:
        """Opens the file.

        Args:
          path: the file; its folder must exist.
          position: bytes to keep, as `position()` returned them at the last commit; None: a new file.

        Raises:
          ConfigError: the file holds something already, and no position was given.
          FormatError: the file is shorter than the position.
          StorageError: the file system refused.
        """
        self.path = path
        found = path.stat().st_size if path.exists() else 0
        _check_size(path, found, position)
        self._position = position or 0
        with storage_errors(path):
            # Unbuffered: what a killed process appended is in the file, torn at most in its last write.
            self._file = open(path, "r+b" if path.exists() else "w+b", buffering=0)
            try:
                self._file.seek(self._position)
                self.tail = self._file.read(found - self._position)
                self._file.truncate(self._position)
                self._file.seek(self._position)
                sync_folder(path.parent)
            except BaseException:
                self._file.close()
                raise

    def append(self, content: bytes) -> None:
        """Writes bytes at the end: all of them, or none.

        Raises:
          StorageError: the file system refused; the file ends where it did before.
        """
        with storage_errors(self.path):
            try:
                written = 0
                while written < len(content):
                    written += self._file.write(content[written:]) or 0
            except OSError:
                self._file.truncate(self._position)
                self._file.seek(self._position)
                raise
        self._position += len(content)

    def position(self) -> int:
        """Returns the bytes appended so far; every one has left this process."""
        return self._position

    def sync(self) -> None:
        """Makes everything appended so far survive a power loss.

        Raises:
          StorageError: the file system refused.
        """
        with storage_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; closing twice is harmless."""
        self._file.close()


def _check_size(path: Path, found: int, position: int | None) -> None:
    if position is None and found > 0:
        raise ConfigError(
            f"{path} already holds {found} bytes of a run; resume that run, or choose another folder"
        )
    if position is not None and found < position:
        raise FormatError(
            f"{path} holds {found} bytes, but {position} were committed: it was cut or replaced; "
            "restore it from a copy of the run"
        )
