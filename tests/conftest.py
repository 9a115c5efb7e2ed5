"""Eight CPU devices for every test; what is not told otherwise still uses one.

Compiled programs are kept on disk as a command keeps them, and stay few in memory. They are hardly optimised,
in processes that tests start neither: most run for milliseconds, and optimising them took a quarter of the
time of all tests. What is compared with the reference vectors is compiled as users' programs are
(`test_learners_conformance.py`).
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # before JAX is imported

import jax
import pytest
from lamina.commands.programs import keep_programs

jax.config.update("jax_num_cpu_devices", 8)
keep_programs()
MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Drops compiled programs after a module that leaves many.

    Each takes several memory maps. Linux gives a process 65,530 of them, and XLA dies of a segmentation fault
    where it gets no more.
    """
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 16_000:
        jax.clear_caches()
        gc.collect()
