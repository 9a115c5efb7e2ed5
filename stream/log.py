"""The segment log: a folder with a header and one file for every fixed stretch of the stream."""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..durable import storage_errors, write_durably
from ..errors import ConfigError, FormatError, MissingDataError
from .config import StreamConfig
from .schema import Array, Schema, Source

FORMAT = "lamina-log"
VERSION = 1
_ARRAYS = ("x", "y", "problems")


@dataclass(frozen=True)
class Log:
    """An open log; segment i holds the examples at offsets i·L … (i+1)·L − 1, the last one fewer."""

    path: Path
    content: Mapping[str, Any]  # the fields of the config that decide what the log holds
    schema: Schema  # of the stored examples
    seed: int
    segment_length: int  # L
    total: int | None  # examples in the whole stream; None: without end

    @property
    def segments(self) -> int | None:
        """Number of segments of the whole stream; None: without end."""
        return None if self.total is None else -(-self.total // self.segment_length)

    def span(self, segment: int) -> tuple[int, int]:
        """First offset of a segment, and the offset after its last."""
        start = segment * self.segment_length
        stop = start + self.segment_length
        return start, stop if self.total is None else min(stop, self.total)

    def segment_path(self, segment: int) -> Path:
        """Where a segment is stored."""
        return self.path / f"segment-{segment:09d}.npz"

    def present(self) -> list[int]:
        """The segments that are stored now, in order."""
        names = sorted(self.path.glob("segment-*.npz"))
        return [int(name.stem.partition("-")[2]) for name in names if name.stem[8:].isdigit()]

    def write_segment(self, segment: int, arrays: Mapping[str, Array]) -> None:
        """Stores a segment's `x`, `y` and `problems`; the same arrays always give the same bytes."""
        buffer = io.BytesIO()
        start = np.int64(self.span(segment)[0])
        np.savez(buffer, start=start, x=arrays["x"], y=arrays["y"], problems=arrays["problems"])
        write_durably(self.segment_path(segment), buffer.getvalue())

    def read_segment(self, segment: int) -> dict[str, Array]:
        """Reads a segment, checking its checksums and that it is the one its name says.

        Raises:
          FileNotFoundError: it is not stored (yet, or any more).
          FormatError: it is damaged or foreign.
        """
        path = self.segment_path(segment)
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                start, arrays = int(file["start"]), {name: file[name] for name in _ARRAYS}
        except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, TypeError) as error:
            raise FormatError(
                f"{path} is damaged ({error}); delete it and build the log again: what is intact is reused"
            ) from error
        first, stop = self.span(segment)
        shapes = [
            (stop - first, *self.schema.x.shape),
            (stop - first, *self.schema.y.shape),
            (stop - first,),
        ]
        if start != first or [arrays[name].shape for name in _ARRAYS] != shapes:
            raise FormatError(f"{path} belongs to another log; delete it and build the log again")
        return arrays

    def is_intact(self, segment: int) -> bool:
        """Whether a segment is stored and can be read."""
        try:
            self.read_segment(segment)
        except (FileNotFoundError, FormatError):
            return False
        return True


def create_log(path: Path, config: StreamConfig, source: Source) -> Log:
    """Writes the header of a new log, or opens the log that an earlier pipeline began.

    Raises:
      ConfigError: the log that is there holds another stream.
      StorageError: the folder cannot be written.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "config": _content(config),
        "schema": source.schema.to_json(),
        "seed": config.seed or 0,
        "segment_length": config.segment_length,
        "total": source.length,
    }
    if (path / "header.json").exists():
        log = open_log(path)
        check_same_stream(log, config)
        _check_same(path, source.schema.to_json(), log.schema.to_json())
        _check_same(path, {"total": source.length}, {"total": log.total})
        return log
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    write_durably(path / "header.json", json.dumps(header, indent=1).encode())
    return open_log(path)


def open_log(path: Path) -> Log:
    """Opens a log by its header.

    Raises:
      MissingDataError: there is no log.
      FormatError: the header is damaged, or of a newer version of Lamina.
    """
    file = path / "header.json"
    try:
        header = json.loads(file.read_bytes())
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r}")
        if header["version"] > VERSION:
            raise FormatError(
                f"{path} is a log of format version {header['version']}, this Lamina reads up to {VERSION}; "
                f"update Lamina, or build the log again in another folder"
            )
        total, content = header["total"], header["config"]
        return Log(
            path,
            {**StreamConfig(source=content["source"]).content(), **content},  # earlier ones knew fewer fields
            Schema.from_json(header["schema"]),
            int(header["seed"]),
            int(header["segment_length"]),
            None if total is None else int(total),
        )
    except FileNotFoundError:
        raise MissingDataError(
            f"looked for a stream's log in {path} and found no header.json; build it with lamina stream build"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{file} is damaged or foreign ({error}); build the log again") from error


def check_same_stream(log: Log, config: StreamConfig) -> None:
    """Refuses a log whose content another config decided.

    Raises:
      ConfigError: it names the first field that differs.
    """
    _check_same(log.path, _content(config), log.content)


def publish_position(path: Path, offset: int) -> None:
    """Tells the pipeline how far the reader is; a hint, so it need not survive a power loss."""
    with storage_errors(path):
        temporary = path / f".position.{os.getpid()}"
        temporary.write_text(str(offset))
        os.replace(temporary, path / "position")


def published_position(path: Path) -> int:
    """The last position that a reader published; 0 if none did."""
    try:
        return int((path / "position").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _content(config: StreamConfig) -> dict[str, Any]:
    return {**config.content(), "seed": config.seed or 0}


def _check_same(path: Path, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if found.get(name) != value:
            raise ConfigError(
                f"{path} holds another stream: its {name} is {found.get(name)!r}, not {value!r}; "
                f"choose another folder, or delete it"
            )
