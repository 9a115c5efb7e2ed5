"""A generation being written: shares the unchanged files of the one before, and writes the rest anew.

No file is ever opened for writing twice: an existing file may be a hard link into older
generations, which must keep their bytes.
"""

import errno
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..durable import sync_folder
from .chunks import sync_file, write_chunk, write_file
from .inventory import INVENTORY, Inventory
from .layout import zarr_group
from .sealed import seal

_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
_WRITERS = 4  # threads that wait for the disk; measured between no gain and 1.5 times


class Draft:
    """A generation's folder under a temporary name, until `publish` gives it its own.

    Files are written by a few threads; `publish` waits for them and raises what they met. Use it in a
    `with`, which ends the threads.

    Args:
      folder: the temporary folder; it must not exist.
      source: the folder of the generation whose files may be shared; None: there is none.

    Raises:
      OSError: the file system refused, here and in every method.
    """

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.folder = folder
        self._source = source
        self._folders: list[Path] = []
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="lamina-store")
        self._pending: list[Future[None]] = []
        self._make_folder(Path())
        self._make_folder(Path("blobs"))
        self._make_group(Path("tables"))

    def add_table(self, name: str) -> None:
        """Makes a table's group."""
        self._make_group(Path("tables", name))

    def add_column(self, table: str, column: str) -> Path:
        """Makes a column's folder and returns its path below the generation."""
        folder = Path("tables", table, column)
        self._make_folder(folder)
        return folder

    def share(self, folder: Path, names: Sequence[str]) -> None:
        """Takes files over from the source by hard links, or by copies where links fail.

        Args:
          folder: the files' folder below either generation.
          names: their names.
        """
        if self._source is None or not names:
            return
        ours, theirs = _open_folder(self.folder / folder), _open_folder(self._source / folder)
        try:
            # By descriptors: with thousands of chunks, joining paths costs more than linking.
            for name in names:
                try:
                    os.link(name, name, src_dir_fd=theirs, dst_dir_fd=ours)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    self.write(folder / name, (self._source / folder / name).read_bytes())
        finally:
            os.close(ours)
            os.close(theirs)

    def take(self, name: Path, path: Path) -> None:
        """Takes a file from anywhere, durably: by a hard link, or by a copy where links fail.

        Args:
          name: the new file below the generation.
          path: the file, which must never change.
        """
        try:
            os.link(path, self.folder / name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.write(name, path.read_bytes())
        else:
            self._later(sync_file, self.folder / name)

    def share_table(self, inventory: Inventory, table: str) -> None:
        """Takes a whole table over from the source, whose inventory is given."""
        layout, rows = inventory.layouts[table], inventory.head.tables[table].rows
        self.add_table(table)
        for column in layout.columns:
            names = [name for name, _ in layout.files(column, rows)]
            self.share(self.add_column(table, column), ["zarr.json", *names])

    def write(self, name: Path, content: bytes) -> None:
        """Writes a new file durably."""
        self._later(write_file, self.folder / name, content)

    def write_chunk(self, name: Path, parts: Sequence[NDArray[Any]], nbytes: int) -> None:
        """Writes a new chunk durably; see `chunks.write_chunk`."""
        self._later(write_chunk, self.folder / name, parts, nbytes)

    def write_zarr(self, folder: Path, document: dict[str, Any]) -> None:
        """Writes an array's `zarr.json`."""
        self.write(folder / "zarr.json", json.dumps(document, indent=2).encode())

    def write_blobs(self, blobs: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
        """Writes the blobs and returns each one's size and CRC-32."""
        for name, content in blobs.items():
            self.write(Path("blobs", name), content)
        return {name: (len(content), zlib.crc32(content)) for name, content in blobs.items()}

    def publish(self, inventory: Inventory, folder: Path) -> None:
        """Makes all names durable, adds the inventory, and moves the whole to its own name."""
        self._wait()
        for path in self._folders[1:]:
            self._later(sync_folder, path)
        self._wait()
        write_file(self.folder / INVENTORY, seal(inventory.document()))
        sync_folder(self.folder)
        self.folder.rename(folder)
        sync_folder(folder.parent)

    def __enter__(self) -> "Draft":
        return self

    def __exit__(self, *_: object) -> None:
        self._writers.shutdown(wait=True, cancel_futures=True)

    def _later(self, action: Callable[..., None], *arguments: Any) -> None:
        self._pending.append(self._writers.submit(action, *arguments))

    def _wait(self) -> None:
        for pending in self._pending:
            pending.result()
        self._pending.clear()

    def _make_folder(self, name: Path) -> None:
        (self.folder / name).mkdir()
        self._folders.append(self.folder / name)

    def _make_group(self, name: Path) -> None:
        self._make_folder(name)
        self.write(name / "zarr.json", zarr_group())


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
