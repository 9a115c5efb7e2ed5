"""What thresholds would cost in a run's committed memory, told without changing it.

Pruning at ε removes the entries whose effective weight stays below ε from now on; for kernels with φ ≤ 1 the
layer's output then changes by at most the sum of their effective value norms. An admission threshold τ would
have refused the entries whose nearest earlier key is no farther than τ; refusing some makes the others'
distances larger, so counting them by the keys as they are gives the most that could have gone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..memory.database import INITIAL
from ..memory.generation import Generation
from ..memory.store import Store
from ..memory.table import Table
from .checkpoint import load_clocks
from .config import read_config
from .new_folder import CONFIG
from .origin import MEMORY

_POINTS = 129  # of a slider
_MOST_SAMPLED = 256  # entries whose nearest earlier key is looked for
_FEWEST_SAMPLED = 16
_WORK = 2e10  # multiplications that looking for them may take
_CHUNK_ROWS = 8192
_BOUNDED = {"rbf", "laplace", "matern32", "matern52", "rational_quadratic", "cosine"}  # φ ≤ 1


def what_if(run_dir: Path) -> dict[str, Any]:
    """Tells per layer how many entries each threshold would cost.

    Args:
      run_dir: the run's folder; it is only read.

    Returns:
      `layers`: by name, `entries` (but those of the initial function), `entry_bytes`, `bounded` (whether
      `bounds` limit the change of the layer's output, else they are the share of all entries' size), and for
      `epsilon` and `tau` the `thresholds` in order, with `counts` and `bounds` of what each would cost; None
      where there is nothing to tell. No layers before the first commit.

    Raises:
      MissingDataError: there is no run.
      FormatError: its memory is damaged.
    """
    config = read_config(run_dir / CONFIG)
    learner = config.get("learner") or {}
    if not (run_dir / MEMORY).exists():
        return {"layers": {}}
    with Store.open(run_dir / MEMORY, check=False) as store:
        if store.head is None:
            return {"layers": {}}
        with store.generation() as generation:
            clocks = load_clocks(generation)
            momentum = float(learner.get("momentum") or 0.0)
            layers = {
                name: _layer(table, _bounds_by_step(clocks.get(name), momentum, generation), learner)
                for name, table in generation.tables.items()
            }
    return {"layers": layers}


def _bounds_by_step(clock: Any, momentum: float, generation: Generation) -> np.ndarray:
    """The largest coefficient that entries of each creation step will have from now on, [steps + 1]."""
    if clock is None:
        return np.ones(generation.step + 1)
    return np.concatenate([[clock.initial], clock.future_bounds(momentum)])


def _layer(table: Table, coefficients: np.ndarray, learner: Mapping[str, Any]) -> dict[str, Any]:
    created, alive = table.read("created"), table.alive()
    rows = np.flatnonzero(alive & (created > INITIAL))  # the initial function is never dropped
    scale = np.abs(coefficients[created[rows]])
    norms = scale * table.read("value_norms")[rows]
    sizes = norms
    if "weights" in table.columns:
        sizes = np.maximum(norms, scale * np.abs(table.read("weights")[rows]))
    bounded = learner.get("kind") in _BOUNDED
    shares = norms if bounded else sizes / max(float(sizes.sum()), np.finfo(float).tiny)
    return {
        "entries": len(rows),
        "entry_bytes": table.nbytes // max(table.rows, 1),
        "bounded": bounded,
        "epsilon": _curve(sizes, shares, 1.0) if len(rows) else None,
        "tau": _novelty(table, rows, created, shares) if len(rows) > 1 else None,
    }


def _curve(measures: np.ndarray, shares: np.ndarray, weight: float) -> dict[str, Any]:
    """Counts and sums of what measures no more than each of some thresholds, from none to all."""
    order = np.argsort(measures, kind="stable")
    points = np.unique(np.linspace(0, len(order), min(_POINTS, len(order) + 1)).round().astype(np.int64))
    summed = np.concatenate([[0.0], np.cumsum(shares[order], dtype=np.float64)])
    ordered = np.concatenate([[0.0], measures[order]])
    return {
        "thresholds": ordered[points].astype(np.float64).tolist(),
        "counts": np.round(points * weight).astype(np.int64).tolist(),
        "bounds": (summed[points] * weight).tolist(),
        "sampled": len(order),
    }


def _novelty(
    table: Table, rows: np.ndarray, created: np.ndarray, shares: np.ndarray
) -> dict[str, Any] | None:
    """The curve of τ, from a sample of entries that stands for all."""
    features = table.columns["keys"][1][0]
    most = int(np.clip(_WORK / (2 * table.rows * features), _FEWEST_SAMPLED, _MOST_SAMPLED))
    places = np.arange(len(rows))
    if len(rows) > most:
        places = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
    nearest = _nearest_earlier(table, rows[places], created)
    known = np.isfinite(nearest)  # those of the first step have no earlier key
    if not known.any():
        return None
    return _curve(nearest[known], shares[places[known]], len(rows) / len(places))


def _nearest_earlier(table: Table, chosen: np.ndarray, created: np.ndarray) -> np.ndarray:
    """Distance of each chosen row's key to the nearest live key of an earlier step, [S]; ∞ without one."""
    queries = _rows(table, "keys", chosen).astype(np.float64)
    steps, alive = created[chosen], table.alive()
    square = np.full(len(chosen), np.inf)
    query_norms = np.sum(queries * queries, axis=1)
    for start in range(0, int(chosen[-1]) + 1, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, table.rows)
        keys = table.read("keys", start, stop).astype(np.float64)
        found = query_norms[:, None] + np.sum(keys * keys, axis=1) - 2 * (queries @ keys.T)
        earlier = alive[start:stop] & (created[start:stop] < steps[:, None])
        square = np.minimum(square, np.where(earlier, found, np.inf).min(axis=1))
    distances: np.ndarray = np.sqrt(np.maximum(square, 0.0))
    return distances


def _rows(table: Table, column: str, chosen: np.ndarray) -> np.ndarray:
    """Some rows of a column, in ascending order, reading each stretch of rows once."""
    parts = []
    for start in range(0, int(chosen[-1]) + 1, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, table.rows)
        here = chosen[(chosen >= start) & (chosen < stop)]
        if len(here):
            parts.append(table.read(column, start, stop)[here - start])
    return np.concatenate(parts)
