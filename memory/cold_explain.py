"""Explaining a memory with a cold part: the largest contributions of every block, one block at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from .coefficients import CoefficientTable, block_coefficients
from .cold_stream import EXPLAINING, as_block, stream
from .database import EMPTY, Block
from .fold import Partial, cotangent, finish
from .kernels import Kernel
from .scores import Coefficients, Entries, score
from .sharding import Shards
from .tiers import Tiers, answer_partial
from .window import cut


@dataclass(frozen=True)
class Parts:
    """What a block's entries contribute to one output; empty slots are left out."""

    slots: np.ndarray  # [n] int64: those on disk follow the slots in memory
    created: np.ndarray  # [n]
    origins: np.ndarray  # [n]
    similarities: np.ndarray  # [n]
    amounts: np.ndarray  # [n] along the direction

    def largest(self, count: int) -> "Parts":
        """The `count` of largest absolute amount, largest first."""
        order = np.argsort(-np.abs(self.amounts), kind="stable")[:count]
        return Parts(*(getattr(self, name)[order] for name in self.__dataclass_fields__))


def largest_parts(
    kernel: Kernel, tiers: Tiers, query: jax.Array, count: int, direction: jax.Array | None
) -> tuple[float, Parts]:
    """The output along a direction, and the entries that contributed most to it (see `explain`).

    Args:
      kernel: the layer's kernel.
      tiers: its memory.
      query: [D].
      count: how many entries.
      direction: [F]; None: along the output itself.
    """
    total = answer_partial(kernel, tiers, query[None])
    output = finish(total)[0]
    if direction is None:
        length = jnp.linalg.norm(output)
        direction = jnp.where(length == 0, 0, output / jnp.where(length == 0, 1, length))
    best: Parts | None = None
    for parts in _blocks(kernel, tiers, query[None], direction, total):
        merged = parts if best is None else _joined(best, parts)
        best = merged.largest(count)
    assert best is not None  # a database has a block
    return float(output @ direction), best


def _blocks(
    kernel: Kernel, tiers: Tiers, query: jax.Array, direction: jax.Array, total: Partial
) -> Iterator[Parts]:
    shards, begin = tiers.database.shards, 0
    for block in tiers.database.blocks:
        found = _measure(kernel, shards, block, tiers.table, query, direction, total)
        fetched = [shards.fetch(column) for column in (block.created, block.origin, *found)]
        yield _live(begin, *fetched)
        begin += block.slots
    rows = tiers.cold.layout.rows_per_chunk
    for number, columns in stream(tiers.cold, EXPLAINING):
        block = as_block(tiers.cold.layout, columns, shards)
        found = _measure(kernel, shards, block, tiers.table, query, direction, total)
        yield _live(begin + number * rows, columns["created"], columns["origin"], *map(np.asarray, found))


def _live(
    begin: int, created: np.ndarray, origins: np.ndarray, similarities: np.ndarray, amounts: np.ndarray
) -> Parts:
    live = np.flatnonzero(created != EMPTY)
    return Parts(begin + live, created[live], origins[live], similarities[live], amounts[live])


def _joined(one: Parts, other: Parts) -> Parts:
    columns = ([getattr(p, name) for p in (one, other)] for name in one.__dataclass_fields__)
    return Parts(*map(np.concatenate, columns))


@partial(jax.jit, static_argnums=(0, 1))
def _measure(
    kernel: Kernel,
    shards: Shards,
    block: Block,
    table: CoefficientTable | None,
    query: jax.Array,
    direction: jax.Array,
    total: Partial,
) -> tuple[jax.Array, jax.Array]:
    """Similarities (of a normalised kernel: over the denominator) and amounts, [n]."""

    def part(
        rows: tuple[Entries, Coefficients], whole: tuple[jax.Array, jax.Array, Partial]
    ) -> tuple[jax.Array, jax.Array]:
        (entries, coefficients), (query, direction, total) = rows, whole
        scores = score(kernel, entries, query)
        # The answer's gradient in a numerator is what that numerator's similarities are scaled by.
        outer = cotangent(total, jnp.ones_like(total.numerator)).in_part(scores.maximum)
        similarities = scores.similarity[:, 0] * outer.numerator[0, 0]
        return similarities, similarities * coefficients.values * (cut(entries.values) @ direction)

    rows = Entries.of(block), block_coefficients(block, table)
    found: tuple[jax.Array, jax.Array] = shards.spread(part, rows, (query, direction, total), (True, True))
    return found
