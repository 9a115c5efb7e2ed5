"""What happened to each layer's entries, in sums that never wrap."""

from collections.abc import Mapping

import numpy as np

from ..learners import State
from ..memory.database import COUNTERS
from ..monitoring import LayerRow

Totals = Mapping[str, tuple[int, ...]]  # by layer, in the order of COUNTERS


class EntryCounts:
    """Sums up what the databases count, whose own counters wrap around at 2³².

    Args:
      state: the learner's state at the moment that `totals` hold for.
      totals: the sums so far.
    """

    def __init__(self, state: State, totals: Totals) -> None:
        self._last = _counters(state)
        self._totals = dict(totals)

    def read(self, state: State) -> Totals:
        """The sums up to a state; each is read before any counter has gained 2³²."""
        now = _counters(state)
        for name, counters in now.items():
            before = self._totals.get(name, (0,) * len(COUNTERS))
            self._totals[name] = tuple(
                total + (count - last) % 2**32
                for total, count, last in zip(before, counters, self._last[name], strict=True)
            )
        self._last = now
        return dict(self._totals)


def layer_rows(state: State, totals: Totals, pruning: Mapping[str, float]) -> dict[str, LayerRow]:
    """Each layer's entries, capacity, bytes and counts, and the sum of its prunings' bounds."""
    return {
        name: LayerRow(
            entries=memory.entries,
            capacity=memory.database.capacity + (0 if memory.cold is None else memory.cold.rows),
            bytes=memory.database.nbytes,
            cold_entries=0 if memory.cold is None else memory.cold.entries,
            cold_bytes=0 if memory.cold is None else memory.cold.nbytes,
            pruning_bound=pruning.get(name, 0.0),
            **dict(zip(COUNTERS, totals[name], strict=True)),
        )
        for name, memory in state.memories.items()
    }


def _counters(state: State) -> dict[str, list[int]]:
    return {name: np.asarray(memory.database.counters).tolist() for name, memory in state.memories.items()}
