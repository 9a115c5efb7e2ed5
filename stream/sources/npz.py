"""`npz:FILE`: arrays of the user's own, in one NumPy archive."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from ...errors import DataError, MissingDataError
from ..config import StreamConfig
from ..schema import Array
from .registry import check_split, register
from .table import ArrayTable, Table, merge_classes


@register("npz:FILE", "a NumPy archive with the arrays x_train, y_train and, to evaluate, x_test, y_test")
def open_npz(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens x_SPLIT and y_SPLIT; integer y are labels, floats are regression targets."""
    part = check_split(config.split, ("train", "test"), config.source)
    x, y, count = load_npz(Path(argument).expanduser(), part)
    found = None if count is None else tuple(str(label) for label in range(count))
    return ArrayTable(x, y, merge_classes(config.classes, found))


def load_npz(path: Path, split: str) -> tuple[Array, Array, int | None]:
    """Reads one split of an archive.

    Returns:
      x [n, …], y [n, …], and the number of classes over both splits if y are integers (else None).

    Raises:
      MissingDataError: there is no such file.
      DataError: it is damaged, lacks an array, or its arrays do not fit together.
    """
    if not path.is_file():
        raise MissingDataError(f"npz: looked for {path} and found no file; check the path")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            x, y = (_array(archive, f"{name}_{split}", path) for name in "xy")
            labels = [archive[name] for name in ("y_train", "y_test") if name in archive]
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: expected a NumPy archive (.npz) of numbers, found a damaged or foreign file ({error})"
        ) from error
    if len(x) != len(y):
        raise DataError(
            f"{path}: x_{split} has {len(x)} rows and y_{split} {len(y)}; they must be equally many"
        )
    if any(each.dtype.kind not in "iu" for each in labels):
        return x, y, None
    return x, y, 1 + max((int(each.max()) for each in labels if each.size), default=0)


def _array(archive: "np.lib.npyio.NpzFile", name: str, path: Path) -> Array:
    if name not in archive:
        raise DataError(f"{path}: expected an array {name}, found {', '.join(archive.files) or 'nothing'}")
    array: Array = archive[name]
    if array.dtype.kind not in "iufb" or array.ndim == 0:
        raise DataError(f"{path}: {name} should hold rows of real numbers, found {array.dtype}")
    return array.astype(np.uint8) if array.dtype.kind == "b" else array
