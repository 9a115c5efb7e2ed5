"""Reading a log in batches, from any offset, while it is still being written."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..durable import FolderLock
from ..errors import BusyError, ConfigError, DataError, FormatError, MissingDataError, StorageError
from .builder import LogBuilder
from .checks import GOOD, bad_example
from .config import GivenStatistics, StreamConfig
from .log import Log, check_same_stream, open_log, publish_position
from .schema import Array, Batch
from .standardise import Standardiser

_POLL_SECONDS = 0.005


class StreamReader:
    """An iterator of batches over a log, which knows its place in the stream.

    Batches cross segment borders and are full but for the last. Bad examples are skipped, and the batch
    filled with those that follow; or they raise, before anything of their batch is delivered.

    Args:
      path: the log's folder; its header is waited for while `builder` runs.
      batch_size: examples in a batch, B.
      offset: the stream offset to start at.
      standardise: "none", "running" (of the stream so far, this batch included), or given statistics.
      flatten: give x as [B, D].
      on_bad_input: "fail" or "skip".
      drop_consumed: delete segments that were read to their end.
      builder: the process that writes the log; its failures are raised here.

    Raises:
      ConfigError: a batch larger than the whole stream, or an offset outside it.
      MissingDataError, FormatError: there is no log, or a damaged one.
    """

    def __init__(
        self,
        path: str | Path,
        batch_size: int,
        offset: int = 0,
        *,
        standardise: Literal["none", "running"] | GivenStatistics = "none",
        flatten: bool = False,
        on_bad_input: Literal["fail", "skip"] = "fail",
        drop_consumed: bool = False,
        builder: LogBuilder | None = None,
    ) -> None:
        self._builder = builder
        self.log = self._open(Path(path))
        if self.log.total is not None and not 1 <= batch_size <= self.log.total:
            raise ConfigError(
                f"a batch of {batch_size} examples does not fit the stream's {self.log.total}; choose a "
                f"batch size from 1 to {self.log.total}"
            )
        self._batch_size = batch_size
        self._flatten = flatten
        self._skip = on_bad_input == "skip"
        self._drop = drop_consumed
        self._standardiser = Standardiser(standardise, self.log.schema.x)
        self._loaded: tuple[int, dict[str, Array]] | None = None
        self.offset = 0  # position in the stream
        self.delivered = 0  # good examples handed out so far
        self.skipped = 0  # bad examples passed over so far
        self._move(offset)

    @classmethod
    def from_config(
        cls,
        path: str | Path,
        batch_size: int,
        config: StreamConfig,
        offset: int = 0,
        builder: LogBuilder | None = None,
    ) -> "StreamReader":
        """A reader that prepares the examples as `config` says; the other arguments as above.

        Raises:
          ConfigError: also if the log holds another stream than `config` describes.
        """
        reader = cls(
            path,
            batch_size,
            offset,
            standardise=config.standardise,
            flatten=config.flatten,
            on_bad_input=config.on_bad_input,
            drop_consumed=config.drop_consumed,
            builder=builder,
        )
        check_same_stream(reader.log, config)
        return reader

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        pieces: list[tuple[dict[str, Array], Array]] = []
        position, have = self.offset, 0
        while have < self._batch_size and position != self.log.total:
            arrays, origins, position = self._take(position, self._batch_size - have)
            pieces.append((arrays, origins))
            have += len(origins)
        skipped = position - self.offset - have
        self._advance(position, have, skipped)
        if self._drop and position == self.log.total:
            self._drop_before(position)
        if not have:
            self._check_delivered()
            raise StopIteration
        x = np.concatenate([arrays["x"] for arrays, _ in pieces])
        y = np.concatenate([arrays["y"] for arrays, _ in pieces])
        self._standardiser.update(x)
        origins = np.concatenate([origins for _, origins in pieces])
        return Batch(self.prepare(x), y, origins, position, skipped)

    def prepare(self, x: Array) -> Array:
        """Brings other examples [n, …], as a source gives them, into the form of the batches' x.

        The running statistics are used as they stand and not changed: this is for evaluation.
        """
        out = self._standardiser.apply(x)
        return out.reshape(len(out), -1) if self._flatten else out

    def state(self) -> dict[str, Any]:
        """Everything that advances, as plain JSON values: position, counts, running statistics."""
        return {
            "offset": self.offset,
            "delivered": self.delivered,
            "skipped": self.skipped,
            "standardiser": self._standardiser.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues where `state` was taken; the batches that follow are the same bit for bit."""
        self._move(int(state["offset"]))
        self.delivered = int(state["delivered"])
        self.skipped = int(state["skipped"])
        self._standardiser.restore(state["standardiser"])

    def lag(self) -> int:
        """Examples written to the log and not yet delivered: those that follow without a gap."""
        segment = self.offset // self.log.segment_length
        while self.offset != self.log.total and self.log.segment_path(segment).exists():
            segment += 1
            if self.log.total is not None and self.log.span(segment)[0] >= self.log.total:
                return self.log.total - self.offset
        return max(0, self.log.span(segment)[0] - self.offset)

    def _take(self, position: int, count: int) -> tuple[dict[str, Array], Array, int]:
        """Up to `count` good examples of the segment at `position`, their offsets, and the next position."""
        arrays, first = self._segment(position // self.log.segment_length)
        problems = arrays["problems"][position - first :]
        good = np.flatnonzero(problems == GOOD)[:count]
        end = int(good[-1]) + 1 if len(good) == count else len(problems)
        bad = np.flatnonzero(problems[:end])
        if len(bad) and not self._skip:
            rest = {name: array[position - first :] for name, array in arrays.items()}
            raise bad_example(str(self.log.content["source"]), position, rest, self.log.schema)
        rows = good + (position - first)
        return {name: arrays[name][rows] for name in "xy"}, good + position, position + end

    def _segment(self, segment: int) -> tuple[dict[str, Array], int]:
        """The segment's arrays and first offset, waiting for them to be written."""
        first, _ = self.log.span(segment)
        if self._loaded is not None and self._loaded[0] == segment:
            return self._loaded[1], first
        if self._builder is not None:
            self._builder.poll()  # a failure counts even while old segments are left to read
            publish_position(self.log.path, first)  # a batch may reach beyond the lead over its start
        if self._drop:
            self._drop_before(self.offset)
        while True:
            try:
                arrays = self.log.read_segment(segment)
            except FileNotFoundError:
                self._check_written(segment)
            except FormatError:
                if self._builder is None or not self._builder.poll():
                    raise
                self.log.segment_path(segment).unlink(missing_ok=True)  # the builder writes it anew
            else:
                self._loaded = segment, arrays
                return arrays, first
            time.sleep(_POLL_SECONDS)

    def _check_written(self, segment: int) -> None:
        """Raises unless the segment is there by now or some process is writing the log."""
        path = self.log.segment_path(segment)
        writing = _is_locked(self.log.path) if self._builder is None else self._builder.poll()
        if not writing and not path.exists():
            raise FormatError(
                f"{path} is missing and nobody is writing it; build the log again: what is there is reused"
            )

    def _open(self, path: Path) -> Log:
        while True:
            writing = self._builder is not None and self._builder.poll()
            try:
                return open_log(path)
            except MissingDataError:
                if not writing:
                    raise
            time.sleep(_POLL_SECONDS)

    def _move(self, offset: int) -> None:
        if offset < 0 or (self.log.total is not None and offset > self.log.total):
            raise ConfigError(f"offset {offset} is outside the stream of {self.log.total} examples")
        self.offset = offset
        if self._builder is not None:
            publish_position(self.log.path, offset)

    def _advance(self, position: int, delivered: int, skipped: int) -> None:
        self.offset = position
        self.delivered += delivered
        self.skipped += skipped

    def _drop_before(self, offset: int) -> None:
        for segment in self.log.present():
            if self.log.span(segment)[1] <= offset:
                self.log.segment_path(segment).unlink(missing_ok=True)

    def _check_delivered(self) -> None:
        if not self.delivered and self.skipped:
            raise DataError(
                f"the stream {self.log.content['source']} has no good example: all {self.skipped} were "
                f"skipped; correct the data"
            )


def _is_locked(path: Path) -> bool:
    try:
        FolderLock(path, "read").close()
    except BusyError:
        return True
    except StorageError:  # a log on a read-only disk has no writer
        return False
    return False
