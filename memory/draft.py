"""A generation being written: shares the unchanged files of the one before, and writes the rest anew.

No file is ever opened for writing twice: an existing file may be a hard link into older
generations, which must keep their bytes.
"""

import errno
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..durable import sync_folder
from .chunks import write_chunk, write_file
from .inventory import INVENTORY, Inventory
from .layout import zarr_group
from .sealed import seal

_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class Draft:
    """A generation's folder under a temporary name, until `publish` gives it its own.

    Args:
      folder: the temporary folder; it must not exist.
      source: the folder of the generation whose files may be shared; None: there is none.

    Raises:
      OSError: the file system refused, here and in every method.
    """

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.folder = folder
        self._source = folder if source is None else source
        self._folders: list[Path] = []
        self._make_folder(Path())
        self._make_folder(Path("tables"))
        self._make_folder(Path("blobs"))
        self.write(Path("tables", "zarr.json"), zarr_group())

    def add_table(self, name: str) -> None:
        """Makes a table's group."""
        self._make_folder(Path("tables", name))
        self.write(Path("tables", name, "zarr.json"), zarr_group())

    def add_column(self, table: str, column: str) -> Path:
        """Makes a column's folder and returns its path below the generation."""
        folder = Path("tables", table, column)
        self._make_folder(folder)
        return folder

    def share(self, name: Path) -> None:
        """Takes a file over from the source by a hard link, or by a copy where links fail.

        Args:
          name: the file's path below either generation.
        """
        try:
            os.link(self._source / name, self.folder / name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.write(name, (self._source / name).read_bytes())

    def share_table(self, inventory: Inventory, table: str) -> None:
        """Takes a whole table over from the source, whose inventory is given."""
        layout, rows = inventory.layouts[table], inventory.head.tables[table].rows
        self.add_table(table)
        for column in layout.columns:
            folder = self.add_column(table, column)
            self.share(folder / "zarr.json")
            for name, _ in layout.files(column, rows):
                self.share(folder / name)

    def write(self, name: Path, content: bytes) -> None:
        """Writes a new file durably."""
        write_file(self.folder / name, content)

    def write_chunk(self, name: Path, parts: Sequence[NDArray[Any]], nbytes: int) -> None:
        """Writes a new chunk durably; see `chunks.write_chunk`."""
        write_chunk(self.folder / name, parts, nbytes)

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
        for path in reversed(self._folders[1:]):
            sync_folder(path)
        self.write(Path(INVENTORY), seal(inventory.document()))
        sync_folder(self.folder)
        self.folder.rename(folder)
        sync_folder(folder.parent)

    def _make_folder(self, name: Path) -> None:
        (self.folder / name).mkdir()
        self._folders.append(self.folder / name)
