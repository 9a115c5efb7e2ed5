"""Augmentation of images, drawn from (seed, offset)."""

import numpy as np

from ..errors import ConfigError
from .randomness import generator
from .schema import Array, Schema

PADDING = 4  # pixels on every side (paper F.1.1)


def check_augmentable(schema: Schema) -> None:
    """Refuses to augment what is not an image.

    Raises:
      ConfigError: x is not [height, width, channels], or is smaller than the padding.
    """
    shape = schema.x.shape
    if len(shape) != 3 or min(shape[:2]) <= PADDING:
        raise ConfigError(
            f"augment: cifar expects images [height, width, channels] above {PADDING} pixels, "
            f"found examples of shape {list(shape)}; set augment: none"
        )


def augment_images(images: Array, seed: int, start: int) -> Array:
    """Reflect-pads by 4 pixels, crops back at a random place, and flips left-right half of the time.

    Args:
      images: [n, height, width, channels].
      seed: the stream's seed.
      start: stream offset of the first image; image i is drawn from (seed, start + i).

    Returns:
      New images of the same shape and dtype (paper F.1.1).
    """
    height, width = images.shape[1:3]
    sides = (PADDING, PADDING)
    padded = np.pad(images, ((0, 0), sides, sides, (0, 0)), mode="reflect")
    out = np.empty_like(images)
    for row in range(len(images)):
        draw = generator(seed, "augment", start + row)
        top, left = draw.integers(0, 2 * PADDING + 1, size=2)
        crop = padded[row, top : top + height, left : left + width]
        out[row] = crop[:, ::-1] if draw.random() < 0.5 else crop
    return out
