"""What thresholds would cost in a run's committed memory, told without changing it.

Pruning at ε removes the entries whose effective weight stays below ε from now on; for kernels with φ ≤ 1 the
layer's output then changes by at most the sum of their effective value norms. An admission threshold τ would
have refused the entries whose nearest earlier key is no farther than τ; refusing some makes the others'
distances larger, so counting them by the keys as they are gives the most that could have gone.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..learners import LearnerConfig
from ..learners.schedules import highest
from ..memory.coefficients import Clocks
from ..memory.database import INITIAL
from ..memory.store import Store
from ..memory.table import Table
from ..monitoring.inspect import layer_names, table_names
from .checkpoint import load_clocks
from .config import parse_config, read_config
from .new_folder import CONFIG
from .origin import MEMORY

_POINTS = 129  # of a slider
_MOST_SAMPLED = 256  # entries whose nearest earlier key is looked for
_FEWEST_SAMPLED = 16
_WORK = 2e10  # multiplications that looking for them may take
_CHUNK_ROWS = 8192
_BOUNDED = {"rbf", "laplace", "matern32", "matern52", "rational_quadratic", "cosine", "decoder"}  # φ ≤ 1


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
    learner = parse_config(read_config(run_dir / CONFIG)).learner
    if not (run_dir / MEMORY).exists():
        return {"layers": {}}
    with Store.open(run_dir / MEMORY, check=False) as store:
        if store.head is None:
            return {"layers": {}}
        with store.generation() as generation:
            clocks = load_clocks(generation)
            layers = {
                name: _layer(
                    [generation.tables[each] for each in table_names(generation, name)],
                    _ahead(clocks.get(name), learner, generation.step),
                    bounded=learner.kind in _BOUNDED,
                )
                for name in layer_names(generation)
            }
    return {"layers": layers}


def _ahead(clocks: Clocks | None, learner: LearnerConfig, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest coefficients of values and weights from now on, by creation step, [step + 1] each."""
    if clocks is None:
        return np.ones(step + 1), np.ones(step + 1)
    most = highest(getattr(learner, "momentum", 0.0))
    ahead = clocks.bounded(most, most if getattr(learner, "momentum_on", "both") == "both" else 0.0)
    values, weights = (
        np.abs(np.concatenate([[clock.initial], clock.coefficients]))
        for clock in (ahead.values, ahead.weights)
    )
    return values, weights


def _layer(tables: Sequence[Table], ahead: tuple[np.ndarray, np.ndarray], *, bounded: bool) -> dict[str, Any]:
    created, alive = _column(tables, "created"), np.concatenate([table.alive() for table in tables])
    rows = np.flatnonzero(alive & (created > INITIAL))  # the initial function is never dropped
    of_values, of_weights = (coefficients[created[rows]] for coefficients in ahead)
    sizes = norms = of_values * _column(tables, "value_norms")[rows]
    if "weights" in tables[0].columns:
        sizes = np.maximum(norms, of_weights * np.abs(_column(tables, "weights")[rows]))
    shares = norms if bounded else sizes / max(float(sizes.sum()), np.finfo(float).tiny)
    created = np.where(alive, created, np.iinfo(created.dtype).max)  # a dead row is earlier than nothing
    return {
        "entries": len(rows),
        "entry_bytes": sum(table.nbytes for table in tables) // max(len(created), 1),
        "bounded": bounded,
        "epsilon": _curve(sizes, shares, 1.0) if len(rows) else None,
        "tau": _novelty(tables, rows, created, shares) if len(rows) > 1 else None,
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
    tables: Sequence[Table], rows: np.ndarray, created: np.ndarray, shares: np.ndarray
) -> dict[str, Any] | None:
    """The curve of τ, from a sample of entries that stands for all."""
    features = tables[0].columns["keys"][1][0]
    most = int(np.clip(_WORK / (2 * len(created) * features), _FEWEST_SAMPLED, _MOST_SAMPLED))
    places = np.arange(len(rows))
    if len(rows) > most:
        places = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
    nearest = _nearest_earlier(tables, rows[places], created)
    known = np.isfinite(nearest)  # those of the first step have no earlier key
    if not known.any():
        return None
    return _curve(nearest[known], shares[places[known]], len(rows) / len(places))


def _nearest_earlier(tables: Sequence[Table], chosen: np.ndarray, created: np.ndarray) -> np.ndarray:
    """Distance of each chosen row's key to the nearest key of an earlier step, [S]; ∞ without one."""
    found = [keys[chosen[_within(chosen, start, len(keys))] - start] for start, keys in _keys(tables)]
    queries = np.concatenate(found).astype(np.float64)
    steps, square = created[chosen], np.full(len(chosen), np.inf)
    query_norms = np.sum(queries * queries, axis=1)
    for start, block in _keys(tables):
        keys = block.astype(np.float64)
        distances = query_norms[:, None] + np.sum(keys * keys, axis=1) - 2 * (queries @ keys.T)
        earlier = created[start : start + len(keys)] < steps[:, None]
        square = np.minimum(square, np.where(earlier, distances, np.inf).min(axis=1))
    nearest: np.ndarray = np.sqrt(np.maximum(square, 0.0))
    return nearest


def _keys(tables: Sequence[Table]) -> Iterator[tuple[int, np.ndarray]]:
    """All keys in blocks [n, D], each with the place of its first row among all tables' rows."""
    first = 0
    for table in tables:
        for start in range(0, table.rows, _CHUNK_ROWS):
            yield first + start, table.read("keys", start, min(start + _CHUNK_ROWS, table.rows))
        first += table.rows


def _within(chosen: np.ndarray, start: int, rows: int) -> np.ndarray:
    inside: np.ndarray = (chosen >= start) & (chosen < start + rows)
    return inside


def _column(tables: Sequence[Table], name: str) -> np.ndarray:
    return np.concatenate([table.read(name) for table in tables])
