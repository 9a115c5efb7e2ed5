"""Rows of an array that are read where they lie: to cut them out would be a copy."""

from dataclasses import dataclass, field

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Window:
    """Consecutive rows of an array, of which nothing is cut out until somebody wants an array of them.

    They must be there: what is read of rows behind the last one is undefined.
    """

    array: jax.Array  # [N, width]
    start: jax.Array | int  # [] int32: the first of the rows
    count: int = field(metadata={"static": True})

    def part(self, start: jax.Array, count: int) -> "Window":
        """Some of these rows, counted from their first."""
        return Window(self.array, self.start + start, count)

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.array.shape[1]

    @property
    def size(self) -> int:
        return self.count * int(self.array.shape[1])


Rows = jax.Array | Window  # [n, width]


def as_window(rows: Rows) -> Window:
    """The rows as a window; of an array all of them."""
    return rows if isinstance(rows, Window) else Window(rows, 0, rows.shape[0])


def is_part(rows: Rows) -> bool:
    """Whether they are rows of a longer array."""
    return isinstance(rows, Window) and rows.count < rows.array.shape[0]


def cut(rows: Rows) -> jax.Array:
    """The rows as an array of their own, [n, width]."""
    window = as_window(rows)
    if not is_part(window):
        return window.array
    return jax.lax.dynamic_slice_in_dim(window.array, window.start, window.count)
