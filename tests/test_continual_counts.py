"""What happened to entries is summed up beyond what a database's own counters hold."""

from types import SimpleNamespace

import numpy as np
from lamina.continual.counts import EntryCounts
from lamina.memory.database import COUNTERS


def state(*counters: int) -> SimpleNamespace:
    """A state whose one layer has counted so much, of which its counters keep the last 32 bits."""
    held = np.array(counters, np.int64).astype(np.uint32).view(np.int32)
    return SimpleNamespace(memories={"readout": SimpleNamespace(database=SimpleNamespace(counters=held))})


def test_sums_go_on_where_counters_wrap() -> None:
    first = 2**31 - 2, 2**32 - 3, 5, *[0] * (len(COUNTERS) - 3)
    later = 2**31 + 7, 2**32 + 10, 5, *[1] * (len(COUNTERS) - 3)
    counts = EntryCounts(state(*first), {"readout": (2**40,) * len(COUNTERS)})
    for _ in range(2):  # the second time nothing has been gained
        [total] = counts.read(state(*later)).values()
        assert total == tuple(2**40 + now - before for now, before in zip(later, first, strict=True))
