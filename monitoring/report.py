"""`lamina report`: one HTML page about a run, whole in one file, that needs no network."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from ..durable import write_durably
from . import report_parts as parts
from .inspect import inspect_with_rows
from .report_charts import charts
from .rows import Row
from .summary import installed_versions

REPORT_NAME = "report.html"
_BRIEF_PARTS = ("stream", "learner")
_BRIEF_SETTINGS = 3  # of each part of the configuration, shown under the run's name


def write_report(run_dir: Path, output: Path | None = None) -> Path:
    """Writes the report of a run, running, interrupted or finished.

    Args:
      run_dir: the run's folder.
      output: the page to write; None: `report.html` in the run's folder.

    Returns:
      The page's path.

    Raises:
      MissingDataError: the folder is not a run.
      FormatError: its configuration is damaged.
      StorageError: the file system refused.
    """
    path = output if output is not None else run_dir / REPORT_NAME
    write_durably(path, render(*inspect_with_rows(run_dir)).encode())
    return path


def render(found: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Returns the page.

    Args:
      found: what `inspect_run` returned.
      rows: the run's table.
    """
    shown = charts(rows)
    summary = found["summary"]
    return Template(_asset("report.html")).substitute(
        title=escape(found["run"]),
        state=escape(found["state"]),
        brief=escape(_brief(found["config"])),
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        committed=_committed(found),
        figures=parts.key_figures(found, rows),
        problems=parts.problems(found),
        charts="\n".join(_figure(chart.key, chart.title, chart.note) for chart in shown)
        or '<p class="empty">The run has not recorded a row yet.</p>',
        layers=parts.layer_table(found),
        histograms=parts.histogram_table(found),
        evaluations=parts.evaluation_table(rows),
        configuration=parts.configuration(found["config"]),
        versions=parts.versions(summary["versions"] if summary else installed_versions()),
        versions_of="of the run" if summary else "of this report",
        go_on=parts.how_to_go_on(found),
        style=_asset("report.css"),
        data=script_json([chart.document() for chart in shown]),
        plotly=_plotly() if shown else "",
        script=_asset("report.js"),
    )


def script_json(value: Any) -> str:
    """Returns JSON that can stand inside a script element, whatever text it holds.

    Example:
      >>> script_json({"name": "</script>"})
      '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _brief(config: Mapping[str, Any]) -> str:
    """Returns what tells runs apart at a glance: the top-level settings, what streams, who learns."""
    shown = []
    for name, value in config.items():
        if name in _BRIEF_PARTS and isinstance(value, Mapping):
            ordered = sorted(value.items(), key=lambda item: item[0] != "kind")  # kind first
            shown += [(k, str(v)) for k, v in ordered if v is not None][:_BRIEF_SETTINGS]
        elif name != "name" and value is not None and not isinstance(value, Mapping):
            shown.append((name, str(value)))
    return " · ".join(f"{name} {value}" for name, value in shown)


def _committed(found: Mapping[str, Any]) -> str:
    if found["step"] is None:
        return "nothing committed yet"
    offset = "" if found["offset"] is None else f", stream offset {found['offset']:,}"
    return f"last commit at step {found['step']:,}{offset}"


def _figure(key: str, title: str, note: str) -> str:
    return (
        f'<figure class="chart" id="chart-{key}"><figcaption><h3>{title}</h3><p>{note}</p>'
        '<ul class="legend"></ul></figcaption><div class="plot"></div></figure>'
    )


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / "page" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Returns plotly's script, which its Python package ships."""
    path = resources.files("plotly") / "package_data" / "plotly.min.js"
    return path.read_text(encoding="utf-8").replace("</script", "<\\/script")
