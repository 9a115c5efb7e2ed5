"""Examples of the past, read again from their streams by their origins."""

from collections.abc import Sequence

import numpy as np

from ..stream import Source, StreamConfig, open_source
from ..stream.augment import augment_images
from ..stream.checks import GOOD
from ..stream.schema import Array
from .preparing import Preparation, Prepare
from .spans import Span, locate


class Past:
    """Reads what came by earlier: a source is a pure function of (config, seed, offset).

    Args:
      spans: where origins lie.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self._open: dict[StreamConfig, tuple[Source, Preparation]] = {}

    def example(self, origin: int) -> tuple[Array, Array]:
        """x and y of one example as its stream had it, augmentation included."""
        x, y, _, _ = self._read(origin)
        return x[0], y[0]

    def read(self, origins: Array, running: Prepare) -> tuple[Array, Array, Array]:
        """Reads good examples in the form of batches.

        Args:
          origins: [n] which ones.
          running: prepares x with the present phase's running statistics.

        Returns:
          x [m, …], y [m, …] and origins [m] of those that are good.
        """
        rows = [self._read(int(origin)) for origin in origins]
        good = [place for place, row in enumerate(rows) if row[2]]
        x = np.concatenate([rows[place][3](rows[place][0], running) for place in good])
        return x, np.concatenate([rows[place][1] for place in good]), origins[good]

    def length(self, stream: StreamConfig) -> int | None:
        """Number of examples of a stream; None: without end."""
        return self._source(stream)[0].length

    def _read(self, origin: int) -> tuple[Array, Array, bool, Preparation]:
        span, offset = locate(self.spans, origin)
        source, preparation = self._source(span.stream)
        arrays = source.read(offset, offset + 1)
        x = arrays["x"]
        if span.stream.augment == "cifar":
            x = augment_images(x, span.stream.seed or 0, offset)
        return x, arrays["y"], bool(arrays["problems"][0] == GOOD), preparation

    def _source(self, stream: StreamConfig) -> tuple[Source, Preparation]:
        if stream not in self._open:
            source = open_source(stream)
            self._open[stream] = source, Preparation(stream, source.schema)
        return self._open[stream]
