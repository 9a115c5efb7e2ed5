"""How retrieval reads a block: which way round its scores lie, and how many entries at a time.

A block is read whole, or in chunks of equal size and a shorter last one. Whole blocks suit few queries and
wide keys: reading the keys is what takes the time, and their scores are kept for the backward pass. Chunks
suit many queries and narrow keys: there the scores are what is large. Those of a chunk stay in or near the
cache, and are computed again for the backward pass, which takes less time than keeping them. A chunk is a
copy of its keys and values only where products are made by XLA (`native`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .orientation import ENTRIES_FIRST, QUERIES_FIRST, Orientation
from .window import Rows, Window

SCORES_BUDGET_BYTES = 2**28  # of one retrieval, by default

_FORWARD_BYTES = 2**23  # scores of one chunk
_BACKWARD_BYTES = {ENTRIES_FIRST: 2**22, QUERIES_FIRST: 2**19}
_LEAST_CHUNK = 256  # entries: with fewer, adding up the chunks' answers counts
_FEW_QUERIES = 16
_CHUNKED_FROM = 1 / 4  # queries per number of an entry
_MANY_QUERIES = 512
_WORKING = 6  # arrays of scores alive at once in the backward pass, as XLA compiles it
_WORKING_NARROW = 9  # the same of chunks, of which a shorter last one has arrays of its own


@dataclass(frozen=True)
class Plan:
    """How to read the blocks of a database."""

    orientation: Orientation
    chunk: int | None  # entries scored at once; None: all of a block, and their scores are kept
    backward_chunk: int | None  # the same in the backward pass; None where scores are kept

    def __post_init__(self) -> None:
        assert (self.chunk is None) == (self.backward_chunk is None), self


def plan_reading(
    entries: int, batch: int, width: int, *, itemsize: int, kept: int = 0, budget_bytes: int
) -> Plan:
    """Chooses a plan from shapes alone.

    Measured with RBF on two x86 cores with AVX-512 (L2 of 2 MiB each), forward and backward, in ms; width is
    D = F. Whether chunks won depended on B / (D + F) alone:

        entries   width      B   whole, saved        chunks, computed again
                               [N, B]   [B, N]   [n, B] 4 MiB   [B, n] 512 KiB
          8,192     784    256     57       55             65               71
         25,000    3072     64    156      197              -                -
         65,536      64     16      5        6              -               12
         65,536      64     32     11       11             10               17
         65,536      64     64     32       34             18               31
      1,000,000      64     64    546      676            266              464
         16,384     256    128     26       24             24               30
         16,384      64    256     32       19             18               21
         16,384      64   1024    130      126             72               63

    A forward pass is fastest with chunks of 8 MiB: 131,072 entries of 64 numbers answer 1,024 queries in 183
    ms, with chunks of 512 KiB in 221 ms.

    Args:
      entries: slots of all blocks on one device, N.
      batch: queries, B.
      width: numbers of an entry's key and value, D + F.
      itemsize: bytes of a number.
      kept: arrays of scores that the backward pass wants of the forward pass.
      budget_bytes: most bytes of scores at any time.
    """
    per_entry, whole = batch * itemsize, entries * batch * itemsize
    narrow = batch > _FEW_QUERIES and batch >= _CHUNKED_FROM * width
    orientation = QUERIES_FIRST if narrow and batch > _MANY_QUERIES else ENTRIES_FIRST
    if not narrow and (kept + _WORKING) * whole <= budget_bytes:
        return Plan(orientation, None, None)
    # A chunk is a copy of its entries at worst, which counts too.
    working = _WORKING_NARROW if narrow else _WORKING
    most = max(1, budget_bytes // (working * per_entry + width * itemsize))
    if not narrow:
        return Plan(orientation, min(most, entries), min(most, entries))
    forward, backward = (
        min(most, entries, max(_LEAST_CHUNK, size // per_entry))
        for size in (_FORWARD_BYTES, _BACKWARD_BYTES[orientation])
    )
    return Plan(orientation, forward, backward)


def over_chunks(
    function: Callable[[Any, Any], tuple[Any, Any]], first: Any, rows: Any, chunk: int | None
) -> tuple[Any, list[Any]]:
    """Runs `carry, result = function(carry, part of rows)` over the chunks of a block, in order.

    Args:
      function: what is done with a chunk.
      first: the carry at the start.
      rows: arrays [n, …], of which a chunk is a copy, or windows, of which it is none.
      chunk: rows of a chunk; None: all at once, whatever their shapes.

    Returns:
      The last carry, and the results: one item for the equal chunks, stacked, and one for a shorter rest.
    """
    carry, results = first, []
    for stretch in _stretches(_length(rows), chunk):
        carry, result = _over_stretch(function, carry, rows, stretch)
        results.append(result)
    return carry, results


def unchunk(results: list[Any]) -> Any:
    """The results of `over_chunks` as arrays [n, …], where each was one row per row of its chunk."""
    return jax.tree.map(
        lambda *parts: jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in parts]), *results
    )


class _Stretch(NamedTuple):
    """Consecutive chunks of equal size."""

    start: int | None  # None: it is all, and need not be cut out, which would be a copy
    size: int
    times: int


def _stretches(rows: int, chunk: int | None) -> list[_Stretch]:
    if chunk is None:
        return [_Stretch(None, rows, 1)]
    count, rest = divmod(rows, chunk)
    stretches = [_Stretch(0, chunk, count), _Stretch(count * chunk, rest, 1)]
    return [stretch for stretch in stretches if stretch.size * stretch.times > 0]


def _over_stretch(
    function: Callable[[Any, Any], tuple[Any, Any]], carry: Any, rows: Any, stretch: _Stretch
) -> tuple[Any, Any]:
    def once(carry: Any, part: Any) -> tuple[Any, Any]:
        carry, result = function(carry, part)
        return carry, jax.tree.map(lambda x: x[None], result)

    def step(carry: Any, start: jax.Array) -> tuple[Any, Any]:
        return function(carry, part(start))

    def part(start: jax.Array) -> Any:
        return jax.tree.map(lambda x: _part(x, start, stretch.size), rows, is_leaf=_is_window)

    if stretch.start is None:
        return once(carry, rows)
    starts = stretch.start + stretch.size * jnp.arange(stretch.times)
    # Not before what comes first is done: all at once, the chunks would need memory at once.
    carry, starts = jax.lax.optimization_barrier((carry, starts))
    if stretch.times == 1:
        return once(carry, part(starts[0]))
    return jax.lax.scan(step, carry, starts)


def _part(rows: Rows, start: jax.Array, count: int) -> Rows:
    if isinstance(rows, Window):
        return rows.part(start, count)
    return jax.lax.dynamic_slice_in_dim(rows, start, count)


def _is_window(rows: Any) -> bool:
    return isinstance(rows, Window)


def _length(rows: Any) -> int:
    return int(jax.tree.leaves(rows, is_leaf=_is_window)[0].shape[0])
