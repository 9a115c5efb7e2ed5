"""The data that `import_dataset` reads: image folders, NumPy archives, CIFAR's binary archives.

Each is checked from end to end before anything is written.
"""

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, MissingDataError
from .schema import Array
from .sources.npz import load_npz

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_SIDE, _PIXELS = 32, 3 * 32 * 32


@dataclass(frozen=True)
class Split:
    """One split to import: row i is `load(i)`, an x and a y, read on whichever worker wants it."""

    load: Callable[[int], tuple[Array, Any]]
    rows: int


@dataclass(frozen=True)
class Archive:
    """Data to import."""

    splits: dict[str, Split]
    classes: tuple[str, ...] | None  # None: y are regression targets


@dataclass(frozen=True)
class InMemory:
    """Rows of arrays."""

    x: Array
    y: Array

    def __call__(self, row: int) -> tuple[Array, Any]:
        """x and y of one row."""
        y = self.y[row]
        return self.x[row], int(y) if self.y.ndim == 1 and self.y.dtype.kind in "iu" else y


@dataclass(frozen=True)
class ImageFiles:
    """Rows of image files of one size and mode."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    mode: str
    size: tuple[int, int]

    def __call__(self, row: int) -> tuple[Array, Any]:
        """Pixels [height, width, channels] and label of one file."""
        return _read_image(self.paths[row], self.mode, self.size), self.labels[row]


def open_archive(kind: str, path: Path) -> Archive:
    """Opens and checks data of a kind: "folder", "npz", "cifar10" or "cifar100".

    Raises:
      MissingDataError: nothing is there.
      DataError: it is truncated, damaged or of another format.
    """
    if not path.exists():
        raise MissingDataError(f"import: looked for {path} and found nothing; check the path")
    readers: dict[str, Callable[[Path], Archive]] = {
        "folder": _open_folder,
        "npz": _open_npz,
        "cifar10": _open_cifar10,
        "cifar100": _open_cifar100,
    }
    archive = readers[kind](path)
    for split, rows in archive.splits.items():
        if not rows.rows:
            raise DataError(f"{path}: the split {split} is empty; expected at least one example")
    return archive


def _open_folder(path: Path) -> Archive:
    """CLASS/image files, or SPLIT/CLASS/image files with the splits train and test."""
    parts = {name: path / name for name in ("train", "test") if (path / name).is_dir()}
    if "train" not in parts:
        parts = {"train": path}
    classes = tuple(sorted(each.name for each in parts["train"].iterdir() if each.is_dir()))
    if not classes:
        raise DataError(f"{path}: expected a folder of images for every class, found no folders")
    first: tuple[str, tuple[int, int]] | None = None
    splits = {}
    for split, folder in parts.items():
        unknown = {each.name for each in folder.iterdir() if each.is_dir()} - set(classes)
        if unknown:
            raise DataError(f"{folder}: the classes {', '.join(sorted(unknown))} are not in train")
        found = [
            (file, label)
            for label, name in enumerate(classes)
            for file in sorted((folder / name).glob("*"))
            if file.suffix.lower() in IMAGE_ENDINGS
        ]
        if found and first is None:
            first = _mode_and_size(found[0][0])
        mode, size = first or ("RGB", (0, 0))
        for file, _ in found:
            _read_image(file, mode, size)
        files = ImageFiles(tuple(f for f, _ in found), tuple(n for _, n in found), mode, size)
        splits[split] = Split(files, len(found))
    return Archive(splits, classes)


def _mode_and_size(path: Path) -> tuple[str, tuple[int, int]]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "I;16")
            return "L" if grey else "RGB", image.size
    except (OSError, SyntaxError) as error:
        raise _no_image(path) from error


def _read_image(path: Path, mode: str, size: tuple[int, int]) -> Array:
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert(mode))
            found = image.size
    except (OSError, SyntaxError) as error:
        raise _no_image(path) from error
    if found != size:
        raise DataError(
            f"{path} has {found[0]}×{found[1]} pixels, the first image {size[0]}×{size[1]}; make them equal"
        )
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _no_image(path: Path) -> DataError:
    return DataError(f"{path} is no readable image; replace it or take it away")


def _open_npz(path: Path) -> Archive:
    x, y, count = load_npz(path, "train")
    splits = {"train": (x, y)}
    with np.load(path, allow_pickle=False) as file:
        has_test = "x_test" in file
    if has_test:
        splits["test"] = load_npz(path, "test")[:2]
    classes = None if count is None else tuple(str(label) for label in range(count))
    for split, (each, labels) in splits.items():
        if each.shape[1:] != x.shape[1:] or each.dtype != x.dtype:
            raise DataError(f"{path}: x_{split} differs from x_train in shape or type of its rows")
        if classes is not None and labels.size and labels.min() < 0:
            raise DataError(f"{path}: y_{split} holds the label {labels.min()}; labels start at 0")
    return Archive({name: Split(InMemory(a, b), len(a)) for name, (a, b) in splits.items()}, classes)


def _open_cifar10(path: Path) -> Archive:
    batches = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    files = _members(path, (*batches, "test_batch.bin", "batches.meta.txt"))
    sizes = {name: len(files[name]) for name in batches}
    if len(set(sizes.values())) > 1:
        raise DataError(f"{path}: the five training batches differ in size ({sizes}): one is truncated")
    train = b"".join(files[name] for name in batches)
    return _cifar(path, train, files["test_batch.bin"], files["batches.meta.txt"], label_bytes=1)


def _open_cifar100(path: Path) -> Archive:
    names = ("train.bin", "test.bin", "fine_label_names.txt")
    train, test, classes = _members(path, names).values()
    return _cifar(path, train, test, classes, label_bytes=2)


def _cifar(path: Path, train: bytes, test: bytes, names: bytes, label_bytes: int) -> Archive:
    """Records of `label_bytes` labels (the last one counts), then 3×32×32 pixels, planes in order R, G, B."""
    classes = tuple(names.decode().split())
    splits = {}
    for split, content in (("train", train), ("test", test)):
        size = label_bytes + _PIXELS
        if len(content) % size:
            raise DataError(
                f"{path}: the {split} records take {len(content)} bytes, no multiple of {size}: truncated; "
                f"fetch it again"
            )
        records = np.frombuffer(content, np.uint8).reshape(-1, size)
        labels = records[:, label_bytes - 1]
        if labels.size and labels.max() >= len(classes):
            raise DataError(f"{path}: found the label {labels.max()}, but {len(classes)} class names")
        planes = records[:, label_bytes:].reshape(-1, 3, _SIDE, _SIDE)
        images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        splits[split] = Split(InMemory(images, labels), len(images))
    return Archive(splits, classes)


def _members(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Whole files by name, from a folder (searched downwards) or a tar archive (read to its end)."""
    found: dict[str, bytes] = {}
    if path.is_dir():
        for name in names:
            for file in sorted(path.rglob(name))[:1]:
                found[name] = file.read_bytes()
    else:
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is not None:
                        found[Path(member.name).name] = content.read()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path} is truncated or no archive; fetch it again") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"{path}: expected the files {', '.join(missing)}, found none of that name")
    return {name: found[name] for name in names}
