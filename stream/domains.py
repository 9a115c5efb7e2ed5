"""Streams made of other streams: some classes only, permuted or rotated x, noisy labels, drift between two.

Each is again a pure function of (config, seed, offset).
"""

from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConfigError
from .config import DriftOptions
from .randomness import generator
from .schema import Array, Schema, Source

if TYPE_CHECKING:
    from .sources.table import Table

_LABELS_AT_ONCE = 4096  # rows whose labels are read in one call


class ClassRows:
    """The rows of a table that have certain labels, in their order.

    Args:
      table: the rows.
      labels: those wanted.

    Raises:
      ConfigError: the table has no classes or no end, or a label is none of its own.
    """

    def __init__(self, table: "Table", labels: tuple[int, ...]) -> None:
        classes = table.schema.classes
        if classes is None or table.rows is None:
            raise ConfigError("only_classes expects data with classes and an end; leave it out")
        if unknown := [label for label in labels if not 0 <= label < len(classes)]:
            raise ConfigError(
                f"only_classes: expected labels from 0 to {len(classes) - 1}; found {unknown[0]}"
            )
        self.schema: Schema = table.schema
        self._table = table
        parts = [
            np.arange(start, min(start + _LABELS_AT_ONCE, table.rows))
            for start in range(0, table.rows, _LABELS_AT_ONCE)
        ]
        found = [part[np.isin(table.take(part)[1], labels)] for part in parts]
        self._rows = np.concatenate(found) if found else np.empty(0, np.int64)
        self.rows: int | None = len(self._rows)

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        return self._table.take(self._rows[rows])


class Transformed:
    """A source whose x are turned and permuted.

    Args:
      source: the source.
      rotate: degrees by which images are turned, with linear interpolation and zeros beyond the border.
      permute: draws the one order in which all values of an x are then put; None: as they are.

    Raises:
      ConfigError: x are to be turned and are no images.
    """

    def __init__(self, source: Source, rotate: float, permute: int | None) -> None:
        self.schema, self.length = source.schema, source.length
        if rotate and len(source.schema.x.shape) != 3:
            raise ConfigError(
                f"rotate expects images [height, width, channels], found examples of shape "
                f"{list(source.schema.x.shape)}; set rotate: 0"
            )
        self._source, self._rotate = source, rotate
        size = source.schema.x.size
        self._order = None if permute is None else generator(permute, "pixels").permutation(size)

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """See `Source.read`."""
        arrays = self._source.read(start, stop)
        x = arrays["x"]
        if self._rotate and len(x):
            x = _rotated(x, self._rotate)
        if self._order is not None:
            x = x.reshape(len(x), len(self._order))[:, self._order].reshape(x.shape)
        return {**arrays, "x": x}


class NoisyLabels:
    """A source some of whose labels are replaced by other classes, drawn from (seed, offset).

    Args:
      source: the source.
      share: the probability that a label is replaced.
      seed: the stream's seed.

    Raises:
      ConfigError: the source has fewer than two classes.
    """

    def __init__(self, source: Source, share: float, seed: int) -> None:
        self.schema, self.length = source.schema, source.length
        if source.schema.classes is None or len(source.schema.classes) < 2:
            raise ConfigError("label_noise expects data with at least two classes; set label_noise: 0")
        self._classes = len(source.schema.classes)
        self._source, self._share, self._seed = source, share, seed

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """See `Source.read`."""
        arrays = self._source.read(start, stop)
        y = arrays["y"].copy()
        for row in range(len(y)):
            draw = generator(self._seed, "label noise", start + row)
            if draw.random() < self._share:
                y[row] = (y[row] + 1 + draw.integers(self._classes - 1)) % self._classes
        return {**arrays, "y": y}


class Drifting:
    """A source that goes over into another, at once or as a mix in which the other's share rises.

    Args:
      before: the source at first.
      after: the source in the end, of the same schema; its example at each offset replaces the first's.
      drift: when.
      seed: draws, from (seed, offset), whose example it is while they mix.

    Raises:
      ConfigError: the two have other schemas.
    """

    def __init__(self, before: Source, after: Source, drift: DriftOptions, seed: int) -> None:
        if before.schema != after.schema:
            raise ConfigError(
                f"drift: expected a source of the same shapes, types and classes as the stream's "
                f"({before.schema.x.shape} {before.schema.x.dtype}), found {after.schema.x.shape} "
                f"{after.schema.x.dtype} or other classes"
            )
        known = [length for length in (before.length, after.length) if length is not None]
        self.schema, self.length = before.schema, min(known) if known else None
        self._before, self._after, self._drift, self._seed = before, after, drift, seed

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """See `Source.read`."""
        stop = stop if self.length is None else min(stop, self.length)
        before, after = self._before.read(start, stop), self._after.read(start, stop)
        other = np.array([self._is_other(offset) for offset in range(start, stop)], bool)
        return {
            name: np.where(other.reshape(-1, *[1] * (before[name].ndim - 1)), after[name], before[name])
            for name in before
        }

    def _is_other(self, offset: int) -> bool:
        share = (offset - self._drift.start + 1) / (self._drift.length + 1)
        if not 0 < share < 1:
            return share >= 1
        return bool(generator(self._seed, "drift", offset).random() < share)


def _rotated(images: Array, degrees: float) -> Array:
    from scipy.ndimage import rotate

    turned = rotate(images.astype(np.float32), degrees, axes=(2, 1), reshape=False, order=1)
    if images.dtype.kind == "f":
        return np.asarray(turned, images.dtype)
    limits = np.iinfo(images.dtype)
    return np.asarray(np.clip(np.rint(turned), limits.min, limits.max), images.dtype)
