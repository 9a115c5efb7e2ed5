"""Measures one part of `benchmarks.growth` in a process of its own.

    python -m benchmarks._growth appends|memory SIZE
    python -m benchmarks._growth start SIZE RUN_DIR

Prints one JSON object.
"""

import json
import resource
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lamina.cli import main as lamina
from lamina.memory import RBF, Decision, MemoryConfig, Occupancy, Rows, append, empty_database

from ._growing import Growing
from ._plan import Plan

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The sizes of the three parts."""

    entries: int  # appended one batch after the other
    width: int  # D = F of those
    batch: int  # entries of one append
    plan: Plan  # of the network whose memory is measured: it grows through all of `plan.entries`
    examples: int  # of the run that is started twice


def _plan(features: int, initial_capacity: int, entries: int) -> Plan:
    return Plan(
        features=features,
        examples=entries,
        initial_capacity=initial_capacity,
        entries=(entries,),
        rounds=0,
        blocks=1,
    )


SIZES = {
    # 3072 numbers an example: 4·(2·3072 + 3072 + 10) bytes in both layers, 3 GiB of slots.
    "full": Growth(entries=1_000_000, width=64, batch=64, plan=_plan(3072, 8192, 90_000), examples=1440),
    "quick": Growth(entries=100_000, width=64, batch=64, plan=_plan(3072, 1024, 12_000), examples=400),
    "tiny": Growth(entries=1_024, width=8, batch=16, plan=_plan(24, 128, 512), examples=64),
}


def appends(size: Growth) -> Figures:
    """Appends all entries, batch after batch, and waits for each.

    Returns:
      `by_capacity`: for every number of slots, how many appends were timed, and their least and median
      seconds. The first after a growth, which allocates and compiles, is in `growth_seconds`.
    """
    draw = np.random.default_rng(0)
    keys = jnp.asarray(draw.standard_normal((size.batch, size.width), np.float32))
    rows = Rows(keys, keys, None, jnp.arange(size.batch, dtype=jnp.int32))
    policy, occupancy = MemoryConfig(initial_capacity=16 * size.batch), Occupancy(0, 0)
    database = empty_database(policy.initial_capacity, size.width, size.width, weighted=False)
    everything, seconds, growths = Decision.everything(size.batch), {}, {}
    for step in range(1, size.entries // size.batch + 1):
        start = time.perf_counter()
        database, occupancy, _ = append(policy, RBF(1.0), database, occupancy, None, rows, everything, step)
        # Rows go into the last block; waiting for all the others would take time of its own.
        jax.block_until_ready((database.blocks[-1], database.entries))
        elapsed = time.perf_counter() - start
        if database.capacity in growths:
            seconds[database.capacity].append(elapsed)
        else:
            growths[database.capacity], seconds[database.capacity] = elapsed, []
    by_capacity = [
        {"capacity": c, "appends": len(s), "least_seconds": min(s), "median_seconds": float(np.median(s))}
        for c, s in seconds.items()
        if s
    ]
    return {
        "entries": int(database.entries),
        "by_capacity": by_capacity,
        "growth_seconds": list(growths.values()),
    }


def memory(size: Growth) -> Figures:
    """Grows a network's memories, trains at every capacity, and looks at the process after each growth.

    Returns:
      `empty_bytes`: peak resident memory of the process before there was a memory; `points`: `capacity`,
      `database_bytes` and `peak_rss_bytes` up to then; `compilations` of the training step.
    """
    jax.block_until_ready(jnp.ones(16) + 1)
    empty, growing, points, compilations = _peak_rss_bytes(), Growing(size.plan), [], 0
    while (entries := growing.databases["readout"].capacity) < size.plan.entries[-1]:
        # The next growth happens when the present slots are full.
        growing.fill(entries - size.plan.batch)
        for step in range(2):
            growing.learn(step)
        compilations += growing.learner.compilations
        growing.learner.drop_programs()  # as a run does when a memory has grown
        points.append(
            {
                "capacity": growing.databases["readout"].capacity,
                "database_bytes": sum(database.nbytes for database in growing.databases.values()),
                "peak_rss_bytes": _peak_rss_bytes(),
            }
        )
    return {"empty_bytes": empty, "points": points, "compilations": compilations}


def start(size: Growth, run_dir: str) -> Figures:
    """Runs an experiment and counts what the persistent compilation cache had and lacked."""
    events: Counter[str] = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rsplit("/", 1)[-1]]))
    began = time.perf_counter()
    limit = f"stream.limit={size.examples}"
    with redirect_stdout(sys.stderr):
        code = lamina(["run", "digits-online", "--run-dir", run_dir, "--set", limit])
    if code != 0:
        sys.exit(code)
    return {
        "hits": events["cache_hits"],
        "misses": events["cache_misses"],
        "seconds": time.perf_counter() - began,
    }


def _peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    part, name, *rest = sys.argv[1:]
    print(json.dumps({"appends": appends, "memory": memory, "start": start}[part](SIZES[name], *rest)))
