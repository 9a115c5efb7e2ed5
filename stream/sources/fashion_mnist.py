"""`fashion_mnist`: 70,000 images of clothing, 28×28, from the four official IDX files."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np

from ...errors import DataError, MissingDataError
from ..config import StreamConfig
from ..schema import Array
from .registry import check_split, register
from .table import ArrayTable, Table, merge_classes

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_PREFIXES = {"train": "train", "test": "t10k"}


@register("fashion_mnist", "28×28 images of clothing from four IDX files (60,000 train, 10,000 test)")
def open_fashion_mnist(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens the split "train" or "test" in `config.folder`, or where Debian's package puts it."""
    prefix = _PREFIXES[check_split(config.split, ("train", "test"), "fashion_mnist")]
    folder = Path(config.folder).expanduser() if config.folder else DEBIAN_FOLDER
    images = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{folder}: expected images [n, height, width] and n labels, found {list(images.shape)} "
            f"and {list(labels.shape)}; use the four official files"
        )
    return ArrayTable(images[..., None], labels, merge_classes(config.classes, CLASSES))


def read_idx(path: Path) -> Array:
    """Reads a file of unsigned bytes in the IDX format, plain or gzipped.

    Returns:
      The array, uint8.

    Raises:
      DataError: the file is truncated, damaged or of another format.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}); fetch it again") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{path}: expected an IDX file of unsigned bytes, found another format")
    shape = (
        tuple(int(size) for size in np.frombuffer(content, ">u4", content[3], 4))
        if len(content) >= 4 + 4 * content[3]
        else (-1,)
    )
    values = content[4 + 4 * content[3] :]
    if len(values) != prod(shape):
        raise DataError(
            f"{path}: expected {prod(shape)} bytes of data, found {len(values)}: it is truncated or foreign; "
            f"fetch it again"
        )
    return np.frombuffer(values, np.uint8).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / f"{name}.gz", folder / name):
        if candidate.is_file():
            return candidate
    raise MissingDataError(
        f"fashion_mnist: looked for {name}(.gz) in {folder} and found none; install Debian's package "
        f"dataset-fashion-mnist, or set folder to where the four IDX files lie"
    )
