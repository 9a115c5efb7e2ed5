"""The report's text and tables as HTML; every value that comes from a run is escaped here."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from .inspection_text import flat_items
from .rows import LAYER_COUNTS, Row
from .text import count_text, duration, edge_texts, ratio_text, size_text

_HISTOGRAM = (132, 34)  # width and height of a layer's histogram, pixels
_SHOWN_EVALUATIONS = 200
_STATES = {
    "running": "The run goes on. Write this report again for a later picture:",
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


def key_figures(found: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Returns the figures at the top of the page.

    Args:
      found: what `inspect_run` returned.
      rows: the table.
    """
    steps = [row for row in rows if row["kind"] == "step"]
    recorded = found["recorded"] or {}
    totals = found["totals"]
    figures = [
        ("examples", count_text(recorded.get("examples", found["examples"])), _steps_note(recorded)),
        (
            "prequential accuracy",
            ratio_text(recorded.get("prequential_accuracy")),
            "predicted, then learnt",
        ),
        *_held_out(found["evaluations"]),
        ("entries", count_text(totals["entries"]), _capacity_note(totals)),
        ("memory", size_text(totals["bytes"]), f"{size_text(totals['disk_bytes'])} on disk"),
        ("examples per second", *_rate(steps)),
    ]
    return "\n".join(
        f'<div class="figure"><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(note)}</p></div>'
        for name, value, note in figures
    )


def layer_table(found: Mapping[str, Any]) -> str:
    """Returns the final table: a row per layer, and the totals."""
    if not found["layers"]:
        return '<p class="empty">Nothing is committed yet.</p>'
    head = ("layer", "entries", "initial", "allocated", "in memory", "on disk", *LAYER_COUNTS)
    body = [_layer_cells(name, layer) for name, layer in found["layers"].items()]
    return _table(head, body, foot=_layer_cells("all layers", found["totals"]))


def histogram_table(found: Mapping[str, Any]) -> str:
    """Returns the histograms of the entries' ages and norms, a row per layer."""
    shown = [
        (escape(name), *(_bars(layer[kind]) for kind in ("ages", "key_norms", "value_norms")))
        for name, layer in found["layers"].items()
    ]
    if not shown:
        return ""
    head = ("layer", "age, steps", "key norm", "value norm")
    return _table(head, shown, escaped=True, kind="histograms")


def evaluation_table(rows: Sequence[Row]) -> str:
    """Returns the evaluations, the latest first."""
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    if not evaluations:
        return '<p class="empty">No evaluation was made.</p>'
    head = ("task", "phase", "step", "examples", "accuracy", "loss", "held-out examples", "took")
    body = [
        (
            row["task"],
            row["phase"],
            count_text(row["step"]),
            count_text(row["examples"]),
            ratio_text(row["accuracy"]),
            ratio_text(row["loss"]),
            count_text(row["evaluated_examples"]),
            f"{row['evaluation_seconds']:.2f} s",
        )
        for row in evaluations[: -_SHOWN_EVALUATIONS - 1 : -1]
    ]
    left = len(evaluations) - len(body)
    note = f'<p class="empty">{left:,} earlier ones are in the table.</p>' if left else ""
    return _table(head, body, kind="long") + note


def configuration(config: Mapping[str, Any]) -> str:
    """Returns the configuration by dotted name, as `--set` takes it."""
    return _pairs(flat_items(config))


def versions(found: Mapping[str, str]) -> str:
    """Returns package versions."""
    return _pairs(found.items())


def problems(found: Mapping[str, Any]) -> str:
    """Returns what is wrong with the run's files; nothing if all is well."""
    if not found["problems"]:
        return ""
    lines = "\n".join(f"<li>{escape(line)}</li>" for line in found["problems"])
    return f'<section class="problems"><h2>Problems</h2><ul>{lines}</ul></section>'


def how_to_go_on(found: Mapping[str, Any]) -> str:
    """Returns how to resume, reuse or look again at the run."""
    state = found["state"]
    command = _COMMANDS[state].format(path=shlex.quote(found["path"]))
    return f"<p>{_STATES[state]}</p><pre><code>{escape(command)}</code></pre>"


def _steps_note(recorded: Mapping[str, Any]) -> str:
    return f"in {recorded['step']:,} steps" if recorded else "nothing recorded yet"


def _held_out(evaluations: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Returns a figure per held-out task, or their mean if there are many."""
    scored = [row for row in evaluations if row["accuracy"] is not None]
    if len(scored) <= 2:
        return [
            ("held-out accuracy", ratio_text(row["accuracy"]), f"{row['task']}, step {row['step']:,}")
            for row in scored
        ]
    mean = sum(row["accuracy"] for row in scored) / len(scored)
    return [("held-out accuracy", ratio_text(mean), f"mean of {len(scored)} tasks")]


def _capacity_note(totals: Mapping[str, Any]) -> str:
    if not totals["capacity"]:
        return "nothing committed yet"
    return f"{totals['entries'] / totals['capacity']:.0%} of {totals['capacity']:,} rows"


def _rate(steps: Sequence[Row]) -> tuple[str, str]:
    seconds = sum(row["wall_seconds"] or 0.0 for row in steps)
    if not seconds:
        return "–", "nothing recorded yet"
    return f"{steps[-1]['examples'] / seconds:,.0f}", f"over {duration(seconds)}"


def _layer_cells(name: str, layer: Mapping[str, Any]) -> Sequence[str]:
    return (
        name,
        count_text(layer["entries"]),
        count_text(layer["initial_entries"]),
        count_text(layer["capacity"]),
        size_text(layer["bytes"]),
        size_text(layer["disk_bytes"]),
        *(count_text(layer[count]) for count in LAYER_COUNTS),
    )


def _bars(histogram: Mapping[str, Any]) -> str:
    """Returns one histogram as a small picture with its range below."""
    counts, edges = histogram["counts"], histogram["edges"]
    if not counts:
        return '<span class="empty">–</span>'
    labels = edge_texts(edges)
    width, height = _HISTOGRAM
    step = width / len(counts)
    bars = []
    for place, count in enumerate(counts):
        tall = max(height * count / max(counts), 1.0 if count else 0.0)
        bars.append(
            f'<rect x="{place * step:.2f}" y="{height - tall:.2f}" width="{step - 1:.2f}" '
            f'height="{tall:.2f}"><title>{labels[place]} to {labels[place + 1]}: '
            f"{count:,}</title></rect>"
        )
    return (
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'width="{width}" height="{height}" '
        f'aria-label="histogram from {labels[0]} to {labels[-1]}">{"".join(bars)}</svg>'
        f'<span class="range"><span>{labels[0]}</span><span>{labels[-1]}</span></span>'
    )


def _table(
    head: Sequence[str],
    body: Iterable[Sequence[str]],
    foot: Sequence[str] | None = None,
    *,
    escaped: bool = False,
    kind: str = "",
) -> str:
    shown = [row if escaped else [escape(str(cell)) for cell in row] for row in body]
    lines = "".join(_row(row, "td") for row in shown)
    end = f"<tfoot>{_row([escape(cell) for cell in foot], 'td')}</tfoot>" if foot else ""
    return (
        f'<div class="scroll {kind}" tabindex="0"><table><thead>{_row(head, "th")}</thead>'
        f"<tbody>{lines}</tbody>{end}</table></div>"
    )


def _row(cells: Sequence[str], tag: str) -> str:
    first = f'<th scope="row">{cells[0]}</th>' if tag == "td" else f'<th scope="col">{cells[0]}</th>'
    scope = ' scope="col"' if tag == "th" else ""
    return f"<tr>{first}{''.join(f'<{tag}{scope}>{cell}</{tag}>' for cell in cells[1:])}</tr>"


def _pairs(items: Iterable[tuple[str, str]]) -> str:
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in items)
    return f'<dl class="pairs">{pairs}</dl>'
