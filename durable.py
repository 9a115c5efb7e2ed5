"""The one way Lamina makes a file last: temporary file, fsync, rename, fsync of the folder.

Everything that must survive a kill or a power loss goes through here (the memory's commits, the
stream's segments and headers, reports), as does the lock that keeps a folder to one writer.
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import BusyError, StorageError

_REFUSALS = {
    errno.ENOSPC: "the disk is full; free space and run the command again",
    errno.EDQUOT: "the disk quota is used up; free space and run the command again",
    errno.EROFS: "the file system is read-only; choose a writable folder",
    errno.EACCES: "no permission to write there; choose a writable folder",
    errno.EPERM: "no permission to write there; choose a writable folder",
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns the operating system's refusal to write below `path` into one clear line.

    Raises:
      StorageError: the disk is full or read-only, or writing is not permitted; nothing that was
        committed before is lost.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in _REFUSALS:
            raise
        raise StorageError(f"cannot write {path}: {_REFUSALS[error.errno]}") from error


def write_durably(path: Path, content: bytes) -> None:
    """Replaces `path` by `content` so that after any crash it holds the old bytes or the new ones.

    Args:
      path: the file to write; its folder must exist.
      content: all of its new bytes.

    Raises:
      StorageError: the file system refused; `path` is unchanged and no temporary file is left.
    """
    with storage_errors(path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable (creations, renames, deletions)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FolderLock:
    """Exclusive use of a folder by one open `FolderLock`, released when closed or when its process dies.

    The lock is `flock` on the file `.lock` in the folder: a second holder is refused at once, in
    another process or in the same one.

    Raises:
      BusyError: somebody else holds the folder.
      StorageError: the lock file cannot be written.
    """

    def __init__(self, folder: Path, purpose: str = "written") -> None:
        with storage_errors(folder):
            self._file = open(folder / ".lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise BusyError(
                f"{folder} is being {purpose} by {holder}; wait until it ends, or choose another folder"
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def close(self) -> None:
        """Releases the folder; closing twice is harmless."""
        self._file.close()

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
