"""What entries count for now: their effective weights, as pruning sees them."""

import numpy as np

from ..learners import Memory
from ..memory.database import EMPTY, INITIAL


def effective_weights(memory: Memory) -> np.ndarray:
    """The size of each live entry, [N]: its coefficient times the larger of value norm and weight.

    Args:
      memory: one growing layer's state.
    """
    database = memory.database
    created = database.column("created")
    live = created != EMPTY
    sizes: np.ndarray = database.column("value_norms")[live]
    if database.weighted:
        sizes = np.maximum(sizes, np.abs(database.column("weights")[live]))
    if memory.clock is None:
        return sizes
    coefficients = np.concatenate([[memory.clock.initial], memory.clock.coefficients])
    result: np.ndarray = np.abs(coefficients[np.maximum(created[live], INITIAL)]) * sizes
    return result
