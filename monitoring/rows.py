"""The rows of a run's table, one dataclass a kind, with the unit and meaning of each column.

Columns whose names end in `_seconds` or `_per_second` come from the wall clock. All others are
reproducible: an interrupted and resumed run writes the same values as an uninterrupted one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = dict[str, Any]
"""A row as it stands in the table: a JSON object."""

STEP_PARTS = ("wait", "compute", "append", "maintain", "evaluate", "commit")
"""What the time of the loop is split into; the columns are `{part}_seconds`."""

LAYER_COUNTS = ("admitted", "merged", "rejected", "pruned", "evicted")
"""What can happen to entries and candidates; the columns count them since step 0."""

TEXT_COLUMNS = ("attribute_loss", "attributes", "no_knowledge_level")
"""Columns of evaluations that only texts have."""


@dataclass(frozen=True)
class LayerRow:
    """One growing layer at one step."""

    entries: int  # entries held now, the initial ones included
    capacity: int  # rows allocated for them
    bytes: int  # of the rows allocated in memory
    admitted: int = 0  # entries appended since step 0
    merged: int = 0  # candidates merged into a present entry since step 0
    rejected: int = 0  # candidates not admitted since step 0
    pruned: int = 0  # entries dropped as negligible since step 0
    evicted: int = 0  # entries dropped at the cap since step 0
    cold_entries: int = 0  # of the entries, those that are kept on disk only
    cold_bytes: int = 0  # of the rows that are on disk only
    pruning_bound: float = 0.0  # sum of the bounds on the change of the layer's output by prunings so far


@dataclass(frozen=True)
class StepRow:
    """One recorded interval of steps: what holds at its end and what happened since the last row."""

    step: int  # updates since step 0
    examples: int  # examples learnt from since step 0
    offset: int  # stream position after the interval's last example
    phase: str  # name of the phase
    prequential_accuracy: float | None  # ratio, over the phase so far; None for regression
    window_accuracy: float | None  # ratio, since the previous row; None for regression
    loss: float | None  # mean loss before learning, since the previous row
    layers: Mapping[str, LayerRow]  # by the layer's name
    skipped_examples: int  # bad examples left out since step 0
    compilations: int  # distinct shapes the training step was compiled for since step 0
    wait_seconds: float  # waiting for data, since the previous row
    compute_seconds: float  # predicting and gradients, since the previous row
    append_seconds: float  # appending entries, since the previous row
    maintain_seconds: float  # pruning, merging, evicting, since the previous row
    evaluate_seconds: float  # held-out evaluation, since the previous row
    commit_seconds: float  # committing to disk, since the previous row
    wall_seconds: float  # all of the loop's time since the previous row
    examples_per_second: float  # examples since the previous row / wall_seconds
    drifts: int = 0  # times that the drift detector gave a signal since step 0

    def row(self) -> Row:
        """Returns the table's row."""
        layers = {name: vars(layer) for name, layer in self.layers.items()}
        return {"kind": "step", **vars(self), "layers": layers}


@dataclass(frozen=True)
class EvaluationRow:
    """One evaluation on held-out data of one task."""

    step: int  # updates since step 0
    examples: int  # examples learnt from since step 0
    phase: str  # the phase after which, or within which, the evaluation was made
    task: str  # name of the held-out task
    accuracy: float | None  # ratio; None for regression
    loss: float | None  # mean loss
    evaluated_examples: int  # held-out examples
    evaluation_seconds: float  # time the evaluation took
    attribute_loss: float | None = None  # of a value in nats, summed over its words; None without texts
    attributes: Mapping[str, Mapping[str, float]] | None = None  # accuracy and loss by attribute; likewise
    # Attribute loss of somebody who knows how often values occur, and nobody; None where it is not known.
    no_knowledge_level: float | None = None

    def row(self) -> Row:
        """Returns the table's row; what only texts have is left out without them."""
        told = {
            name: value for name, value in vars(self).items() if value is not None or name not in TEXT_COLUMNS
        }
        return {"kind": "evaluation", **told}


def reproducible(row: Mapping[str, Any]) -> Row:
    """Returns a row without its wall-clock columns.

    Args:
      row: a row of either kind.

    Example:
      >>> reproducible({"kind": "step", "step": 3, "wait_seconds": 0.1, "examples_per_second": 9.0})
      {'kind': 'step', 'step': 3}
    """
    return {name: value for name, value in row.items() if not _is_wall_clock(name)}


def plain(value: Any) -> Any:
    """Returns a value as JSON can hold it: numpy scalars as Python's, NaN and ±Inf as None.

    Example:
      >>> plain({"loss": np.float32("nan"), "step": np.int32(4)})
      {'loss': None, 'step': 4}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _is_wall_clock(name: str) -> bool:
    return name.endswith(("_seconds", "_per_second"))
