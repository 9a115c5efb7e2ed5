"""Bad examples: how they are recognised, and what is said about them.

The pipeline marks every example of a segment with a code, once; the reader then fails or skips as it
was told, so that one log serves both.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ..errors import DataError
from .schema import Array, Schema, Source

GOOD, NOT_FINITE, BAD_LABEL, BAD_SHAPE, UNREADABLE = range(5)

_MEANINGS = {
    NOT_FINITE: "holds NaN, an infinity or a number beyond float32",
    BAD_LABEL: "has the label {label}, which is outside the declared classes 0 to {last}",
    BAD_SHAPE: "differs in shape or columns from the first example",
    UNREADABLE: "holds a value that is missing or no number",
}


def find_problems(x: Array, y: Array, schema: Schema, known: Array | None = None) -> Array:
    """Marks the bad ones among n examples.

    Args:
      x: [n, …] inputs.
      y: [n, …] targets.
      schema: what they should be.
      known: [n] uint8 codes of examples already known as bad.

    Returns:
      [n] uint8 codes: 0 for a good example.
    """
    problems = np.zeros(len(x), np.uint8) if known is None else known.astype(np.uint8)
    finite = _finite_rows(x) & _finite_rows(y)
    problems[(problems == GOOD) & ~finite] = NOT_FINITE
    if schema.classes is not None:
        problems[(problems == GOOD) & ((y < 0) | (y >= len(schema.classes)))] = BAD_LABEL
    return problems


def read_good(
    source: Source, start: int, stop: int, on_bad_input: Literal["fail", "skip"] = "fail"
) -> tuple[Array, Array]:
    """Reads examples of a source for evaluation, under the same rule as the reader's.

    Args:
      source: an open source.
      start: first offset.
      stop: offset after the last; beyond the source's end there is nothing.
      on_bad_input: fail at the first bad example, or leave out the bad ones.

    Returns:
      x [n, …] and y [n, …] as in the source's schema.

    Raises:
      DataError: a bad example, under "fail"; or no good one at all.
    """
    arrays = source.read(start, stop)
    bad = np.flatnonzero(arrays["problems"])
    if len(bad) and (on_bad_input == "fail" or len(bad) == len(arrays["x"])):
        raise bad_example("of evaluation", start, arrays, source.schema)
    good = arrays["problems"] == GOOD
    return arrays["x"][good], arrays["y"][good]


def bad_example(stream: str, start: int, arrays: Mapping[str, Array], schema: Schema) -> DataError:
    """The error that names the first bad example among those read.

    Args:
      stream: the stream, in words.
      start: the offset of the first example read.
      arrays: x, y and problems, at least one of which is bad.
      schema: what they should be.
    """
    row = int(np.flatnonzero(arrays["problems"])[0])
    code, last = int(arrays["problems"][row]), len(schema.classes or ()) - 1
    meaning = (
        _MEANINGS[code].format(label=arrays["y"][row], last=last) if code == BAD_LABEL else _MEANINGS[code]
    )
    return DataError(
        f"example {start + row} of the stream {stream} {meaning}; "
        f"correct the data, or pass over such examples with on_bad_input: skip"
    )


def _finite_rows(values: Array) -> Array:
    if values.dtype.kind != "f":
        return np.ones(len(values), bool)
    return np.asarray(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
