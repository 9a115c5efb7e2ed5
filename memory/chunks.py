"""Chunk files: what zarr's codecs `bytes` and `crc32c` make of rows, without zarr's call overhead.

A chunk is a file of fixed size: little-endian rows, zeros up to the chunk's row count, and the
CRC-32C of all that. Writing one through zarr costs two copies and ~5 ms per array (measured: 2–4×
the time of a commit); here the bytes go from the caller's rows to the file, and from the file into
the caller's array. `tests/test_memory_store.py` reads every such file back with plain zarr.
"""

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError

CHECKSUM_BYTES = 4
_ZEROS = bytes(1 << 20)

Bytes = NDArray[np.uint8]


def as_bytes(rows: NDArray[Any]) -> Bytes:
    """A flat view of the bytes of a C-contiguous array."""
    return rows.reshape(-1).view(np.uint8)


def write_chunk(path: Path, parts: Sequence[NDArray[Any]], nbytes: int, *, durable: bool = True) -> None:
    """Writes rows as a new chunk file and makes its content durable.

    Args:
      path: a file that must not exist: older generations may share the bytes of an existing one.
      parts: arrays whose rows follow each other in the chunk, C-contiguous and little-endian.
      nbytes: bytes of a full chunk without its checksum; the parts may fill less.
      durable: False leaves that to `sync_file`.

    Raises:
      OSError: the file system refused.
    """
    checksum, used = 0, 0
    with open(path, "xb", buffering=0) as file:
        for part in map(as_bytes, parts):
            checksum = google_crc32c.extend(checksum, part)
            used += part.nbytes
            _write_all(file, memoryview(part))
        for start in range(used, nbytes, len(_ZEROS)):
            checksum = google_crc32c.extend(checksum, _ZEROS[: nbytes - start])
        file.seek(nbytes)  # the padding stays a hole: it costs no disk writes
        _write_all(file, memoryview(checksum.to_bytes(CHECKSUM_BYTES, "little")))
        if durable:
            os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Makes a file's content durable."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_file(path: Path, content: bytes) -> None:
    """Writes a new file and makes its content durable; `path` must not exist."""
    with open(path, "xb", buffering=0) as file:
        _write_all(file, memoryview(content))
        os.fsync(file.fileno())


def read_chunk(path: Path, out: NDArray[Any], start_byte: int, nbytes: int) -> None:
    """Reads consecutive rows of a chunk straight into an array, checking the whole chunk's CRC.

    Args:
      path: the chunk file.
      out: the C-contiguous array to fill; it takes the chunk's bytes from `start_byte` on.
      start_byte: offset of the first wanted byte in the chunk.
      nbytes: bytes of a full chunk without its checksum.

    Raises:
      FormatError: the chunk is missing, of another size, or fails its checksum.
    """
    wanted = as_bytes(out)
    before = np.empty(start_byte, np.uint8)
    after = np.empty(nbytes - start_byte - wanted.nbytes, np.uint8)
    stored = np.empty(CHECKSUM_BYTES, np.uint8)
    checksum = 0
    try:
        with open(path, "rb", buffering=0) as file:
            for part in (before, wanted, after, stored):
                _fill(file, part)
                if part is not stored:
                    checksum = google_crc32c.extend(checksum, part)
    except FileNotFoundError:
        raise FormatError(f"{path} is missing; restore the store from a copy") from None
    if checksum != int.from_bytes(stored.tobytes(), "little"):
        raise FormatError(f"{path} is damaged: its checksum does not match; restore it from a copy")


def _write_all(file: FileIO, view: memoryview) -> None:
    while view:
        view = view[file.write(view) :]


def _fill(file: FileIO, part: Bytes) -> None:
    view = memoryview(part)
    while view:
        count = file.readinto(view)
        if not count:
            raise FormatError(f"{file.name!s} is truncated; restore it from a copy")
        view = view[count:]
