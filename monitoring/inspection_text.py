"""What `inspect_run` found, and a run's summary, as text for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .rows import LAYER_COUNTS
from .summary import Summary
from .text import aligned, count_text, duration, edge_texts, ratio_text, size_text

_BAR = 28  # characters of a histogram's longest bar
_HISTOGRAMS = {
    "ages": "age of the entries, steps",
    "key_norms": "norm of the keys",
    "value_norms": "norm of the values",
}


def format_inspection(found: Mapping[str, Any]) -> str:
    """Lays an inspection out for a terminal.

    Args:
      found: what `inspect_run` returned.

    Returns:
      Lines of text, without a final line end.
    """
    summary = found["summary"] or {}
    parts = [_head(found), _config(found["config"]), _layers(found), _evaluations(found)]
    parts += [attribute_lines(summary.get("attributes")), _costs(summary.get("costs"))]
    parts += [_histograms(name, layer) for name, layer in found["layers"].items()]
    parts.append(_problems(found["problems"]))
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def format_summary(summary: Summary) -> str:
    """Lays a finished run's summary out for a terminal.

    Args:
      summary: its figures.

    Returns:
      Lines of text, without a final line end.
    """
    layers = summary.layers.values()
    skipped = f", {summary.skipped_examples:,} skipped" if summary.skipped_examples else ""
    figures = {
        "examples": f"{summary.examples:,} in {summary.steps:,} steps{skipped}",
        "prequential accuracy": ratio_text(summary.prequential_accuracy),
        "held-out accuracy": ratio_text(summary.test_accuracy),
        "attribute loss": ratio_text(summary.attribute_loss),
        "loss": ratio_text(summary.loss),
        "entries": f"{sum(layer.entries for layer in layers):,}",
        "memory": size_text(sum(layer.bytes for layer in layers)),
        "time": f"{duration(summary.wall_seconds)}, {_rate(summary)} examples/s on average",
    }
    width = max(map(len, figures))
    shown = [f"{name:<{width}}  {value}" for name, value in figures.items() if value != "–"]
    head = ("layer", "entries", "capacity", "in memory", *LAYER_COUNTS)
    rows = [
        (
            name,
            count_text(layer.entries),
            count_text(layer.capacity),
            size_text(layer.bytes),
            *(count_text(getattr(layer, count)) for count in LAYER_COUNTS),
        )
        for name, layer in summary.layers.items()
    ]
    parts = [
        shown,
        aligned(head, rows) if rows else [],
        [*attribute_lines(summary.attributes)],
        _costs(summary.costs),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def attribute_lines(attributes: Mapping[str, Mapping[str, float]] | None) -> list[str]:
    """Accuracy and loss of the values of each attribute, as a table; no lines without any."""
    if not attributes:
        return []
    rows = [(name, ratio_text(a["accuracy"]), ratio_text(a["loss"])) for name, a in attributes.items()]
    return list(aligned(("attribute", "accuracy", "loss"), rows))


def _costs(costs: Mapping[str, Mapping[str, int]] | None) -> list[str]:
    """What predicting one more token costs, part by part."""
    if not costs:
        return []
    rows = [(name, count_text(c["flops"]), size_text(c["bytes"])) for name, c in costs.items()]
    flops, read = (sum(c[key] for c in costs.values()) for key in ("flops", "bytes"))
    rows.append(("all", count_text(flops), size_text(read)))
    return list(aligned(("a token's prediction", "FLOPs", "bytes read"), rows))


def _rate(summary: Summary) -> str:
    return f"{summary.examples / summary.wall_seconds:,.0f}" if summary.wall_seconds else "–"


def flat_items(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields a configuration's values by dotted name, as `--set` takes them; what is not set is left out.

    Example:
      >>> list(flat_items({"seed": 1, "log": None, "learner": {"temperature": 5.0}}))
      [('seed', '1'), ('learner.temperature', '5.0')]
    """
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat_items(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)


def _head(found: Mapping[str, Any]) -> list[str]:
    lines = [f"{found['run']} · {found['state']} · {found['path']}"]
    if found["step"] is None:
        return [*lines, "nothing committed yet"]
    lines.append(
        f"committed at step {found['step']:,} · {count_text(found['examples'])} examples · "
        f"stream offset {count_text(found['offset'])} · generation {found['generation']}"
    )
    recorded = found["recorded"]
    if recorded:
        lines.append(
            f"recorded to step {recorded['step']:,} · phase {recorded['phase']} · prequential "
            f"accuracy {ratio_text(recorded['prequential_accuracy'])} · "
            f"{count_text(found['predictions'])} predictions"
        )
    return lines


def _config(config: Mapping[str, Any]) -> list[str]:
    items = list(flat_items(config))
    width = max((len(name) for name, _ in items), default=0)
    return ["configuration", *(f"  {name:<{width}}  {value}" for name, value in items)]


def _layers(found: Mapping[str, Any]) -> list[str]:
    if not found["layers"]:
        return []
    cold = bool(found["totals"]["cold_bytes"])
    tiers = ("in memory", "cold", "on disk") if cold else ("in memory", "on disk")
    head = ("layer", "entries", "initial", "capacity", *tiers, *LAYER_COUNTS)
    rows = [_layer_cells(name, layer, cold) for name, layer in found["layers"].items()]
    rows.append(_layer_cells("all", found["totals"], cold))
    return aligned(head, rows)


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


def _evaluations(found: Mapping[str, Any]) -> list[str]:
    if not found["evaluations"]:
        return []
    rows = [
        (
            row["task"],
            f"{row['step']:,}",
            ratio_text(row["accuracy"]),
            ratio_text(row["loss"]),
            f"{row['evaluated_examples']:,}",
        )
        for row in found["evaluations"]
    ]
    return aligned(("held-out task", "step", "accuracy", "loss", "examples"), rows)


def _histograms(name: str, layer: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, title in _HISTOGRAMS.items():
        if layer[key]["counts"]:
            lines += [f"{name}: {title}", *_bars(layer[key]["edges"], layer[key]["counts"])]
    return lines


def _bars(edges: Sequence[float], counts: Sequence[int]) -> Iterator[str]:
    labels = edge_texts(edges)
    width, top = max(map(len, labels)), max(counts)
    digits = len(f"{top:,}")
    for low, high, count in zip(labels, labels[1:], counts, strict=False):
        bar = "█" * round(_BAR * count / top) or ("▏" if count else "")
        yield f"  {low:>{width}} … {high:<{width}}  {count:>{digits},}  {bar}".rstrip()


def _problems(problems: Sequence[str]) -> list[str]:
    if not problems:
        return ["integrity: no problem found"]
    return [f"integrity: {len(problems)} problems", *(f"  {problem}" for problem in problems)]
