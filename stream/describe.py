"""What a log holds, in a few lines, for people and programs."""

from pathlib import Path
from typing import Any

from .checks import GOOD
from .log import Log, open_log
from .schema import Array
from .tokenizer import Tokenizer, documents_of


def describe_log(path: str | Path, examples: int = 5) -> dict[str, Any]:
    """Describes a log.

    Args:
      path: the log's folder.
      examples: how many of the first stored examples are summarised.

    Returns:
      Plain JSON values: `path`, `source`, `split`, `seed`, `schema`, `segment_length`, `total` (None:
      without end), `segments` (in all), `segments_present`, `bytes` on disk, and `first`, a list of
      `offset`, `good`, and `y`, `label` (with classes), `x_min`, `x_mean`, `x_max`; or, of text, `text`, a
      string per document.

    Raises:
      MissingDataError, FormatError: there is no log, or it is damaged.
    """
    log = open_log(Path(path))
    present = log.present()
    return {
        "path": str(log.path),
        "source": log.content["source"],
        "split": log.content["split"],
        "seed": log.seed,
        "schema": log.schema.to_json(),
        "segment_length": log.segment_length,
        "total": log.total,
        "segments": log.segments,
        "segments_present": len(present),
        "bytes": sum(log.segment_path(segment).stat().st_size for segment in present),
        "first": _summaries(log, present[0], examples) if present else [],
    }


def _summaries(log: Log, segment: int, count: int) -> list[dict[str, Any]]:
    arrays = log.read_segment(segment)
    start, stop = log.span(segment)
    return [
        {
            "offset": start + row,
            **_content(log, arrays["x"][row], arrays["y"][row]),
            "good": bool(arrays["problems"][row] == GOOD),
        }
        for row in range(min(count, stop - start))
    ]


def _content(log: Log, x: Array, y: Array) -> dict[str, Any]:
    if log.schema.vocabulary is not None:
        return {"text": documents_of(x, Tokenizer(log.schema.vocabulary))}
    return {
        **_target(log, y),
        "x_min": float(x.min()),
        "x_mean": float(x.mean(dtype="float64")),
        "x_max": float(x.max()),
    }


def _target(log: Log, y: Array) -> dict[str, Any]:
    classes = log.schema.classes
    if classes is None:
        return {"y": y.tolist()}
    label = int(y)
    return {"y": label, "label": classes[label] if 0 <= label < len(classes) else None}
