"""The data that cells learn from: a training part and a held-out part, written once as a NumPy archive.

Hyper-parameters are chosen on the last tenth of the training examples, which are then left out of training;
the test examples are touched by the final numbers alone.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lamina.errors import LaminaError
from lamina.stream import StreamConfig, open_source

from .experiment import HeldOut, Size

_AUTO = ("tfds:cifar10", "fashion_mnist")
_VALIDATION_SHARE = 0.1


@dataclass(frozen=True)
class Images:
    """A kind of images."""

    label: str
    slug: str  # in folder names
    standardise: Mapping[str, Any]


_CIFAR_STATISTICS = {"scale": 255, "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
_KINDS = {
    (32, 32, 3): Images("CIFAR-10", "cifar10", _CIFAR_STATISTICS),
    (28, 28, 1): Images("Fashion-MNIST", "fashion", {"scale": 255, "mean": 0.2860, "std": 0.3530}),
    (8, 8, 1): Images("digits", "digits", {"mean": 4.88, "std": 6.02}),
}


def chosen_data(spec: str, size: Size) -> str:
    """The spec in force: digits for smoke; for `auto` the first of CIFAR-10 and Fashion-MNIST there is."""
    if size.name == "smoke":
        return "digits"
    if spec != "auto":
        return spec
    for source in _AUTO:
        try:
            open_source(StreamConfig(source=source, limit=1))
        except LaminaError:
            continue
        return source
    return "digits"


def images_of(spec: str) -> Images:
    """Which images a spec holds, by their shape."""
    return _KINDS[open_source(StreamConfig(source=spec)).schema.x.shape]


def image_stream(
    spec: str, size: Size, held_out: HeldOut, shared: Path, project: int | None = None
) -> dict[str, Any]:
    """The settings of a stream of the first `size.train` training images.

    Args:
      spec: the data set.
      size: how many to train and evaluate on.
      held_out: the test images, or the last tenth of the training images, which are then not trained on.
      shared: where the archive is kept for other cells.
      project: width to which standardised images are projected, onto the training images' leading principal
        directions (of their second moment, without labels); None: not projected.
    """
    kind = images_of(spec)
    path = _archive(spec, kind, size, held_out, shared, project)
    stream: dict[str, Any] = {"source": f"npz:{path}", "classes": 10, "flatten": True}
    return stream if project else {**stream, "standardise": kind.standardise}


def _archive(
    spec: str, kind: Images, size: Size, held_out: HeldOut, shared: Path, project: int | None
) -> Path:
    key = hashlib.sha256(f"{spec} {size.train} {size.held_out} {held_out} {project}".encode()).hexdigest()
    path = shared / f"{kind.slug}-{key[:12]}.npz"
    if path.exists():
        return path
    train, test = _read(spec, "train"), _read(spec, "test")
    if held_out == "validation":
        count = max(1, round(_VALIDATION_SHARE * len(train[0])))
        train, test = (part[:-count] for part in train), (part[-count:] for part in train)
    (x_train, y_train), (x_test, y_test) = train, test
    x_train, y_train = x_train[: size.train], y_train[: size.train]
    x_test, y_test = x_test[: size.held_out], y_test[: size.held_out]
    if project:
        x_train, x_test = _projected(kind, x_train, x_test, project)
    shared.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=shared, suffix=".npz")
    with os.fdopen(descriptor, "wb") as file:
        np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    os.replace(temporary, path)
    return path


def _read(spec: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    source = open_source(StreamConfig(source=spec, split=split, shuffle=False))
    arrays = source.read(0, source.length or 0)
    return arrays["x"], arrays["y"]


def _projected(
    kind: Images, train: np.ndarray, test: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    rows = _standardised(kind, train)
    _, directions = np.linalg.eigh(rows.T @ rows / len(rows))  # ascending
    leading = directions[:, ::-1][:, : min(width, rows.shape[1])]
    return rows @ leading, _standardised(kind, test) @ leading


def _standardised(kind: Images, images: np.ndarray) -> np.ndarray:
    """[n, D] float32."""
    given = kind.standardise
    scaled = images.astype(np.float32) / np.float32(given.get("scale", 1))
    out = (scaled - np.asarray(given["mean"], np.float32)) / np.asarray(given["std"], np.float32)
    return out.reshape(len(out), -1)


def arrays_of(stream: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test and y_test of `image_stream`'s archive, prepared as the stream "
    "prepares them."""
    with np.load(stream["source"].partition(":")[2]) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if "standardise" in stream:
        kind = _KINDS[arrays["x_train"].shape[1:]]
        for name in ("x_train", "x_test"):
            arrays[name] = _standardised(kind, arrays[name])
    return arrays
