"""`digits`: the 1,797 handwritten digits of 8×8 pixels that scikit-learn brings along."""

import numpy as np

from ..config import StreamConfig
from ..randomness import generator
from ..schema import Array
from .registry import check_split, register
from .table import ArrayTable, Table, merge_classes

TEST_SHARE = 0.2


@register("digits", "8×8 images of handwritten digits, bundled with scikit-learn (1,438 train, 359 test)")
def open_digits(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens the split "train" or "test"; which examples are held out never changes."""
    from sklearn.datasets import load_digits

    part = check_split(config.split, ("train", "test"), "digits")
    images, labels = load_digits(return_X_y=True)
    test = _held_out(labels)
    rows = np.flatnonzero(test if part == "test" else ~test)
    x = images[rows].astype(np.uint8).reshape(-1, 8, 8, 1)  # values 0 … 16
    names = tuple(str(digit) for digit in range(10))
    return ArrayTable(x, labels[rows], merge_classes(config.classes, names))


def _held_out(labels: Array) -> Array:
    """Marks the last fifth of every class's rows, after one fixed permutation."""
    order = generator(0, "digits held out").permutation(len(labels))
    marked = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        marked[rows[len(rows) - round(TEST_SHARE * len(rows)) :]] = True
    return marked
