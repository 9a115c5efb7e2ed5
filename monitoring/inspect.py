"""`lamina inspect`: what a run's folder holds, as one dictionary that JSON can carry.

The figures of the memory come from the last commit, read through the store. The report shows the same
dictionary, so the two always agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LaminaError
from ..memory.generation import Generation
from ..memory.table import Table
from .history import History
from .rows import LAYER_COUNTS, plain
from .run_view import RunView
from .table import TABLE_NAME

_BINS = 12
_SAME = 1e-5  # relative spread below which float32 values count as one


def inspect_run(run_dir: Path, deep: bool = False) -> dict[str, Any]:
    """Reads what a run's folder holds, also while the run goes on.

    Args:
      run_dir: the run's folder.
      deep: read every chunk of the memory and check its checksum; else names and sizes only.

    Returns:
      `run`, `path`, `state` ("running", "interrupted", "finished"), `config`, the last commit's
      `generation`, `step`, `examples` and `offset` (None before the first commit), `layers` (name →
      figures and histograms of the entries at the last commit), `totals` over the layers, `recorded`
      (the table's last step row, which may be later than the commit; None without one),
      `evaluations` (the latest row of each task), `predictions` (how many records), `summary` (None
      unless finished) and `problems` (one line each, empty if all is well).

    Raises:
      MissingDataError: the folder is not a run.
      FormatError: its configuration is damaged.
    """
    view, history = RunView(run_dir), History(run_dir / TABLE_NAME)
    history.update()
    return inspect_with(view, history, read_memory(run_dir, deep))


@dataclass(frozen=True)
class MemoryFindings:
    """What the last commit holds; read again only when there is another."""

    layers: dict[str, Any]  # by name, figures and histograms
    committed: dict[str, Any]  # generation, step, examples, offset; empty before the first commit
    problems: list[str]


def read_memory(run_dir: Path, deep: bool = False) -> MemoryFindings:
    """Reads a run's last commit.

    Args:
      run_dir: the run's folder.
      deep: also check every chunk's checksum.

    Raises:
      MissingDataError: the folder is not a run.
    """
    found = _Findings(RunView(run_dir))
    layers, commit = found.memory(deep)
    return MemoryFindings(layers, commit, found.problems)


def inspect_with(view: RunView, history: History, memory: MemoryFindings) -> dict[str, Any]:
    """Does what `inspect_run` does with what was read of the table and the memory before.

    Args:
      view: the run's folder.
      history: its table.
      memory: its last commit.
    """
    found = _Findings(view)
    found.problems += [*history.problems, *memory.problems]
    layers, commit = memory.layers, memory.committed
    found.compare(layers, commit)
    predictions = found.attempt(view.predictions, default=None)
    result = {
        "run": view.name(),
        "path": str(view.path),
        "state": str(found.attempt(lambda: view.state(commit.get("step", 0)), default="damaged")),
        "config": view.config(),
        "generation": commit.get("generation"),
        "step": commit.get("step"),
        "examples": commit.get("examples"),
        "offset": commit.get("offset"),
        "layers": layers,
        "totals": _totals(layers),
        "recorded": history.last,
        "evaluations": list({row["task"]: row for row in history.evaluations}.values()),
        "predictions": None if predictions is None else len(predictions),
        "summary": found.attempt(partial(_summary, view), default=None),
        "problems": list(dict.fromkeys(found.problems)),  # a damaged file can be met twice
    }
    return dict(plain(result))


def histogram(values: NDArray[Any], bins: int = _BINS) -> dict[str, list[float]]:
    """Counts values in equal bins from the smallest to the largest.

    Args:
      values: `[n]` numbers; those that are not finite are left out.
      bins: at most this many; whole numbers get bins of whole width.

    Returns:
      `edges` (one more than counts; empty if there is no value) and `counts`.

    Example:
      >>> histogram(np.array([0, 0, 1, 3]), bins=2)
      {'edges': [0.0, 2.0, 4.0], 'counts': [3, 1]}
    """
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if finite.size == 0:
        return {"edges": [], "counts": []}
    low, high = finite.min().item(), finite.max().item()
    if values.dtype.kind in "iu":
        width = max(1, -(-(high - low + 1) // bins))
        edges = np.arange(low, high + width + 1, width, dtype=np.float64)
    elif high - low > _SAME * max(abs(low), abs(high)):
        edges = np.linspace(low, high, bins + 1)
    else:  # one value, but for rounding (the norms of normalised keys)
        edges = np.array([low, low + max(abs(low), 1.0) * 1e-3])
    counts, _ = np.histogram(finite, edges)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def disk_bytes(generation: Generation, layer: str) -> int:
    """Returns the bytes of all files that hold a layer's rows in one commit."""
    folders = [generation.path / "tables" / name for name in table_names(generation, layer)]
    files = [path for folder in folders for path in folder.rglob("*")]
    return sum(path.stat().st_size for path in files if path.is_file())


def layer_names(generation: Generation) -> list[str]:
    """Returns the growing layers of one commit: its tables, but for those of entries kept on disk only."""
    layers = generation.meta.get("layers", {}).values()
    cold = {layer["cold"]["table"] for layer in layers if "cold" in layer}
    return [name for name in generation.tables if name not in cold]


class _Findings:
    """Collects figures and, instead of failing, the problems met on the way."""

    def __init__(self, view: RunView) -> None:
        self.view = view
        self.problems: list[str] = []

    def attempt(self, read: Callable[[], Any], default: Any) -> Any:
        """Returns what `read` returns, or the default and a problem."""
        try:
            return read()
        except LaminaError as error:
            self.problems.append(str(error))
            return default

    def memory(self, deep: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads the last commit: figures per layer, and where the run stood."""
        store = self.attempt(self.view.memory, default=None)
        if store is None:
            return {}, {}
        with store:
            self.problems += store.verify(deep=deep)
            if store.head is None:
                return {}, {}
            generation = self.attempt(store.generation, default=None)
            if generation is None:
                return {}, {}
            with generation:
                return self._layers(generation), _commit(generation)

    def _layers(self, generation: Generation) -> dict[str, Any]:
        layers = {
            name: self.attempt(partial(_layer, generation, name), default=None)
            for name in layer_names(generation)
        }
        return {name: layer for name, layer in layers.items() if layer is not None}

    def compare(self, layers: Mapping[str, Any], commit: Mapping[str, Any]) -> None:
        """Compares the table's row of the committed step, if it has one, with the memory."""
        step = commit.get("step")
        row = None if step is None else self.attempt(partial(self.view.step_row, step), default=None)
        for name, layer in layers.items():
            recorded = row["layers"].get(name, {}).get("entries") if row else None
            if recorded is not None and recorded != layer["entries"]:
                self.problems.append(
                    f"layer {name} at step {step}: {TABLE_NAME} records {recorded} entries, "
                    f"the memory holds {layer['entries']}; one of them was changed by hand"
                )


def _commit(generation: Generation) -> dict[str, Any]:
    return {
        "generation": generation.head.generation,
        "step": generation.step,
        "examples": generation.meta.get("examples"),
        "offset": generation.meta.get("offset"),
    }


def _layer(generation: Generation, name: str) -> dict[str, Any]:
    tables = [generation.tables[each] for each in table_names(generation, name)]
    committed = generation.meta.get("layers", {}).get(name, {})
    cold = committed.get("cold", {"entries": 0, "slots": 0, "bytes": 0})
    capacity = committed.get("capacity")
    created = _column(tables, "created")
    return {
        "entries": len(created),
        "initial_entries": int((created == 0).sum()),
        "capacity": None if capacity is None else capacity + cold["slots"],
        "bytes": committed.get("bytes"),
        "cold_entries": cold["entries"],
        "cold_bytes": cold["bytes"],
        "disk_bytes": disk_bytes(generation, name),
        **_counts(generation.meta.get("totals", {}).get(name), committed.get("counters")),
        "pruning_bound": generation.meta.get("pruning", {}).get(name, 0.0),
        "ages": histogram(generation.step - created),
        "key_norms": histogram(np.sqrt(_column(tables, "key_norms"))),
        "value_norms": histogram(_column(tables, "value_norms")),
    }


def _counts(totals: list[int] | None, counters: list[int] | None) -> dict[str, int | None]:
    """Names the counts: the run's own totals, else those of the database, which wrap at 32 bits."""
    if totals is None and counters is not None:
        totals = [count % 2**32 for count in counters]
    if totals is None:
        return dict.fromkeys(LAYER_COUNTS)
    return dict(zip(LAYER_COUNTS, totals, strict=True))


def table_names(generation: Generation, layer: str) -> list[str]:
    """Returns the tables that hold a layer's entries: its cold part's, if it has one, then its own."""
    cold = generation.meta.get("layers", {}).get(layer, {}).get("cold")
    return [layer] if cold is None else [cold["table"], layer]


def _column(tables: list[Table], name: str) -> NDArray[Any]:
    return np.concatenate([table.read(name)[table.alive()] for table in tables])


def _totals(layers: Mapping[str, Mapping[str, Any]]) -> dict[str, int | None]:
    names = (
        "entries",
        "initial_entries",
        "capacity",
        "bytes",
        "cold_entries",
        "cold_bytes",
        "disk_bytes",
        *LAYER_COUNTS,
    )
    return {name: _sum([layer[name] for layer in layers.values()]) for name in names}


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _summary(view: RunView) -> dict[str, Any] | None:
    summary = view.summary()
    return None if summary is None else summary.document()
