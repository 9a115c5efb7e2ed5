"""Random draws addressed by (seed, purpose, offset), so that no worker carries random state."""

import zlib

import numpy as np

from .schema import Array


def generator(seed: int, purpose: str, offset: int = 0) -> np.random.Generator:
    """The random generator of one stream offset.

    It is the counter-based Philox generator: seed and purpose are its key, the offset is the upper half
    of its counter, so that every offset has 2^128 draws of its own.

    Args:
      seed: the stream's seed, 0 ≤ seed < 2^64.
      purpose: what is drawn ("order", "crop", …); different purposes are independent.
      offset: the stream offset.

    >>> float(generator(1, "x", 5).random()) == float(generator(1, "x", 5).random())
    True
    """
    key = np.array([seed, zlib.crc32(purpose.encode())], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, offset, 0]))


def permutation(seed: int, length: int) -> Array:
    """The order [length] int64 in which a shuffled stream visits the rows of its data."""
    return generator(seed, "order").permutation(length).astype(np.int64)
