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
from lamina.errors import ConfigError, LaminaError
from lamina.stream import StreamConfig, open_source
from lamina.stream.augment import augment_images

from .experiment import HeldOut, Size

_AUTO = ("tfds:cifar10", "fashion_mnist")
_VALIDATION_SHARE = 0.1


@dataclass(frozen=True)
class Images:
    """A kind of images."""

    label: str
    slug: str  # in folder names
    shape: tuple[int, ...]
    classes: int
    standardise: Mapping[str, Any]


_CIFAR10 = {"scale": 255, "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
_CIFAR100 = {"scale": 255, "mean": [0.5071, 0.4865, 0.4409], "std": [0.2673, 0.2564, 0.2762]}
_KINDS = (
    Images("CIFAR-10", "cifar10", (32, 32, 3), 10, _CIFAR10),
    Images("CIFAR-100", "cifar100", (32, 32, 3), 100, _CIFAR100),
    Images("Fashion-MNIST", "fashion", (28, 28, 1), 10, {"scale": 255, "mean": 0.2860, "std": 0.3530}),
    Images("digits", "digits", (8, 8, 1), 10, {"mean": 4.88, "std": 6.02}),
)


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
    """Which images a spec holds, by their shape and the number of their classes.

    Raises:
      ConfigError: it holds others.
    """
    schema = open_source(StreamConfig(source=spec)).schema
    found = schema.x.shape, len(schema.classes or ())
    for kind in _KINDS:
        if found == (kind.shape, kind.classes):
            return kind
    expected = ", ".join(f"{kind.label} {list(kind.shape)} of {kind.classes}" for kind in _KINDS)
    raise ConfigError(
        f"{spec}: expected images of one of these shapes and numbers of classes: {expected}; found "
        f"{list(found[0])} of {found[1]}; name another data set with --data"
    )


def image_stream(
    spec: str,
    size: Size,
    held_out: HeldOut,
    shared: Path,
    project: int | None = None,
    augmented: int | None = None,
) -> dict[str, Any]:
    """The settings of a stream of the first `size.train` training images.

    Args:
      spec: the data set.
      size: how many to train and evaluate on.
      held_out: the test images, or the last tenth of the training images, which are then not trained on.
      shared: where the archive is kept for other cells.
      project: width to which standardised images are projected, onto the training images' leading principal
        directions (of their second moment, without labels); None: not projected.
      augmented: the seed by which training images are cropped and flipped, before they are projected onto
        the directions of the images as they are; None: they are not.
    """
    kind = images_of(spec)
    path = _archive(spec, kind, size, held_out, shared, project, augmented)
    stream: dict[str, Any] = {"source": f"npz:{path}", "classes": kind.classes, "flatten": True}
    return stream if project else {**stream, "standardise": kind.standardise}


def _archive(
    spec: str,
    kind: Images,
    size: Size,
    held_out: HeldOut,
    shared: Path,
    project: int | None,
    augmented: int | None,
) -> Path:
    made_of = f"{spec} {size.train} {size.held_out} {held_out} {project}"
    if augmented is not None:
        made_of += f" augmented by {augmented}"
    key = hashlib.sha256(made_of.encode()).hexdigest()
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
    directions = _directions(kind, x_train, project) if project else None
    if augmented is not None:
        x_train = augment_images(x_train, augmented, 0)
    if directions is not None:
        x_train, x_test = (_standardised(kind.standardise, x) @ directions for x in (x_train, x_test))
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


def _directions(kind: Images, images: np.ndarray, width: int) -> np.ndarray:
    """The leading principal directions of images, [D, width]."""
    rows = _standardised(kind.standardise, images)
    _, directions = np.linalg.eigh(rows.T @ rows / len(rows))  # ascending
    return directions[:, ::-1][:, : min(width, rows.shape[1])]


def _standardised(given: Mapping[str, Any], images: np.ndarray) -> np.ndarray:
    """[n, D] float32."""
    scaled = images.astype(np.float32) / np.float32(given.get("scale", 1))
    out = (scaled - np.asarray(given["mean"], np.float32)) / np.asarray(given["std"], np.float32)
    return out.reshape(len(out), -1)


def arrays_of(stream: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test and y_test of `image_stream`'s archive, as the stream prepares them."""
    with np.load(stream["source"].partition(":")[2]) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if "standardise" in stream:
        for name in ("x_train", "x_test"):
            arrays[name] = _standardised(stream["standardise"], arrays[name])
    return arrays
