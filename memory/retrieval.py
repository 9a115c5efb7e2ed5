"""Retrieval: what a database answers to a batch of queries, with a hand-written backward pass.

Blocks are read as a `plan` says, whole or chunk by chunk. Every run of entries gives a partial answer
(`scores`); runs and devices are folded (`fold`). Backward is two more passes over keys and values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from .database import Block
from .fold import Partial, cotangent, finish, log_normaliser, merge, merge_devices, nothing
from .kernels import Kernel, least_share
from .plan import SCORES_BUDGET_BYTES, Plan, over_chunks, plan_reading, unchunk
from .scores import Coefficients, Entries, Scores, gradients, partial_answer, score, scores_kept
from .sharding import ONE_DEVICE, Shards


def retrieve(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
    *,
    shards: Shards = ONE_DEVICE,
    trained: bool = False,
    budget_bytes: int = SCORES_BUDGET_BYTES,
) -> jax.Array:
    """Σ c·φ(k, q)·v over all live entries (Eq. 14), or the weighted-softmax ratio (Eq. 8).

    Differentiable in the queries, and in keys, values and weights of the entries where `trained`.

    Args:
      kernel: the similarity.
      blocks: the database's blocks.
      coefficients: one per block.
      queries: [B, D].
      shards: the devices that hold the rows.
      trained: whether gradients are wanted for the entries too.
      budget_bytes: most bytes of scores [N, B] on a device at any time. Scores that fit are kept from the
        forward to the backward pass, others are computed again.

    Returns:
      [B, F]; zeros where there is no entry (or no weight) to answer: the prior.
    """
    return retrieve_normalised(
        kernel, blocks, coefficients, queries, shards=shards, trained=trained, budget_bytes=budget_bytes
    )[0]


def retrieve_normalised(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
    *,
    shards: Shards = ONE_DEVICE,
    trained: bool = False,
    budget_bytes: int = SCORES_BUDGET_BYTES,
) -> tuple[jax.Array, jax.Array | None]:
    """What `retrieve` answers, and [B] the logarithm of a normalised kernel's denominator (else None).

    The logarithm is not differentiated.
    """
    plan = plan_reading(
        sum(block.slots for block in blocks) // shards.count,
        queries.shape[0],
        blocks[0].keys.shape[1] + blocks[0].values.shape[1],
        itemsize=queries.dtype.itemsize,
        kept=scores_kept(kernel),
        budget_bytes=budget_bytes,
    )
    reading = _Reading(kernel, plan, shards, trained)
    return _compiled(reading, tuple(map(Entries.of, blocks)), coefficients, queries)


def contributions(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    query: jax.Array,
    shards: Shards = ONE_DEVICE,
) -> list[tuple[jax.Array, jax.Array]]:
    """What each stored value is multiplied by in the answer to one query.

    Args:
      kernel: the similarity.
      blocks: the database's blocks.
      coefficients: one per block.
      query: [1, D].
      shards: the devices that hold the rows.

    Returns:
      Per block, [n] factors of the stored values (Σ factor·v is the answer) and [n] similarities: φ, or for
      a normalised kernel exp(logit) over the denominator.
    """

    def similarities(rows: Any, query: jax.Array) -> list[jax.Array]:
        scored = [score(kernel, e, query) for e in rows[0]]
        share = least_share(kernel)
        parts = [partial_answer(e, c, s, least_share=share) for e, c, s in zip(*rows, scored, strict=True)]
        # The answer's gradient in a part's numerator is what its similarities are scaled by.
        whole = merge_devices(shards, reduce(merge, parts))
        back = cotangent(whole, jnp.ones_like(whole.numerator))
        return [s.similarity[:, 0] * back.in_part(s.maximum).numerator[0, 0] for s in scored]

    rows = tuple(map(Entries.of, blocks)), coefficients
    found = shards.spread(similarities, rows, query, [True] * len(blocks))
    return [(s * c.values, s) for s, c in zip(found, coefficients, strict=True)]


@dataclass(frozen=True)
class _Reading:
    """What a retrieval is but for its arrays."""

    kernel: Kernel
    plan: Plan
    shards: Shards
    trained: bool


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _retrieve(
    reading: _Reading,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
) -> tuple[jax.Array, jax.Array | None]:
    whole, _ = _read(reading, entries, coefficients, queries, saves=False)
    return finish(whole), log_normaliser(whole)


def _forward(
    reading: _Reading,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
) -> tuple[tuple[jax.Array, jax.Array | None], Any]:
    whole, saved = _read(reading, entries, coefficients, queries, saves=reading.plan.chunk is None)
    return (finish(whole), log_normaliser(whole)), (entries, coefficients, queries, saved, whole)


def _read(
    reading: _Reading,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
    *,
    saves: bool,
) -> tuple[Partial, Any]:
    """What all entries say, and per block its scores if they are to be saved (else None)."""
    kernel, plan, way = reading.kernel, reading.plan, reading.plan.orientation
    share = least_share(kernel)

    def part(rows: Any, queries: jax.Array) -> tuple[Partial, Any]:
        def add(sum_: Partial, chunk: Any) -> tuple[Partial, Scores | None]:
            entries, coefficients = chunk
            scores = score(kernel, entries, queries, way)
            answer = partial_answer(entries, coefficients, scores, way, share)
            return merge(sum_, answer), scores if saves else None

        batch, features = queries.shape[0], rows[0][0].values.shape[1]
        whole = nothing(batch, features, queries.dtype, normalised=kernel.normalised, least_share=share)
        saved = []
        for entries, *others in zip(*rows, strict=True):
            whole, kept = over_chunks(add, whole, (entries.in_place(), *others), plan.chunk)
            saved.append(jax.tree.map(lambda x: x[0], kept[0]) if saves else None)
        return merge_devices(reading.shards, whole), saved

    found: tuple[Partial, Any] = reading.shards.spread(part, (entries, coefficients), queries, (False, True))
    return found


def _backward(reading: _Reading, residuals: Any, gradients_: tuple[jax.Array, Any]) -> Any:
    gradient, _ = gradients_  # that of the logarithm is ignored
    entries, coefficients, queries, saved, whole = residuals
    kernel, plan, way = reading.kernel, reading.plan, reading.plan.orientation

    def part(rows: Any, known: Any) -> tuple[jax.Array, Any]:
        queries, back = known

        def add(sum_: jax.Array, chunk: Any) -> tuple[jax.Array, Any]:
            entries, coefficients, scores = chunk
            if scores is None:
                scores = score(kernel, entries, queries, way)
            found = gradients(
                kernel, entries, coefficients, scores, queries, back, way, trained=reading.trained
            )
            return sum_ + found.queries, found.entries

        by_queries, by_entries = jnp.zeros_like(queries), []
        for entries, *others in zip(*rows, strict=True):
            by_queries, found = over_chunks(
                add, by_queries, (entries.in_place(), *others), plan.backward_chunk
            )
            by_entries.append(unchunk(found))
        return reading.shards.total(by_queries), tuple(by_entries)

    by_queries, by_entries = reading.shards.spread(
        part, (entries, coefficients, saved), (queries, cotangent(whole, gradient)), (False, True)
    )
    return by_entries if reading.trained else None, None, by_queries


_retrieve.defvjp(_forward, _backward)

# Steps of memories with a cold part are no compiled program: tracing this took longer than computing it.
_compiled: Callable[..., tuple[jax.Array, jax.Array | None]] = jax.jit(_retrieve, static_argnums=0)
