"""What entries count for now: their effective weights, as pruning sees them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..learners import Memory
from ..memory.cold_stream import WEIGHING, stream
from ..memory.database import EMPTY, INITIAL


def effective_weights(memory: Memory) -> Iterator[np.ndarray]:
    """The size of each live entry: its coefficient times the larger of value norm and weight.

    Args:
      memory: one growing layer's state.

    Yields:
      [n] of the entries in memory, then of each chunk of those on disk.
    """
    for columns in columns_of(memory, WEIGHING):
        yield sizes_of(memory, columns)[columns["created"] != EMPTY]


def columns_of(memory: Memory, names: Sequence[str]) -> Iterator[Mapping[str, np.ndarray]]:
    """Columns of all slots, those that the memory has: first in memory, then of each chunk on disk."""
    database = memory.database
    present = [name for name in names if name != "weights" or database.weighted]
    yield {name: database.column(name) for name in present}
    if memory.cold is not None:
        for _, columns in stream(memory.cold, present):
            yield columns


def coefficients_of(memory: Memory, created: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What momentum and decay have made of values and weights, [n] each; of empty slots, anything."""
    if memory.clocks is None:
        return np.ones(len(created)), np.ones(len(created))
    values, weights = (
        np.concatenate([[clock.initial], clock.coefficients])[np.maximum(created, INITIAL)]
        for clock in (memory.clocks.values, memory.clocks.weights)
    )
    return values, weights


def sizes_of(memory: Memory, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The effective size of each slot's entry, [n], from the columns of `WEIGHING`."""
    of_values, of_weights = coefficients_of(memory, columns["created"])
    sizes: np.ndarray = np.abs(of_values) * columns["value_norms"]
    if "weights" in columns:
        sizes = np.maximum(sizes, np.abs(of_weights * columns["weights"]))
    return sizes
