"""Bringing examples as a source gives them into the form in which the learner gets a stream's batches."""

from collections.abc import Callable

from ..stream import Schema, Standardiser, StreamConfig
from ..stream.schema import Array

Prepare = Callable[[Array], Array]  # x [n, …] as a source gives it → x as a batch has it


class Preparation:
    """Prepares examples that do not come through the present phase's reader.

    Args:
      stream: the stream they belong to, whose `standardise` and `flatten` count.
      schema: their shapes and types.
    """

    def __init__(self, stream: StreamConfig, schema: Schema) -> None:
        self._running = stream.standardise == "running"
        self._flatten = stream.flatten
        self._standardiser = Standardiser(stream.standardise, schema.x)

    def __call__(self, x: Array, running: Prepare) -> Array:
        """Prepares x [n, …]; `running` does so where the statistics of the stream so far count."""
        if self._running:
            return running(x)
        out = self._standardiser.apply(x)
        return out.reshape(len(out), -1) if self._flatten else out
