"""Pictures of examples, side by side, each over its caption."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ..durable import storage_errors
from ..errors import ConfigError

_SIDE, _GAP, _CAPTION = 128, 12, 34  # pixels


def draw_examples(examples: Sequence[tuple[NDArray[np.generic] | None, str]], path: Path) -> None:
    """Draws a row of images.

    Args:
      examples: images [H, W] or [H, W, C] with C 1 or 3 (None: an empty frame), each with a caption of
        at most two lines; all are shown on the scale of the brightest value.
      path: the file to write; its ending names the format.

    Raises:
      ConfigError: the examples are not images, or the file's ending names no format.
      StorageError: the file system refused.
    """
    width = len(examples) * (_SIDE + _GAP) + _GAP
    page = Image.new("RGB", (width, _SIDE + _CAPTION + 2 * _GAP), "white")
    draw = ImageDraw.Draw(page)
    bounds = _bounds([image for image, _ in examples if image is not None])
    for place, (image, caption) in enumerate(examples):
        left = _GAP + place * (_SIDE + _GAP)
        if image is not None:
            page.paste(_picture(image, bounds), (left, _GAP))
        draw.rectangle((left, _GAP, left + _SIDE - 1, _GAP + _SIDE - 1), outline="#888888")
        draw.multiline_text((left, _GAP + _SIDE + 4), caption, fill="black")
    with storage_errors(path):
        try:
            page.save(path)
        except ValueError:
            raise ConfigError(f"{path}: expected a name that ends in a picture's format, as .png") from None


def png(image: NDArray[np.generic], bounds: tuple[float, float] | None = None) -> bytes:
    """Returns a picture of one image.

    Args:
      image: [H, W] or [H, W, C] with C 1 or 3.
      bounds: the values shown black and white; None: the image's own smallest and largest.

    Raises:
      ConfigError: it is no image.
    """
    buffer = io.BytesIO()
    _picture(image, bounds or _bounds([image])).save(buffer, "png")
    return buffer.getvalue()


def _bounds(images: Sequence[NDArray[np.generic]]) -> tuple[float, float]:
    if not images:
        return 0.0, 1.0
    low, high = min(float(i.min()) for i in images), max(float(i.max()) for i in images)
    return low, high if high > low else low + 1


def _picture(image: NDArray[np.generic], bounds: tuple[float, float]) -> Image.Image:
    grey = image.ndim == 3 and image.shape[2] == 1
    pixels = image[:, :, 0] if grey else image
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ConfigError(
            f"expected images [H, W] or [H, W, 3] to draw; found examples of shape {image.shape}"
        )
    low, high = bounds
    scaled = np.clip((pixels.astype(np.float64) - low) / (high - low) * 255, 0, 255).astype(np.uint8)
    return Image.fromarray(scaled).convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
