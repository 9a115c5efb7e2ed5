"""Streaming: the chunks of a cold part one after the other, read ahead by threads of their own."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from .cold import ColdPart
from .database import EMPTY, Block
from .layout import Layout
from .sharding import Shards

READ_AHEAD = 3  # chunks mapped before they are needed: enough to keep a disk busy
_READERS = ThreadPoolExecutor(READ_AHEAD, thread_name_prefix="lamina-cold")

ANSWERING = ("keys", "values", "weights", "created", "key_norms")  # what retrieval reads
EXPLAINING = (*ANSWERING, "origin")
WEIGHING = ("weights", "created", "value_norms")  # what pruning reads

Columns = dict[str, NDArray[Any]]


def stream(
    cold: ColdPart, columns: Sequence[str], *, backwards: bool = False
) -> Iterator[tuple[int, Columns]]:
    """Each chunk's number and columns, mapped from disk; dead rows have `created` EMPTY.

    Reading begins at once. At most `READ_AHEAD` + 2 chunks are mapped at a time, if the caller keeps only the
    last one and has finished computing with it when it asks for the next.

    Args:
      cold: the cold part.
      columns: which columns (those that it has); `created` among them.
      backwards: the youngest chunk first. Going there and back again, the second pass finds in the
        operating system's cache what the first one read last.

    Raises:
      FormatError: a chunk is missing or damaged.
    """
    wanted = [column for column in columns if column in cold.layout.columns]
    order = range(len(cold.chunks))
    todo = deque(reversed(order) if backwards else order)
    ahead: deque[tuple[int, Future[Columns]]] = deque()

    def read_ahead() -> None:
        while todo and len(ahead) < READ_AHEAD:
            number = todo.popleft()
            ahead.append((number, _READERS.submit(cold.chunks[number].read, cold.layout, wanted)))

    def chunks() -> Iterator[tuple[int, Columns]]:
        try:
            while ahead:
                number, reading = ahead.popleft()
                columns = _without_dead(reading.result(), cold.live[number])
                read_ahead()
                del reading  # it holds the columns too
                yield number, columns
        finally:
            for _, reading in ahead:
                reading.cancel()

    read_ahead()
    return chunks()


def as_block(layout: Layout, columns: Columns, shards: Shards) -> Block:
    """A chunk's columns as a block on the devices, without copying where the device is the host.

    Columns that were not read are empty.
    """
    absent = np.empty((layout.rows_per_chunk, 0), layout.columns["keys"].dtype)
    arrays = {each.name: columns.get(each.name, absent) for each in fields(Block)}
    if "weights" not in layout.columns:
        del arrays["weights"]
    return Block(**{"weights": None, **jax.device_put(arrays, shards.sharding)})


def _without_dead(columns: Columns, live: NDArray[np.bool_]) -> Columns:
    return columns if live.all() else columns | {"created": np.where(live, columns["created"], EMPTY)}
