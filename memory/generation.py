"""One committed state of a store, read-only."""

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError, MissingDataError
from .inventory import INVENTORY, Inventory
from .lease import Lease
from .table import Table


class Generation:
    """A read-only view of one committed state, kept on disk as long as the view is in use.

    Attributes:
      path: its folder; `path / "tables" / NAME` opens with `zarr.open_group`.
      head: its numbers, meta and row counts.
      tables: table name → `Table`.
      blobs: the names of its blobs.

    Raises:
      FileNotFoundError: the generation is gone.
      FormatError: its inventory is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lease = Lease(path)
        self._inventory = inventory = Inventory.load(path)
        self.head = inventory.head
        self.blobs = tuple(inventory.blobs)
        self.tables: Mapping[str, Table] = {
            name: Table(path / "tables" / name, layout, self.head.tables[name], self._lease)
            for name, layout in inventory.layouts.items()
        }

    @property
    def step(self) -> int:
        """The training step it holds."""
        return self.head.step

    @property
    def meta(self) -> dict[str, Any]:
        """The JSON object given to its commit."""
        return self.head.meta

    @property
    def inventory(self) -> Inventory:
        """What it must consist of."""
        return self._inventory

    def blob(self, name: str) -> bytes:
        """Reads a blob, checking its size and checksum.

        Raises:
          MissingDataError: the generation has no such blob.
          FormatError: it is missing from the disk or damaged.
        """
        if name not in self._inventory.blobs:
            raise MissingDataError(
                f"{self.path}: expected one of the blobs {sorted(self.blobs)}, found {name!r}"
            )
        path = self.path / "blobs" / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise FormatError(f"{path} is missing; restore the store from a copy") from None
        if (len(content), zlib.crc32(content)) != self._inventory.blobs[name]:
            raise FormatError(f"{path} is damaged; restore the store from a copy")
        return content

    def problems(self, *, deep: bool = False) -> list[str]:
        """Compares the files with the inventory.

        Args:
          deep: read every chunk and blob and check its CRC; else names, sizes and shapes only.

        Returns:
          One line per problem, each beginning with a file's path.
        """
        found = dict(self._surface())
        if deep:
            for path, line in self._depth():
                found.setdefault(path, line)
        return [f"{path} {line}" for path, line in found.items()]

    def close(self) -> None:
        """Lets the store delete this generation when it is no longer the head or tagged."""
        self._lease.close()

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _surface(self) -> Iterator[tuple[Path, str]]:
        for table, column, folder, files in self._inventory.column_files():
            described = self._inventory.layouts[table].zarr_array(column, self.tables[table].rows)
            yield from _differences(self.path / folder / "zarr.json", described)
            yield from _size_differences(self.path / folder, files)
        blobs = ((name, size) for name, (size, _) in self._inventory.blobs.items())
        yield from _size_differences(self.path / "blobs", blobs)

    def _depth(self) -> Iterator[tuple[Path, str]]:
        for table in self.tables.values():
            yield from table.damaged_chunks()
        for name in self.blobs:
            try:
                self.blob(name)
            except FormatError:
                yield self.path / "blobs" / name, "fails its checksum"


def _size_differences(folder: Path, files: Iterable[tuple[str, int]]) -> Iterator[tuple[Path, str]]:
    try:
        with os.scandir(folder) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
    except FileNotFoundError:
        sizes = {}
    for name, size in files:
        if name not in sizes:
            yield folder / name, f"is missing (expected {size} bytes)"
        elif sizes[name] != size:
            yield folder / name, f"has {sizes[name]} bytes, expected {size}"


def _differences(path: Path, described: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        yield path, "is missing or no JSON (expected the description of a zarr array)"
        return
    for key in ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "codecs"):
        if not isinstance(found, dict) or found.get(key) != described[key]:
            yield path, f"does not agree with {INVENTORY} about {key}"
            return
