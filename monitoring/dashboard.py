"""`lamina dashboard`: the runs below a folder as one page, served to this machine only, read only."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

from ..errors import ConfigError, LaminaError, MissingDataError
from .assets import ASSETS, index, plotly
from .page_server import Answer, PageServer
from .runs_folder import RunsFolder
from .watched import RunList, WatchedRun

_KEPT_RUNS = 8  # whose history stays in memory
_SCRIPT = "text/javascript; charset=utf-8"
WhatIf = Callable[[Path], dict[str, Any]]
Explain = Callable[..., dict[str, Any]]


class Dashboard:
    """Serves the page and its documents; a context that frees the port.

    It opens run folders for reading only, takes no lock, and has nothing that changes a run.

    Attributes:
      url: where the page is.
    """

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        what_if: WhatIf | None = None,
        explain: Explain | None = None,
    ) -> None:
        """Starts to serve.

        Args:
          folder: of runs, or of one run.
          port: the TCP port on loopback; 0 picks a free one.
          what_if: tells what thresholds would cost in a run's memory, given its folder.
          explain: traces a prediction, given the run's folder and `split`, `index`, `layer`, `count`,
            `phase` (None: the present one).

        Raises:
          MissingDataError: there is no such folder.
          BusyError: somebody else serves this port.
          ConfigError: the port is out of range or needs privileges.
        """
        self._folder = RunsFolder(folder)
        self._list = RunList()
        self._watched: dict[Path, WatchedRun] = {}
        self._what_if, self._explain = what_if, explain
        self._lists, self._slow = Lock(), Lock()
        self._server = PageServer(port, self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}/"

    def close(self) -> None:
        """Frees the port; closing twice is harmless."""
        self._server.close()

    def __enter__(self) -> "Dashboard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """What a path asks for; None where there is no such thing."""
        if path == "/":
            return Answer(index().encode(), "text/html; charset=utf-8")
        if path == "/plotly.js":
            return Answer(plotly(), _SCRIPT, lasting=True)
        if path.removeprefix("/") in ASSETS:
            kind = "text/css; charset=utf-8" if path.endswith(".css") else _SCRIPT
            return Answer(ASSETS[path.removeprefix("/")]().encode(), kind)
        ask = {
            "/api/runs": self._runs,
            "/api/run": self._run,
            "/api/what-if": self._thresholds,
            "/api/explain": self._explained,
        }.get(path)
        return None if ask is None else _json(ask, query)

    def _runs(self, _: Mapping[str, str]) -> Any:
        with self._lists:
            lines = self._list.lines(self._folder.runs())
        return {"folder": str(self._folder.path), "runs": lines, "explains": self._explain is not None}

    def _run(self, query: Mapping[str, str]) -> Any:
        return self._watch(self._path(query)).document()

    def _thresholds(self, query: Mapping[str, str]) -> Any:
        path = self._path(query)
        if self._what_if is None:
            return {"layers": {}}
        with self._slow:  # one at a time, so that a run on this machine keeps its cores
            try:
                return self._what_if(path)
            except LaminaError:
                return {"layers": {}}  # the run's own document tells what is damaged

    def _explained(self, query: Mapping[str, str]) -> Any:
        path = self._path(query)
        if self._explain is None:
            raise MissingDataError("this page explains nothing")
        with self._slow:
            return self._explain(
                path,
                split=query.get("split", "test"),
                index=_number(query, "index", 0, 2**31),
                layer=query.get("layer", "readout"),
                count=_number(query, "count", 5, 50),
                phase=query.get("phase") or None,
            )

    def _path(self, query: Mapping[str, str]) -> Path:
        if "id" not in query:
            raise ConfigError("expected the name of a run as id")
        return self._folder.run(query["id"])

    def _watch(self, path: Path) -> WatchedRun:
        with self._lists:
            run = self._watched.pop(path, None) or WatchedRun(path)
            self._watched[path] = run  # the latest last
            for oldest in list(self._watched)[:-_KEPT_RUNS]:
                del self._watched[oldest]
        return run


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise ConfigError(f"{name}: expected a whole number from 0 to {most}")
    return int(text)


def _json(ask: Callable[[Mapping[str, str]], Any], query: Mapping[str, str]) -> Answer:
    try:
        code, content = 200, ask(query)
    except LaminaError as error:
        code, content = (404 if isinstance(error, MissingDataError) else 422), {"error": str(error)}
    body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    return Answer(body, "application/json", code=code, version=f'"{crc32(body):08x}-{len(body)}"')
