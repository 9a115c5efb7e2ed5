"""What a dashboard keeps of a run that somebody looks at: its table's history and its last commit."""

import time
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from ..errors import LaminaError
from .documents import Document, brief, run_document
from .history import History
from .inspect import MemoryFindings, inspect_with, read_memory
from .run_view import MEMORY_NAME, RunView
from .table import TABLE_NAME, last_step_row

_AT_ONCE_BYTES = 1 << 26  # a table longer than this is shown as a sample until it is read
_STEP_BYTES = 1 << 24  # read at a time in the background
_SETTLE_SECONDS = 3.0  # before that, in which the browser draws the sample with all cores


class WatchedRun:
    """One run's document, made from what changed since the last one."""

    def __init__(self, path: Path) -> None:
        """Begins to look.

        Args:
          path: the run's folder.
        """
        self.path = path
        self._view = RunView(path)
        self._history = History(path / TABLE_NAME)
        self._lock = Lock()
        self._reader: Thread | None = None
        self._sample: History | None = None  # shown while the reader is at work
        self._memory: tuple[Any, MemoryFindings] | None = None

    def document(self) -> Document:
        """Returns the run's document as of now.

        Raises:
          MissingDataError: the folder is no run any more.
          FormatError: its configuration is damaged.
        """
        with self._lock:
            history = self._current()
            return run_document(inspect_with(self._view, history, self._findings()), history)

    def _current(self) -> History:
        """The whole history; while a long table is being read for the first time, a sample of it."""
        if self._reader is None and self._history.unread_bytes <= _AT_ONCE_BYTES:
            self._history.update()
            return self._history
        if self._reader is None:
            self._sample = History.sample(self.path / TABLE_NAME)
            self._reader = Thread(target=self._read, name="lamina-history", daemon=True)
            self._reader.start()
        if self._sample is not None and self._reader.is_alive():
            return self._sample
        self._reader = self._sample = None
        return self._current()

    def _read(self) -> None:
        time.sleep(_SETTLE_SECONDS)
        while not self._history.update(_STEP_BYTES):
            pass

    def _findings(self) -> MemoryFindings:
        commit = _stamp(self.path / MEMORY_NAME / "HEAD.json")
        if self._memory is None or self._memory[0] != commit:
            self._memory = commit, read_memory(self.path)
        return self._memory[1]


class RunList:
    """A line for each run, read again only where a file of it has changed."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[Any, Document]] = {}

    def lines(self, runs: dict[str, Path]) -> list[Document]:
        """Returns the lines.

        Args:
          runs: the runs' folders by name.
        """
        self._lines = {name: line for name, line in self._lines.items() if name in runs}
        return [self._line(name, path) for name, path in runs.items()]

    def _line(self, name: str, path: Path) -> Document:
        files = ("config.yaml", "summary.json", TABLE_NAME, f"{MEMORY_NAME}/HEAD.json")
        stamp = tuple(_stamp(path / file) for file in files)
        known = self._lines.get(name)
        if known is None or known[0] != stamp:
            known = self._lines[name] = stamp, _facts(name, path)
        return {**known[1], "state": _state(path, known[1])}


def _facts(name: str, path: Path) -> Document:
    line: Document = {"id": name, "name": name, "path": str(path), "changed": _changed(path), "problem": None}
    try:
        view = RunView(path)
        config = view.config()
        line |= {"name": str(config.get("name") or path.name), "brief": brief(config)}
        memory = view.memory()
        if memory is not None:
            with memory:
                line["committed"] = memory.head.step if memory.head else 0
        summary = view.summary()
        if summary is not None:
            line["held_out"] = summary.test_accuracy
        row = last_step_row(path / TABLE_NAME) if (path / TABLE_NAME).exists() else None
        if row is not None:
            line |= {name: row[name] for name in ("step", "examples", "examples_per_second", "phase")}
            line["accuracy"] = row["prequential_accuracy"]
            line["entries"] = sum(layer["entries"] for layer in row["layers"].values())
            line["bytes"] = sum(layer["bytes"] for layer in row["layers"].values())
    except (LaminaError, KeyError, TypeError, AttributeError) as error:
        text = str(error) if isinstance(error, LaminaError) else f"{TABLE_NAME} holds rows of another kind"
        line["problem"] = text
    return line


def _state(path: Path, line: Document) -> str:
    if line["problem"] is not None:
        return "damaged"
    try:
        return str(RunView(path).state(line.get("committed", 0)))
    except LaminaError:
        return "damaged"


def _changed(path: Path) -> float:
    """Unix time of the last change to the run's table, or to its configuration."""
    for name in (TABLE_NAME, "config.yaml"):
        if (stamp := _stamp(path / name)) is not None:
            return float(stamp[0]) / 1e9
    return 0.0


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
