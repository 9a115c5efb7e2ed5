"""The lease that keeps a generation on disk while somebody reads it."""

import fcntl
import os
import weakref
from pathlib import Path

from .inventory import INVENTORY


class Lease:
    """Keeps a generation from being deleted while it is read, by a shared `flock` on its inventory.

    It ends when closed, when nothing refers to it any more, or with the process.

    Raises:
      FileNotFoundError: the generation is gone, or just being deleted.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / INVENTORY
        descriptor = os.open(path, os.O_RDONLY)
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            gone = os.stat(path).st_ino != os.fstat(descriptor).st_ino
        except (BlockingIOError, FileNotFoundError):
            gone = True
        if gone:
            self.close()
            raise FileNotFoundError(path)

    def close(self) -> None:
        """Lets the generation go; closing twice is harmless."""
        self._close()
