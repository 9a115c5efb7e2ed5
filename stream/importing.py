"""Preparing data of the user's own for tensorflow-datasets, through Beam, without TensorFlow or network."""

import re
import shutil
from pathlib import Path
from typing import Literal

from ..durable import storage_errors
from ..errors import ConfigError
from .archives import open_archive
from .sources.tfds import data_folder

Kind = Literal["folder", "npz", "cifar10", "cifar100"]
KINDS: dict[str, str] = {
    "folder": "a folder of images, CLASS/*.png, or train/CLASS/*.png and test/CLASS/*.png",
    "npz": "a NumPy archive with x_train, y_train and, if there is one, x_test, y_test",
    "cifar10": "CIFAR-10's binary archive (cifar-10-binary.tar.gz), packed or extracted",
    "cifar100": "CIFAR-100's binary archive (cifar-100-binary.tar.gz), packed or extracted",
}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def import_dataset(kind: str, path: str | Path, name: str, data_dir: str | Path | None = None) -> Path:
    """Makes a prepared data set, readable as the source `tfds:NAME`, in the order of the original.

    Args:
      kind: one of `KINDS`.
      path: the user's folder or file.
      name: of the new data set: small letters, digits and underscores.
      data_dir: where prepared data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.

    Returns:
      The folder of the prepared data set.

    Raises:
      ConfigError: unknown kind, a bad name, or one that is taken.
      MissingDataError: nothing is at `path`.
      DataError: the data are truncated, damaged or do not fit together. Nothing is left behind.
      StorageError: `data_dir` cannot be written.
    """
    root = data_folder(None if data_dir is None else str(data_dir))
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of data {kind!r}; expected one of {', '.join(KINDS)}")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"the name {name!r} should consist of small letters, digits and underscores")
    if (root / name).exists():
        raise ConfigError(f"{root / name} exists already; choose another name, or delete it")
    archive = open_archive(kind, Path(path).expanduser())
    existed = root.exists()
    from .tfds_builder import prepare

    try:
        with storage_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            return prepare(archive, name, root)
    except BaseException as error:
        shutil.rmtree(root / name, ignore_errors=True)
        if not existed:
            shutil.rmtree(root, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        from .pipeline import known_failure

        raise known_failure(error) from error
