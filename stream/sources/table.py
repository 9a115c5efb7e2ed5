"""What every source provides: rows by number; and the order in which a stream visits them."""

from typing import Protocol

import numpy as np

from ...errors import DataError
from ..checks import find_problems
from ..config import StreamConfig
from ..randomness import permutation
from ..schema import Array, Field, Schema


class Table(Protocol):
    """The rows of one split of a data set, in the order they are stored."""

    @property
    def schema(self) -> Schema:
        """Shapes and types of the examples."""
        ...

    @property
    def rows(self) -> int | None:
        """Number of rows; None if they never end."""
        ...

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """Reads rows by number.

        Args:
          rows: [n] int64 row numbers, in any order.

        Returns:
          x [n, …], y [n, …], and [n] uint8 codes of `checks` for rows already known as bad (or None).
        """
        ...


class ArrayTable:
    """A table held in memory.

    Args:
      x: [n, …] inputs, of any real type.
      y: [n] integer labels, or floats [n] or [n, F] for regression.
      classes: names of the labels; None for regression.
    """

    def __init__(self, x: Array, y: Array, classes: tuple[str, ...] | None) -> None:
        with np.errstate(over="ignore"):  # beyond float32: infinite, and found to be so when checked
            self._x = x.astype(np.float32) if x.dtype.kind == "f" else x
        if classes is None:
            self._y = y.astype(np.float32).reshape(len(y), -1)
        else:
            self._y = _to_labels(y)
        self.rows: int | None = len(x)
        self.schema = Schema(
            Field(x.shape[1:], self._x.dtype.name),
            Field(self._y.shape[1:], self._y.dtype.name),
            classes,
        )

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        return self._x[rows], self._y[rows], None


class OrderedSource:
    """A table as a stream: `limit` rows of it, in the order that the seed decides.

    Args:
      table: the rows.
      config: whose `shuffle`, `seed` (None counts as 0) and spec are used.
      limit: the largest number of examples; None for all.

    Raises:
      DataError: the table has no rows.
    """

    def __init__(self, table: Table, config: StreamConfig, limit: int | None) -> None:
        if table.rows == 0:
            raise DataError(
                f"the stream {config.source} is empty: expected at least one example, found none; "
                f"check the data and the split"
            )
        self.schema = table.schema
        self._table = table
        known = [count for count in (table.rows, limit) if count is not None]
        self.length: int | None = min(known) if known else None
        self._order: Array | None = None
        if config.shuffle and table.rows is not None:
            self._order = permutation(config.seed or 0, table.rows)[: self.length]

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """See `Source.read`."""
        stop = stop if self.length is None else min(stop, self.length)
        offsets = np.arange(start, max(start, stop), dtype=np.int64)
        rows = offsets if self._order is None else self._order[offsets]
        x, y, known = self._table.take(rows)
        return {"x": x, "y": y, "problems": find_problems(x, y, self.schema, known)}


def merge_classes(
    declared: tuple[str, ...] | int | None, found: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """The class names in force: those declared in the config, else those the data came with.

    >>> merge_classes(3, ("cat", "dog"))
    ('cat', 'dog', '2')
    """
    if isinstance(declared, int):
        names = (found or ())[:declared]
        return names + tuple(str(label) for label in range(len(names), declared))
    return found if declared is None else tuple(declared)


def _to_labels(y: Array) -> Array:
    """Labels as int32; what int32 cannot hold, and fractions, become −1: outside any classes."""
    values = np.asarray(y).reshape(len(y))
    limits = np.iinfo(np.int32)
    with np.errstate(invalid="ignore"):
        fits = (values >= limits.min) & (values <= limits.max) & (values == np.floor(values))
    labels: Array = np.where(fits, values, -1).astype(np.int32)
    return labels
