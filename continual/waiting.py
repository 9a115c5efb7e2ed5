"""Delayed labels: batches that were predicted, and wait for their labels to be learnt from."""

import io
from collections import deque
from collections.abc import Iterator

import numpy as np

from ..stream import Batch

_FIELDS = ("x", "y", "origins")


class Waiting:
    """The batches of the present phase that are predicted and not yet learnt from, in their order.

    Args:
      delay: so many batches later a batch's labels arrive; 0: at once.
      saved: what `dump` gave.
    """

    def __init__(self, delay: int, saved: bytes | None = None) -> None:
        self._delay = delay
        self._batches: deque[Batch] = deque(() if saved is None else _load(saved))

    @property
    def late(self) -> bool:
        """Whether a batch is predicted first, and learnt from later."""
        return self._delay > 0 or len(self._batches) > 0

    def put(self, batch: Batch) -> Iterator[Batch]:
        """A batch was predicted; takes out those whose labels arrive now."""
        self._batches.append(batch)
        while len(self._batches) > self._delay:
            yield self._batches.popleft()

    def rest(self) -> Iterator[Batch]:
        """Takes out those left: at the end of a stream their labels arrive without further examples."""
        while self._batches:
            yield self._batches.popleft()

    def dump(self) -> bytes | None:
        """What a commit keeps; None if no batch waits."""
        if not self._batches:
            return None
        arrays = {
            f"{number}/{field}": getattr(batch, field)
            for number, batch in enumerate(self._batches)
            for field in _FIELDS
        }
        places = np.array([(batch.offset, batch.skipped) for batch in self._batches], np.int64)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, places=places, **arrays)
        return buffer.getvalue()


def _load(saved: bytes) -> Iterator[Batch]:
    with np.load(io.BytesIO(saved)) as file:
        for number, (offset, skipped) in enumerate(file["places"].tolist()):
            x, y, origins = (file[f"{number}/{field}"] for field in _FIELDS)
            yield Batch(x, y, origins, offset, skipped)
