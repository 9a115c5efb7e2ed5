"""Writing a log: all of it in the foreground, or a window of segments at a time ahead of a reader."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..durable import FolderLock, storage_errors
from ..errors import BusyError, ConfigError
from .config import StreamConfig
from .log import Log, create_log, published_position
from .sources import shared_source

Progress = Callable[[int, int], None]  # segments stored, segments in all

_WINDOW = 64  # segments per run of the pipeline in the foreground
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 1.0  # a reader looks at the lock for an instant; another writer holds it for longer


def build_log(
    config: StreamConfig,
    path: str | Path,
    split: str | None = None,
    progress: Progress | None = None,
) -> Log:
    """Writes a whole log and returns when it is complete; intact segments of an earlier try are kept.

    Args:
      config: the stream; its length must be known.
      path: the log's folder, created if need be.
      split: another split than the config's.
      progress: called with (segments stored, segments in all) after every window.

    Returns:
      The log.

    Raises:
      ConfigError: a stream without end and without limit, or another stream's log in the folder.
      BusyError: another process writes this log.
      DataError, MissingDataError, StorageError: as the source and the file system say.
    """
    config = config if split is None else replace(config, split=split)
    with _writing(config, Path(path)) as log:
        if log.segments is None:
            raise ConfigError(f"the stream {config.source} never ends; set limit to build a whole log")
        missing = [each for each in range(log.segments) if not log.is_intact(each)]
        done = log.segments - len(missing)
        for first in range(0, len(missing), _WINDOW):
            window = missing[first : first + _WINDOW]
            _run(log, config, window)
            done += len(window)
            if progress is not None:
                progress(done, log.segments)
        if progress is not None and not missing:
            progress(done, log.segments)
        return log


def follow_reader(config: StreamConfig, path: Path) -> None:
    """Writes a log ahead of its reader, at most `lead_segments` beyond it, to the end of the stream.

    Windows grow from one segment, so that the first examples come soon. While the reader is well
    supplied, the next window waits until it fills a quarter of the lead.
    """
    with _writing(config, path) as log:
        checked: set[int] = set()
        size = 1
        while True:
            reader = published_position(path) // log.segment_length
            end = reader + config.lead_segments
            end = end if log.segments is None else min(end, log.segments)
            missing = [each for each in range(reader, end) if not _stored(log, each, checked)]
            if not missing and end == log.segments:
                return
            starving = bool(missing) and missing[0] <= reader + 1
            if starving or end == log.segments or len(missing) * 4 >= config.lead_segments:
                window = missing[:size]
                if window:
                    _run(log, config, window)
                    checked.update(window)
                    size = min(2 * size, config.lead_segments)
                    continue
            time.sleep(_POLL_SECONDS)


@contextmanager
def _writing(config: StreamConfig, path: Path) -> Iterator[Log]:
    """Holds the log's folder, with its header written and earlier tries' temporary files gone."""
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with _lock(path):
        try:
            source = shared_source(config)
            log = create_log(path, config, source)
            for leftover in path.glob(".segment-*"):
                leftover.unlink(missing_ok=True)
            yield log
        finally:
            shared_source.cache_clear()


def _lock(path: Path) -> FolderLock:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return FolderLock(path, "built")
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _stored(log: Log, segment: int, checked: set[int]) -> bool:
    """Whether a segment is there; what an earlier process left is read once, to be sure of it."""
    if segment in checked:
        return log.segment_path(segment).exists()
    if log.is_intact(segment):
        checked.add(segment)
        return True
    return False


def _run(log: Log, config: StreamConfig, window: list[int]) -> None:
    from .pipeline import run_window  # Beam takes seconds to import: after the header is there to read

    run_window(log, config, window)
