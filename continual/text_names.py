"""What targets are called: classes, words and texts."""

from typing import Any

import numpy as np

from ..stream import Schema
from ..stream.tokenizer import Tokenizer, documents_of


class Names:
    """The names that a stream's schema gives.

    Args:
      schema: of the stream.
    """

    def __init__(self, schema: Schema) -> None:
        self._named = schema.classes or schema.vocabulary
        self._tokenizer = None if schema.vocabulary is None else Tokenizer(schema.vocabulary)

    def target(self, y: Any) -> Any:
        """A class's name, or a word; a regression's number as it is."""
        return np.asarray(y).tolist() if self._named is None else self._named[int(y)]

    def text(self, x: np.ndarray) -> str:
        """The texts in an example x [T, 2] of a stream of words, one after the other."""
        assert self._tokenizer is not None
        return " ".join(documents_of(x, self._tokenizer))
