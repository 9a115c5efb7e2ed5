"""A run as the page shows it: one JSON document, whose numbers are already text where people read them.

The dashboard serves these documents and a report carries one; both are drawn by the same page, which inserts
every name as text, never as markup.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .charts import charts, comparison
from .forecast import Forecast, forecasts
from .history import History
from .inspection_text import flat_items
from .matrix import accuracy_matrix
from .rows import LAYER_COUNTS, Row
from .summary import installed_versions
from .text import count_text, duration, edge_texts, ratio_text, size_text

_SHOWN_EVALUATIONS = 200
_BRIEF_PARTS = ("stream", "learner")
_BRIEF_SETTINGS = 3  # of each part of the configuration, shown under the run's name
_STATES = {
    "running": "The run goes on. Write its report for a picture that stays:",
    "interrupted": "The run was interrupted. It continues from its last commit, bit for bit, with:",
    "finished": "The run is finished. A new run can start from its memory:",
    "damaged": "Look into what is damaged with:",
}
_COMMANDS = {
    "running": "lamina report {path}",
    "interrupted": "lamina resume {path}",
    "finished": "lamina run CONFIG.yaml --from {path}",
    "damaged": "lamina inspect {path}",
}
Document = dict[str, Any]


def run_document(found: Mapping[str, Any], history: History) -> Document:
    """Draws up a run's document.

    Args:
      found: what `inspect_run` returned.
      history: the run's table.
    """
    summary = found["summary"]
    return {
        "run": found["run"],
        "path": found["path"],
        "state": found["state"],
        "brief": brief(found["config"]),
        "committed": _committed(found),
        "written": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "coarse": history.coarse,
        "figures": _figures(found, history),
        "problems": found["problems"],
        "charts": [chart.document() for chart in charts(history)],
        "compare": comparison(history),
        "phases": [name for _, name in history.phases],
        "matrix": None if history.coarse else _matrix(history.evaluations),
        "forecast": [_forecast(each) for each in forecasts(found, history)] if _goes_on(found) else [],
        "layers": _layer_table(found),
        "histograms": [_histograms(name, layer) for name, layer in found["layers"].items()],
        "evaluations": _evaluation_table(history.evaluations),
        "configuration": list(flat_items(found["config"])),
        "versions": list((summary["versions"] if summary else installed_versions()).items()),
        "versions_of": "of the run" if summary else "of this page's Lamina",
        "go_on": [
            _STATES[found["state"]],
            _COMMANDS[found["state"]].format(path=shlex.quote(found["path"])),
        ],
    }


def brief(config: Mapping[str, Any]) -> str:
    """Returns what tells runs apart at a glance: seed, batch size, what streams, who learns."""
    shown = []
    for name, value in config.items():
        if name in _BRIEF_PARTS and isinstance(value, Mapping):
            ordered = sorted(value.items(), key=lambda item: item[0] != "kind")  # kind first
            settings = [(k, str(v)) for k, v in ordered if v is not None and not isinstance(v, Mapping)]
            shown += settings[:_BRIEF_SETTINGS]
        elif name in ("seed", "batch_size"):
            shown.append((name, str(value)))
    return " · ".join(f"{name} {value}" for name, value in shown)


def _goes_on(found: Mapping[str, Any]) -> bool:
    return found["state"] in ("running", "interrupted")


def _committed(found: Mapping[str, Any]) -> str:
    if found["step"] is None:
        return "nothing committed yet"
    offset = "" if found["offset"] is None else f", stream offset {found['offset']:,}"
    return f"last commit at step {found['step']:,}{offset}"


def _figures(found: Mapping[str, Any], history: History) -> list[tuple[str, str, str]]:
    """Returns the figures at the top of the page: name, value and note."""
    recorded, totals = history.last or {}, found["totals"]
    return [
        (
            "examples",
            count_text(recorded.get("examples", found["examples"])),
            f"in {recorded['step']:,} steps" if recorded else "nothing recorded yet",
        ),
        (
            "prequential accuracy",
            ratio_text(recorded.get("prequential_accuracy")),
            "predicted, then learnt",
        ),
        *_held_out(found["evaluations"], history.coarse),
        ("entries", count_text(totals["entries"]), _capacity_note(totals)),
        ("memory", size_text(totals["bytes"]), f"{size_text(totals['disk_bytes'])} on disk"),
        ("examples per second", *_rate(history)),
    ]


def _held_out(evaluations: Sequence[Row], coarse: bool) -> list[tuple[str, str, str]]:
    """Returns a figure per held-out task, or their mean if there are many, and all are known."""
    scored = [row for row in evaluations if row["accuracy"] is not None]
    if len(scored) <= 2:
        return [
            ("held-out accuracy", ratio_text(row["accuracy"]), f"{row['task']}, step {row['step']:,}")
            for row in scored
        ]
    if coarse:
        return []
    mean = sum(row["accuracy"] for row in scored) / len(scored)
    return [("held-out accuracy", ratio_text(mean), f"mean of {len(scored)} tasks")]


def _capacity_note(totals: Mapping[str, Any]) -> str:
    if not totals["capacity"]:
        return "nothing committed yet"
    return f"{totals['entries'] / totals['capacity']:.0%} of {totals['capacity']:,} rows"


def _rate(history: History) -> tuple[str, str]:
    if history.last is None:
        return "–", "nothing recorded yet"
    if history.coarse:  # sums are not known yet
        return f"{history.last['examples_per_second'] or 0:,.0f}", "at the last row"
    seconds = float(history.lines.totals("wall_seconds").sum())
    return f"{history.last['examples'] / seconds:,.0f}" if seconds else "–", f"over {duration(seconds)}"


def _matrix(evaluations: Sequence[Row]) -> Document | None:
    found = accuracy_matrix(evaluations)
    if found is None:
        return None
    texts = [[ratio_text(value) for value in row] for row in found["accuracy"]]
    return {**found, "texts": texts, "forgetting": [ratio_text(value) for value in found["forgetting"]]}


def _forecast(each: Forecast) -> tuple[str, str, str]:
    left = size_text(each.left) if each.unit == "bytes" else f"{each.left:,.0f} entries"
    if each.examples is None:
        return each.what, left, "not at the present growth"
    if each.examples == 0:
        return each.what, left, "reached"
    time = "" if each.seconds is None else f", {duration(each.seconds)} at the present rate"
    return each.what, left, f"after {each.examples:,.0f} more examples{time}"


def _layer_table(found: Mapping[str, Any]) -> Document | None:
    """Returns the final table: a row per layer, and the totals."""
    if not found["layers"]:
        return None
    cold = bool(found["totals"]["cold_bytes"])
    tiers = ("in memory", "cold", "on disk") if cold else ("in memory", "on disk")
    return {
        "head": ["layer", "entries", "initial", "allocated", *tiers, *LAYER_COUNTS],
        "rows": [_layer_cells(name, layer, cold) for name, layer in found["layers"].items()],
        "foot": _layer_cells("all layers", found["totals"], cold),
    }


def _layer_cells(name: str, layer: Mapping[str, Any], cold: bool) -> Sequence[str]:
    return (
        name,
        count_text(layer["entries"]),
        count_text(layer["initial_entries"]),
        count_text(layer["capacity"]),
        size_text(layer["bytes"]),
        *([size_text(layer["cold_bytes"])] if cold else []),
        size_text(layer["disk_bytes"]),
        *(count_text(layer[count]) for count in LAYER_COUNTS),
    )


def _histograms(name: str, layer: Mapping[str, Any]) -> Document:
    kinds = {"age, steps": "ages", "key norm": "key_norms", "value norm": "value_norms"}
    return {
        "layer": name,
        "of": {
            title: {"counts": layer[key]["counts"], "edges": edge_texts(layer[key]["edges"])}
            for title, key in kinds.items()
            if layer[key]["counts"]
        },
    }


def _evaluation_table(evaluations: Sequence[Row]) -> Document | None:
    """Returns the evaluations, the latest first."""
    if not evaluations:
        return None
    shown = evaluations[: -_SHOWN_EVALUATIONS - 1 : -1]
    texts = any(row.get("attribute_loss") is not None for row in shown)
    head = ["task", "phase", "step", "examples", "accuracy", "loss", "held-out examples", "took"]
    return {
        "head": [*head, "loss of a value"] if texts else head,
        "rows": [
            [*_evaluation_cells(row), *([ratio_text(row.get("attribute_loss"))] if texts else [])]
            for row in shown
        ],
        "left": len(evaluations) - len(shown),
    }


def _evaluation_cells(row: Row) -> Iterable[str]:
    return (
        row["task"],
        row["phase"],
        count_text(row["step"]),
        count_text(row["examples"]),
        ratio_text(row["accuracy"]),
        ratio_text(row["loss"]),
        count_text(row["evaluated_examples"]),
        f"{row['evaluation_seconds']:.2f} s",
    )
