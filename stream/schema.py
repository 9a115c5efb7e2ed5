"""What a stream carries: the shapes and types of its examples, its sources and its batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Field:
    """Shape and type of one part of an example, without the batch axis.

    >>> Field((28, 28, 1), "uint8").size
    784
    """

    shape: tuple[int, ...]
    dtype: str  # numpy's name: "uint8", "float32", "int32", …

    @property
    def size(self) -> int:
        """Number of values in one example."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Schema:
    """The two fields of every example of a stream.

    `classes` names the labels 0 … C−1 that the int32 scalar `y` may hold; None means regression, where
    `y` is a float32 vector, or text.

    An example of text is a sequence of L positions. `x [L, 2]` int32 holds a token and the number of the
    document it belongs to in the sequence, from 1 (0: padding). `y [L, 2]` int32 holds the token that follows
    in the same document (−1: none) and the number of the attribute whose value that token is part of (−1:
    none). A document has at most one value of each attribute.
    """

    x: Field
    y: Field
    classes: tuple[str, ...] | None
    vocabulary: tuple[str, ...] | None = None  # text: the word of every token, as `Tokenizer` takes it
    attributes: tuple[str, ...] = ()  # text: the names of what values belong to

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON values; `from_json` reads it back."""
        return {
            "x": {"shape": list(self.x.shape), "dtype": self.x.dtype},
            "y": {"shape": list(self.y.shape), "dtype": self.y.dtype},
            "classes": None if self.classes is None else list(self.classes),
            "vocabulary": None if self.vocabulary is None else list(self.vocabulary),
            "attributes": list(self.attributes),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Schema":
        """The schema that `to_json` wrote."""
        x, y = (Field(tuple(value[name]["shape"]), value[name]["dtype"]) for name in ("x", "y"))
        classes, vocabulary = value["classes"], value.get("vocabulary")
        return cls(
            x,
            y,
            None if classes is None else tuple(classes),
            None if vocabulary is None else tuple(vocabulary),
            tuple(value.get("attributes", ())),
        )


@dataclass(frozen=True)
class Batch:
    """Consecutive examples of a stream, ready for the learner."""

    x: Array  # [B, …] float32 when standardised or flattened to [B, D], else as in the schema
    y: Array  # [B] int32 labels, [B, F] float32 targets, or [B, L, 2] int32 as in the schema of text
    origins: Array  # [B] int64, the stream offset of each example
    offset: int  # the position in the stream after this batch
    skipped: int  # bad examples passed over while this batch was filled


class Source(Protocol):
    """Examples addressed by offset: a pure function of (config, seed, offset)."""

    @property
    def schema(self) -> Schema:
        """Shapes and types of the examples."""
        ...

    @property
    def length(self) -> int | None:
        """Number of examples; None if the stream has no end."""
        ...

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """Reads the examples at offsets start … stop−1.

        Returns:
          `x` [n, …], `y` [n, …] and `problems` [n] uint8 (0 = good, else a code of `checks`); n is less than
          stop − start only where the stream ends.
        """
        ...
