"""Retrieval over both tiers of a memory: the hot database on the device and the cold part on disk.

Blocks and chunks are folded one by one (`fold`), so the answer is exact and only a few chunks are in memory
at a time. The backward pass reads everything once more and computes the scores again: kept, they would take
as much room as the memory itself. This runs outside of `jit`, because a chunk is read by the host when its
turn comes; what is computed with a block is one jitted call, compiled once per shape of block.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .coefficients import CoefficientTable, block_coefficients
from .cold import ColdPart
from .cold_stream import ANSWERING, as_block, stream
from .database import Block, Database
from .fold import Cotangent, Partial, cotangent, finish, log_normaliser, merge, merge_devices, nothing
from .kernels import Kernel, least_share
from .neighbours import nearest as nearest_keys
from .scores import Coefficients, Entries, gradients, partial_answer, score
from .sharding import Shards

_Residuals = tuple[jax.Array, list[Partial]]  # queries, and what all blocks say to them together
_FEWEST_QUERIES = 16  # computed together, however small the budget of scores


@dataclass(frozen=True)
class Tiers:
    """A memory in two tiers, and the coefficients of its entries at the present step."""

    database: Database  # the hot part
    cold: ColdPart
    table: CoefficientTable | None  # by creation step; None: all 1

    @property
    def dtype(self) -> jnp.dtype:
        """Of keys and values."""
        return self.database.blocks[0].keys.dtype

    def blocks(self, *, backwards: bool = False) -> Iterator[Block]:
        """All of the memory's rows, a block at a time: those on the device, then those from disk.

        Finish computing with a block before asking for the next one.
        """
        chunks = stream(self.cold, ANSWERING, backwards=backwards)  # reads while the hot part is computed
        yield from self.database.blocks
        for _, columns in chunks:
            yield as_block(self.cold.layout, columns, self.database.shards)

    def queries_at_once(self, scores_budget_bytes: int) -> int:
        """How many queries' scores with any one block fit the budget."""
        rows = max([self.cold.layout.rows_per_chunk, *(block.slots for block in self.database.blocks)])
        return max(_FEWEST_QUERIES, scores_budget_bytes // (self.dtype.itemsize * rows))


class Answered(NamedTuple):
    """What a memory answered to B queries."""

    answers: jax.Array  # [B, F]
    distances: jax.Array | None  # [B] squared, to the nearest live keys; None: not asked for
    log_normaliser: (
        jax.Array | None
    )  # [B] of a normalised kernel's denominator, not differentiated; else None


def retrieve_tiers(
    kernel: Kernel,
    tiers: Tiers,
    queries: jax.Array,
    *,
    nearest: bool = False,
    scores_budget_bytes: int = 2**26,
) -> Answered:
    """What `retrieve` answers, over both tiers; differentiable in the queries.

    Args:
      kernel: the similarity.
      tiers: the memory.
      queries: [B, D], not traced by `jit`: the host reads the disk in between.
      nearest: whether the distances to the nearest keys are wanted too.
      scores_budget_bytes: most bytes of scores [N, B] that are materialised at a time.

    Raises:
      FormatError: a chunk on disk is missing or damaged.
    """

    @jax.custom_vjp
    def answer(queries: jax.Array) -> Answered:
        return forward(queries)[0]

    def forward(queries: jax.Array) -> tuple[Answered, _Residuals]:
        totals, distances = _forward(kernel, tiers, _parts(queries, size), nearest)
        answers = jnp.concatenate([_finish(total) for total in totals])[: len(queries)]
        found = jnp.concatenate(distances)[: len(queries)] if nearest else None
        logs = None
        if kernel.normalised:
            logs = jnp.concatenate([_log_normaliser(total) for total in totals])[: len(queries)]
        return Answered(answers, found, logs), (queries, totals)

    def backward(residuals: _Residuals, gradient: Answered) -> tuple[jax.Array]:
        queries, totals = residuals
        outers = [_cotangent(t, g) for t, g in zip(totals, _parts(gradient.answers, size), strict=True)]
        found = _backward(kernel, tiers, _parts(queries, size), outers)
        return (jnp.concatenate(found)[: len(queries)],)

    size = max(1, min(len(queries), tiers.queries_at_once(scores_budget_bytes)))
    answer.defvjp(forward, backward)
    result: Answered = answer(queries)
    return result


def answer_partial(kernel: Kernel, tiers: Tiers, queries: jax.Array) -> Partial:
    """What all of a memory says to a few queries [B, D], before it is finished into the answer."""
    return _forward(kernel, tiers, [queries], False)[0][0]


def _forward(
    kernel: Kernel, tiers: Tiers, queries: list[jax.Array], nearest: bool
) -> tuple[list[Partial], list[jax.Array]]:
    size = len(queries[0])
    empty = nothing(
        size,
        tiers.database.value_features,
        tiers.dtype,
        normalised=kernel.normalised,
        least_share=least_share(kernel),
    )
    totals, distances = [empty] * len(queries), [jnp.full(size, jnp.inf, tiers.dtype)] * len(queries)
    for block in tiers.blocks():
        for i, part in enumerate(queries):
            totals[i], distances[i] = _answer(
                kernel, tiers.database.shards, nearest, block, tiers.table, part, totals[i], distances[i]
            )
        jax.block_until_ready(totals)
    return totals, distances


def _backward(
    kernel: Kernel, tiers: Tiers, queries: list[jax.Array], outers: list[Cotangent]
) -> list[jax.Array]:
    found = [jnp.zeros_like(part) for part in queries]
    for block in tiers.blocks(backwards=True):
        for i, (part, outer) in enumerate(zip(queries, outers, strict=True)):
            found[i] = _pull(kernel, tiers.database.shards, block, tiers.table, part, outer, found[i])
        jax.block_until_ready(found)
    return found


@partial(jax.jit, static_argnums=(0, 1, 2))
def _answer(
    kernel: Kernel,
    shards: Shards,
    nearest: bool,
    block: Block,
    table: CoefficientTable | None,
    queries: jax.Array,
    total: Partial,
    distances: jax.Array,
) -> tuple[Partial, jax.Array]:
    """The answers and least distances so far, and with this block."""

    def part(rows: tuple[Entries, Coefficients], queries: jax.Array) -> Partial:
        entries, coefficients = rows
        scores, share = score(kernel, entries, queries), least_share(kernel)
        return merge_devices(shards, partial_answer(entries, coefficients, scores, least_share=share))

    rows = Entries.of(block), block_coefficients(block, table)
    total = merge(total, shards.spread(part, rows, queries, False))
    if nearest:
        distances = jnp.minimum(distances, -nearest_keys((block,), queries, shards=shards).scores[:, 0])
    return total, distances


@partial(jax.jit, static_argnums=(0, 1))
def _pull(
    kernel: Kernel,
    shards: Shards,
    block: Block,
    table: CoefficientTable | None,
    queries: jax.Array,
    outer: Cotangent,
    gradient: jax.Array,
) -> jax.Array:
    """The gradient in the queries so far, and through this block."""

    def part(rows: tuple[Entries, Coefficients], whole: tuple[jax.Array, Cotangent]) -> jax.Array:
        (entries, coefficients), (queries, outer) = rows, whole
        scores = score(kernel, entries, queries)
        found = gradients(kernel, entries, coefficients, scores, queries, outer, trained=False)
        total: jax.Array = shards.total(found.queries)
        return total

    rows = Entries.of(block), block_coefficients(block, table)
    found: jax.Array = gradient + shards.spread(part, rows, (queries, outer), False)
    return found


_finish: Callable[[Partial], jax.Array] = jax.jit(finish)
_log_normaliser: Callable[[Partial], jax.Array] = jax.jit(log_normaliser)
_cotangent: Callable[[Partial, jax.Array], Cotangent] = jax.jit(cotangent)


def _parts(rows: jax.Array, size: int) -> list[jax.Array]:
    """Rows [B, …] in parts of one size; the last is filled up with zeros."""
    padded = jnp.pad(rows, [(0, -len(rows) % size), (0, 0)])
    return [padded[start : start + size] for start in range(0, max(1, len(padded)), size)]
