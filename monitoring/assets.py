"""The page's files: what a dashboard serves, and a report holds in one."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from html import escape
from importlib import resources
from string import Template
from typing import Any

_SCRIPTS = ("dom.js", "charts.js", "run.js", "whatif.js", "explain.js", "list.js", "app.js")  # in this order
_STYLE = "style.css"
_REPORT_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:\">"
)


@cache
def asset(name: str) -> str:
    """Returns one of the page's own files."""
    return (resources.files(__package__) / "page" / name).read_text(encoding="utf-8")


ASSETS: Mapping[str, Callable[[], str]] = {name: partial(asset, name) for name in (*_SCRIPTS, _STYLE)}
"""The files that a dashboard serves beside the page itself and plotly, by name."""


@cache
def plotly() -> bytes:
    """Returns plotly's script, the unchanged file of the npm package plotly.js-basic-dist-min.

    It draws lines, which is all that is drawn here; the whole library keeps a browser busy for two seconds.
    """
    return (resources.files(__package__) / "page" / "plotly-basic.min.js").read_bytes()


def index() -> str:
    """Returns the page that a dashboard serves."""
    return Template(asset("index.html")).substitute(
        policy="",
        title="Lamina",
        style=f'<link rel="stylesheet" href="{_STYLE}">',
        mark='<a href="#/">Lamina</a>',
        scripts="\n".join(f'<script src="{name}"></script>' for name in _SCRIPTS),
    )


def self_contained(documents: Mapping[str, Any], title: str, mark: str, *, drawn: bool) -> str:
    """Returns the page with its data, scripts and style inside, which needs neither server nor network.

    Args:
      documents: what is shown: `runs`, and perhaps `what_if` and a comparison's `table`.
      title: of the page.
      mark: the line above everything.
      drawn: whether it draws charts, so that it needs plotly.
    """
    packed = f'<script type="text/plain" id="plotly">{_packed_plotly()}</script>' if drawn else ""
    data = f'<script type="application/json" id="documents">{script_json(documents)}</script>'
    return Template(asset("index.html")).substitute(
        policy=_REPORT_POLICY,
        title=escape(title),
        style=f"<style>\n{asset(_STYLE)}</style>",
        mark=escape(mark),
        scripts="\n".join([data, packed, *(f"<script>\n{asset(name)}</script>" for name in _SCRIPTS)]),
    )


def script_json(value: Any) -> str:
    """Returns JSON that can stand inside a script element, whatever text it holds.

    Example:
      >>> script_json({"name": "</script>"})
      '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _packed_plotly() -> str:
    """Returns plotly's script, compressed to a third, as text."""
    return base64.b64encode(gzip.compress(plotly(), mtime=0)).decode()
