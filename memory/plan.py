"""How retrieval reads a block: which way round its scores lie, how many entries at a time, and what is kept.

A block is read whole, or in chunks of equal size and a shorter last one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .orientation import ENTRIES_FIRST, QUERIES_FIRST, Orientation

SCORES_BUDGET_BYTES = 2**28  # of one retrieval, by default

_CHUNK_BYTES = 2**21  # scores of one chunk: what the caches of two cores hold
_LEAST_CHUNK = 256  # entries; with fewer, adding up the chunks' answers costs as much as the answers
_FEW_QUERIES = 32  # per product of up to so many queries, reading the keys is what takes the time


@dataclass(frozen=True)
class Plan:
    """How to read the blocks of a database."""

    orientation: Orientation
    chunk: int  # entries scored at once
    saves: bool  # whether the backward pass gets the scores of the forward pass, or computes them again


def plan_reading(
    entries: int, queries: tuple[int, ...], *, itemsize: int, kept: int, budget_bytes: int
) -> Plan:
    """Chooses from shapes alone, by what was measured (see `benchmarks.retrieval`).

    Args:
      entries: slots of all blocks on one device, N.
      queries: their shape, (B, D).
      itemsize: bytes of a number.
      kept: arrays [N, B] that the backward pass wants of the forward pass.
      budget_bytes: most bytes of scores at any time.
    """
    batch = queries[0]
    per_entry = batch * itemsize
    saves = kept * entries * per_entry <= budget_bytes
    fits = max(1, budget_bytes // per_entry)
    if batch <= _FEW_QUERIES:
        return Plan(ENTRIES_FIRST, fits, saves)
    return Plan(QUERIES_FIRST, min(fits, max(_LEAST_CHUNK, _CHUNK_BYTES // per_entry)), saves)


def over_chunks(
    function: Callable[[Any, Any, Any], tuple[Any, Any]],
    first: Any,
    rows: Any,
    chunk: int,
    given: list[Any] | None = None,
) -> tuple[Any, list[Any]]:
    """Runs `carry, result = function(carry, part of rows, given)` over the chunks of a block, in order.

    Args:
      function: what is done with a chunk.
      first: the carry at the start.
      rows: arrays [n, …].
      chunk: rows of a chunk.
      given: what an earlier `over_chunks` of the same rows returned, if its results are wanted.

    Returns:
      The last carry, and the results: one item for the equal chunks, stacked, and one for a shorter rest.
    """
    carry, results = first, []
    for number, stretch in enumerate(_stretches(_length(rows), chunk)):
        known = None if given is None else given[number]
        carry, result = _over_stretch(function, carry, rows, stretch, known)
        results.append(result)
    return carry, results


def unchunk(results: list[Any]) -> Any:
    """The results of `over_chunks` as arrays [n, …], where each was one row per row of its chunk."""
    return jax.tree.map(
        lambda *parts: jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in parts]), *results
    )


class _Stretch(NamedTuple):
    """Consecutive chunks of equal size."""

    start: int
    size: int
    times: int


def _stretches(rows: int, chunk: int) -> list[_Stretch]:
    count, rest = divmod(rows, chunk)
    stretches = [_Stretch(0, chunk, count), _Stretch(count * chunk, rest, 1)]
    return [stretch for stretch in stretches if stretch.size * stretch.times > 0]


def _over_stretch(
    function: Callable[[Any, Any, Any], tuple[Any, Any]], carry: Any, rows: Any, stretch: _Stretch, given: Any
) -> tuple[Any, Any]:
    def part(start: Any) -> Any:
        # Not sliced where it is all there is: a slice would be copied.
        if stretch.size == _length(rows):
            return rows
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, stretch.size), rows)

    if stretch.times == 1:
        carry, result = function(carry, part(stretch.start), jax.tree.map(lambda x: x[0], given))
        return carry, jax.tree.map(lambda x: x[None], result)

    def step(carry: Any, at: tuple[jax.Array, Any]) -> tuple[Any, Any]:
        return function(carry, part(at[0]), at[1])

    starts = stretch.start + stretch.size * jnp.arange(stretch.times)
    return jax.lax.scan(step, carry, (starts, given))


def _length(rows: Any) -> int:
    return int(jax.tree.leaves(rows)[0].shape[0])
