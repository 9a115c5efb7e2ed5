"""Measures one strategy of `benchmarks.pass` in a process of its own, so that its memory can be told.

    python -m benchmarks._measure growing SIZE
    python -m benchmarks._measure fixed|fixed_lean SIZE OPTIMISER

Prints one JSON object.
"""

import json
import resource
import sys

from ._fixed import Fixed
from ._fixed import measure as measure_fixed
from ._growing import Growing
from ._growing import measure as measure_growing
from ._plan import PLANS

_STEPS = 4  # from the empty memory at the tiny size, to see that all strategies predict the same


def main(strategy: str, size: str, *optimiser: str) -> None:
    learner: Growing | Fixed
    if strategy == "growing":
        figures = measure_growing(PLANS[size])
        learner = Growing(PLANS["tiny"])
    else:
        lean = strategy == "fixed_lean"
        figures = measure_fixed(PLANS[size], lean=lean, optimiser=optimiser[0])
        learner = Fixed(PLANS["tiny"], lean=lean, optimiser=optimiser[0])
    figures["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for step in range(_STEPS):
        outputs = learner.learn(step)
    print(json.dumps({**figures, "outputs": outputs.tolist()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
