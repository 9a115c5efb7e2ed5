"""A run's address for Prometheus's file discovery: there while the run is open, gone after it.

A killed run leaves its file behind, so that Prometheus notices that the run is gone; the next run on the
same port takes its place.
"""

import json
from pathlib import Path

from ..durable import write_durably
from ..errors import ConfigError


class TargetFile:
    """Names `127.0.0.1:PORT` in `FOLDER/lamina-PORT.json`, as `file_sd_configs` reads it."""

    def __init__(self, folder: Path, port: int) -> None:
        """Writes the file.

        Args:
          folder: what Prometheus watches; it must exist.
          port: where the run serves its metrics.

        Raises:
          ConfigError: there is no such folder.
          StorageError: the file system refused.
        """
        if not folder.is_dir():
            raise ConfigError(f"metrics targets {folder}: expected a folder that Prometheus watches; make it")
        self._path = folder / f"lamina-{port}.json"
        write_durably(self._path, json.dumps([{"targets": [f"127.0.0.1:{port}"]}]).encode() + b"\n")

    def close(self) -> None:
        """Removes the file; closing twice is harmless."""
        self._path.unlink(missing_ok=True)
