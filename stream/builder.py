"""`LogBuilder`: the pipeline as a background process of the learner's."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from .. import errors
from ..durable import storage_errors
from ..errors import DataError
from .config import StreamConfig, config_to_json
from .log import publish_position


class LogBuilder:
    """Writes a log in a process of its own, ahead of the reader that is given this builder.

    It is a fresh process, not a fork, because the learner's process runs JAX's threads. It ends with the log,
    with `stop`, or with the process that started it.

    Args:
      config: the stream to write.
      path: the log's folder, created if need be.
      offset: where the reader will start.
      later: streams and folders of logs that are written after it, in turn, each ahead of its own reader.
    """

    def __init__(
        self,
        config: StreamConfig,
        path: str | Path,
        offset: int = 0,
        later: Sequence[tuple[StreamConfig, Path]] = (),
    ) -> None:
        self._path = Path(path)
        self._logs = [(config, self._path), *later]
        self._offset = offset
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> "LogBuilder":
        """Starts the process; returns at once.

        Raises:
          StorageError: the log's folder cannot be written.
        """
        with storage_errors(self._path):
            self._path.mkdir(parents=True, exist_ok=True)
            publish_position(self._path, self._offset)
            messages = self._path / "builder.log"
            messages.unlink(missing_ok=True)
            with open(messages, "wb") as stderr:
                logs = [(str(path), json.dumps(config_to_json(config))) for config, path in self._logs]
                self._process = subprocess.Popen(
                    [sys.executable, "-m", f"{__package__}.build", *chain.from_iterable(logs)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,  # a Ctrl-C is for the learner, which commits and then stops us
                )
        return self

    @property
    def pid(self) -> int | None:
        """The process's id, once started."""
        return None if self._process is None else self._process.pid

    def poll(self) -> bool:
        """Whether the process is still writing; False once it has ended well or was stopped.

        Raises:
          LaminaError: it failed; the same exception, in one line, that it met.
        """
        if self._process is None or self._stopped:
            return False
        code = self._process.poll()
        if code is None:
            return True
        if code == 0:
            return False
        raise self._failure(code)

    def stop(self) -> None:
        """Ends the process and its workers; stopping twice, or after the end, is harmless."""
        if self._process is None or self._stopped:
            return
        self._stopped = True
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> "LogBuilder":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _failure(self, code: int) -> Exception:
        assert self._process is not None
        assert self._process.stdout is not None
        if not hasattr(self, "_report"):
            self._report = self._process.stdout.read()
        try:
            report = json.loads(self._report)
            kind = getattr(errors, report["kind"])
            failure: Exception = kind(report["message"])
        except (ValueError, KeyError, AttributeError):
            failure = DataError(
                f"the process that writes the stream's log ended unexpectedly (exit code {code}); see "
                f"{self._path / 'builder.log'}, then run again: what it wrote is reused"
            )
        return failure
