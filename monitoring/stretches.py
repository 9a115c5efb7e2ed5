"""Columns of a table in bounded memory: exact while short, then extremes and sums over stretches of rows."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STRETCHES = 1024  # at least so many once the table is long, at most twice as many
_FIELDS = ("low", "low_at", "high", "high_at", "total")


class Stretches:
    """Follows columns over rows; once there are many rows, it keeps stretches of equally many of them.

    Of each stretch and column it keeps the smallest and the largest value with their places, and the sum:
    a line drawn through them looks like the line through all rows, and means stay exact.

    Attributes:
      rows: rows taken so far.
    """

    def __init__(self, most: int = _STRETCHES) -> None:
        """Begins empty.

        Args:
          most: stretches to keep at least, once there are more rows; at most twice as many.
        """
        self.rows = 0
        self._most = most
        self._size = 1  # rows a stretch
        self._names: list[str] = []
        self._kept = np.empty((len(_FIELDS), 0, 0))  # [field, column, stretch]
        self._ends = np.empty(0)  # [stretch] x of each stretch's last row
        self._latest = np.empty((1, 0))  # [1 + column, 1] x and values of the latest row, once there is one
        self._tail = np.empty((1, 0))  # [1 + column, row] x and values of rows that fill no stretch yet

    @property
    def names(self) -> list[str]:
        """The columns met so far, in the order of their first row."""
        return list(self._names)

    def take(self, x: Floats, columns: Mapping[str, Floats]) -> None:
        """Adds rows.

        Args:
          x: `[n]` ascending, after all earlier ones.
          columns: name → `[n]`; NaN where there is no value. A column that is left out is NaN.
        """
        for name in columns:
            if name not in self._names:
                self._add_column(name)
        rows = np.full((1 + len(self._names), len(x)), np.nan)
        rows[0] = x
        for place, name in enumerate(self._names, start=1):
            if name in columns:
                rows[place] = columns[name]
        self.rows += len(x)
        self._latest = rows[:, -1:] if len(x) else self._latest
        self._tail = np.concatenate([self._tail, rows], axis=1)
        self._fold()

    def line(self, name: str) -> tuple[Floats, Floats]:
        """Returns a column as a line: every row, or each stretch's extremes in order and the last row."""
        column = self._names.index(name)
        fields = dict(zip(_FIELDS, self._kept[:, column], strict=True))
        x = np.concatenate([fields["low_at"], fields["high_at"], self._tail[0], self._latest[0]])
        rest = (self._tail[1 + column], self._latest[1 + column])
        y = np.concatenate([fields["low"], fields["high"], *rest])
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        first = np.concatenate([[True], np.diff(x) > 0]) if len(x) else np.empty(0, bool)
        return x[first], y[first]

    def totals(self, name: str) -> Floats:
        """Returns a column's sum over each stretch, and each row that fills none; NaN counts as 0."""
        column = self._names.index(name)
        return np.concatenate([self._kept[-1, column], np.nan_to_num(self._tail[1 + column])])

    def ends(self) -> Floats:
        """Returns the x at which each of the sums of `totals` ends."""
        return np.concatenate([self._ends, self._tail[0]])

    def _add_column(self, name: str) -> None:
        self._names.append(name)
        fresh = np.full((len(_FIELDS), 1, self._kept.shape[2]), np.nan)
        fresh[[1, 3]] = self._ends
        fresh[-1] = 0.0
        self._kept = np.concatenate([self._kept, fresh], axis=1)
        self._tail = np.concatenate([self._tail, np.full((1, self._tail.shape[1]), np.nan)])
        self._latest = np.concatenate([self._latest, np.full((1, self._latest.shape[1]), np.nan)])

    def _fold(self) -> None:
        """Turns full stretches of the tail into extremes and sums; makes two one when there are many."""
        while self._tail.shape[1] >= self._size:
            room = 2 * self._most - len(self._ends)
            if room == 0:
                self._kept, self._ends = _merged(self._kept), self._ends[1::2]
                self._size *= 2
                continue
            count = min(room, self._tail.shape[1] // self._size)
            used = count * self._size
            stretches = self._tail[:, :used].reshape(len(self._tail), count, self._size)
            self._kept = np.concatenate([self._kept, _extremes(stretches[0], stretches[1:])], axis=2)
            self._ends = np.concatenate([self._ends, stretches[0, :, -1]])
            self._tail = self._tail[:, used:]


def _merged(kept: Floats) -> Floats:
    """[field, column, stretch] with every two stretches made one."""
    first, second = kept[:, :, 0::2], kept[:, :, 1::2]
    lower = np.isnan(first[0]) | (second[0] < first[0])
    higher = np.isnan(first[2]) | (second[2] > first[2])
    merged = np.where(np.stack([lower, lower, higher, higher, lower]), second, first)
    merged[4] = first[4] + second[4]
    return merged


def _extremes(x: Floats, values: Floats) -> Floats:
    """[field, column, stretch] of x `[stretch, row]` and values `[column, stretch, row]`."""
    missing = np.isnan(values)
    low = np.where(missing, np.inf, values).argmin(axis=2)
    high = np.where(missing, -np.inf, values).argmax(axis=2)
    places = np.arange(x.shape[0])
    return np.stack(
        [
            np.take_along_axis(values, low[..., None], axis=2)[..., 0],
            x[places, low],
            np.take_along_axis(values, high[..., None], axis=2)[..., 0],
            x[places, high],
            np.nan_to_num(values).sum(axis=2),
        ]
    )
