"""Prometheus's Pushgateway, for runs too short to be scraped: what they showed last stays there."""

import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, push_to_gateway

from ..errors import ConfigError
from .families import LatestSamples
from .sink import Samples

_EVERY_SECONDS = 10.0
_TIMEOUT_SECONDS = 5.0


class PushGateway:
    """Pushes a run's latest samples from a thread of its own, so that the loop never waits; a `Sink`.

    The run's group on the gateway is job `lamina` and instance `HOST:FOLDER`: each push replaces it, and so
    does a later run in the same folder. The last push stays, without the ages that would stand still.
    """

    def __init__(
        self,
        url: str,
        run_dir: Path,
        *,
        every_seconds: float = _EVERY_SECONDS,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Starts to push.

        Args:
          url: of the gateway, as http://127.0.0.1:9091.
          run_dir: the run's folder.
          every_seconds: between two pushes.
          warn: told once, in one line, when the gateway does not take what is pushed.

        Raises:
          ConfigError: no such kind of URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"push gateway {url}: expected the URL of a Pushgateway, as http://127.0.0.1:9091"
            )
        self._url = url
        self._instance = f"{socket.gethostname()}:{run_dir.resolve()}"
        self._warn: Callable[[str], None] | None = warn
        self._every_seconds = every_seconds
        self._latest = LatestSamples()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._latest)
        self._ended = Event()
        self._thread = Thread(target=self._work, name="lamina-push", daemon=True)
        self._thread.start()

    def publish(self, samples: Samples) -> None:
        """Shows these samples from the next push on."""
        self._latest.samples = samples

    def close(self) -> None:
        """Pushes once more and stops; takes a few seconds at most where the gateway does not answer."""
        if not self._ended.is_set():
            last = self._latest.samples
            self._latest.samples = lambda: (sample for sample in last() if not sample.metric.age)
            self._ended.set()
            self._thread.join(2 * _TIMEOUT_SECONDS)

    def _work(self) -> None:
        while not self._ended.wait(self._every_seconds):
            self._push()
        self._push()

    def _push(self) -> None:
        try:
            push_to_gateway(
                self._url,
                job="lamina",
                registry=self._registry,
                grouping_key={"instance": self._instance},
                timeout=_TIMEOUT_SECONDS,
            )
        except Exception as error:  # whatever it is, this thread goes on
            if self._warn is not None:
                self._warn(f"the push gateway {self._url} did not take the metrics: {error}; the run goes on")
                self._warn = None
