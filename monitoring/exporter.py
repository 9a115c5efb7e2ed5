"""Prometheus over HTTP, on loopback: one exporter shows one run.

Each exporter has a registry of its own, so that a second run in the process adds no series to the
first one's, and nothing of a run is left once its exporter is closed.
"""

import errno
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from ..errors import BusyError, ConfigError
from .families import LatestSamples
from .sink import Samples

_HOST = "127.0.0.1"


class PrometheusExporter:
    """Serves a run's latest samples at `http://127.0.0.1:{port}/metrics`; a `Sink`.

    Attributes:
      port: the port served.
      registry: the registry behind it, for tests and for embedding in a server of one's own.
    """

    def __init__(self, port: int = 0) -> None:
        """Starts to serve.

        Args:
          port: the TCP port on loopback; 0 picks a free one.

        Raises:
          BusyError: somebody else serves this port.
          ConfigError: the port is out of range or needs privileges.
        """
        self._latest = LatestSamples()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self._latest)
        ProcessCollector(registry=self.registry)
        self._server, self._thread = _serve(port, self.registry)
        self.port: int = self._server.server_port

    def publish(self, samples: Samples) -> None:
        """Replaces everything shown by these samples."""
        self._latest.samples = samples  # one reference, swapped atomically: no lock, no waiting

    def linger(self, seconds: float) -> bool:
        """Waits until what is shown now has been read once, so that a short run's end is seen.

        Args:
          seconds: the longest wait.

        Returns:
          Whether it was read.
        """
        self._latest.read.clear()
        return self._latest.read.wait(seconds)

    def close(self) -> None:
        """Drops the run's series and frees the port."""
        if self._thread.is_alive():
            self._latest.samples = tuple
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _serve(port: int, registry: CollectorRegistry) -> tuple[WSGIServer, Thread]:
    if not 0 <= port <= 65535:
        raise ConfigError(f"metrics port {port}: expected 0 (any free port) to 65535")
    try:
        return start_http_server(port, addr=_HOST, registry=registry)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BusyError(
                f"metrics port {port} is in use by another program; choose another, or 0 for a free one"
            ) from None
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"metrics port {port} needs privileges; choose one from 1024, or 0 for a free one"
            ) from None
        raise
