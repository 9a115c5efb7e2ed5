"""`summary.json`: what a finished run leaves for machines to read."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from ..durable import write_durably
from ..errors import FormatError, MissingDataError
from .rows import LayerRow, plain

SUMMARY_NAME = "summary.json"
_FORMAT_VERSION = 1
_PACKAGES = ("lamina", "jax", "jaxlib", "flax", "optax", "numpy", "zarr", "apache-beam")


@dataclass(frozen=True)
class Summary:
    """The figures of a finished run."""

    examples: int  # examples learnt from
    steps: int  # updates of the learner
    prequential_accuracy: float | None  # ratio, of the last phase; None for regression
    test_accuracy: float | None  # ratio, of the last held-out evaluation; None without one
    loss: float | None  # mean loss of the last held-out evaluation, else of the last interval
    layers: Mapping[str, LayerRow]  # entries, capacity, bytes and counts at the end, by layer
    wall_seconds: float  # time of the loop, all resumes included
    step_seconds: Mapping[str, float]  # wall time of a step: "p50" and "p95"
    peak_rss_bytes: int  # the process's largest resident memory
    compilations: int  # distinct shapes the training step was compiled for
    seed: int  # the one seed of the run
    versions: Mapping[str, str] = field(default_factory=dict)  # package name → version
    skipped_examples: int = 0  # bad examples passed over
    continual: Mapping[str, Any] | None = None  # phases, tasks, the accuracy matrix and what is read off it
    drifts: tuple[int, ...] = ()  # origins of the examples at which the drift detector gave a signal
    attribute_loss: float | None = None  # of texts: of a value in nats, in the last held-out evaluation
    attributes: Mapping[str, Mapping[str, float]] | None = None  # accuracy and loss by attribute; likewise
    # Of texts: "flops" and "bytes" (read) of predicting one more token at the end, by part of the network.
    costs: Mapping[str, Mapping[str, int]] | None = None
    format: int = _FORMAT_VERSION  # of this file

    def document(self) -> dict[str, Any]:
        """Returns the summary as JSON can hold it."""
        return dict(plain(asdict(self)))


def installed_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages a run's numbers depend on."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # used from a checkout that is not installed
    return versions


def write_summary(run_dir: Path, summary: Summary) -> Path:
    """Writes a run's summary durably.

    Args:
      run_dir: the run's folder.
      summary: its figures; NaN becomes null.

    Returns:
      The file's path.

    Raises:
      StorageError: the file system refused.
    """
    path = run_dir / SUMMARY_NAME
    text = json.dumps(summary.document(), indent=2, allow_nan=False, ensure_ascii=False)
    write_durably(path, text.encode() + b"\n")
    return path


def read_summary(run_dir: Path) -> Summary:
    """Reads the summary of a finished run.

    Args:
      run_dir: the run's folder.

    Raises:
      MissingDataError: the run has none: it is not finished.
      FormatError: the file is damaged or of a newer version.
    """
    path = run_dir / SUMMARY_NAME
    try:
        content = json.loads(path.read_bytes())
        version = content["format"]
    except FileNotFoundError:
        raise MissingDataError(f"no {SUMMARY_NAME} in {run_dir}: the run is not finished") from None
    except (ValueError, KeyError, TypeError):
        raise _damaged(path) from None
    if version != _FORMAT_VERSION:
        raise FormatError(f"{path} has format {version}, this version reads {_FORMAT_VERSION}; update Lamina")
    try:
        layers = {name: LayerRow(**layer) for name, layer in content.pop("layers").items()}
        drifts = tuple(content.pop("drifts", ()))
        return Summary(**content, layers=layers, drifts=drifts)
    except (KeyError, TypeError, AttributeError):
        raise _damaged(path) from None


def _damaged(path: Path) -> FormatError:
    names = ", ".join(entry.name for entry in fields(Summary))
    return FormatError(f"{path} is damaged: expected one JSON object with {names}")
