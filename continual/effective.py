"""What entries count for now: their effective weights, as pruning sees them."""

import numpy as np

from ..learners import Memory
from ..memory.database import EMPTY, INITIAL


def effective_weights(memory: Memory) -> np.ndarray:
    """The size of each live entry, [N]: its coefficient times the larger of value norm and weight.

    Args:
      memory: one growing layer's state.
    """
    live = memory.database.column("created") != EMPTY
    result: np.ndarray = (np.abs(coefficients_of(memory)) * sizes_of(memory))[live]
    return result


def coefficients_of(memory: Memory) -> np.ndarray:
    """What momentum and decay have made of each slot's entry, [capacity]; of empty slots, any number."""
    created = memory.database.column("created")
    if memory.clock is None:
        return np.ones(len(created))
    by_step = np.concatenate([[memory.clock.initial], memory.clock.coefficients])
    coefficients: np.ndarray = by_step[np.maximum(created, INITIAL)]
    return coefficients


def sizes_of(memory: Memory) -> np.ndarray:
    """The larger of value norm and weight of each slot's entry, [capacity]."""
    sizes: np.ndarray = memory.database.column("value_norms")
    if memory.database.weighted:
        sizes = np.maximum(sizes, np.abs(memory.database.column("weights")))
    return sizes
