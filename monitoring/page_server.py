"""A small web server for one page: loopback only, reading only, strict about what it is asked."""

import errno
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ..errors import BusyError, ConfigError

_HOST = "127.0.0.1"
_LONGEST_TARGET = 2000  # characters of a request's path and query
_PATIENCE_SECONDS = 10.0  # with a client that sends nothing
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # plotly styles what it draws with attributes
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class Answer:
    """What a request is answered with."""

    body: bytes
    kind: str  # the content type
    code: int = 200
    version: str | None = None  # an entity tag, by which a page asks only for what has changed
    lasting: bool = False  # whether it stays the same while the server runs


Ask = Callable[[str, Mapping[str, str]], Answer | None]


class PageServer:
    """Answers GET and HEAD on loopback from a function of path and query.

    Attributes:
      port: the port served.
    """

    def __init__(self, port: int, ask: Ask) -> None:
        """Starts to serve.

        Args:
          port: the TCP port; 0 picks a free one.
          ask: returns what a path and its query are answered with, None for what there is not; called from
            several threads.

        Raises:
          BusyError: somebody else serves this port.
          ConfigError: the port is out of range or needs privileges.
        """
        if not 0 <= port <= 65535:
            raise ConfigError(f"port {port}: expected 0 (any free port) to 65535")
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BusyError(
                    f"port {port} is in use by another program; choose another, or 0 for a free one"
                ) from None
            if error.errno == errno.EACCES:
                raise ConfigError(
                    f"port {port} needs privileges; choose one from 1024, or 0 for a free one"
                ) from None
            raise
        self._server.ask = ask
        self.port: int = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="lamina-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Frees the port; closing twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    ask: Ask

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nothing to tell of."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(f"lamina: {type(error).__name__}: {error}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.0"  # no connection outlives its request, nor the server
    server_version, sys_version = "lamina", ""
    timeout = _PATIENCE_SECONDS

    def do_GET(self) -> None:
        self._reply(self._found())

    do_HEAD = do_GET

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other method: http.server looks for do_METHOD
            return lambda: self._reply(_text(405, "this page can only be read"), {"Allow": "GET, HEAD"})
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Says nothing: the terminal is for the user."""

    def _found(self) -> Answer:
        names = {f"{host}:{self.server.server_port}" for host in (_HOST, "localhost")}
        if self.headers.get("Host") not in names:  # a foreign name that resolves to this machine
            return _text(403, "this page is served as 127.0.0.1 and localhost only")
        if len(self.path) > _LONGEST_TARGET:
            return _text(414, "the request is too long")
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        return self.server.ask(parts.path, query) or _text(404, "there is no such page")

    def _reply(self, answer: Answer, more: Mapping[str, str] | None = None) -> None:
        same = answer.version is not None and self.headers.get("If-None-Match") == answer.version
        self.send_response(304 if same else answer.code)
        headers = {
            **_HEADERS,
            "Cache-Control": "max-age=3600" if answer.lasting else "no-cache",
            **({} if answer.version is None else {"ETag": answer.version}),
            **(more or {}),
        }
        if not same:
            headers |= {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and not same:
            self.wfile.write(answer.body)


def _text(code: int, line: str) -> Answer:
    return Answer(f"{line}\n".encode(), "text/plain; charset=utf-8", code)
