"""Retrieval: what a database answers to a batch of queries, with a hand-written backward pass.

Every block gives a partial answer (`scores`); blocks and devices are folded (`fold`). The kernel values of
the forward pass are reused backward: two passes over keys and values each way and no recomputation.
"""

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from .database import Block
from .fold import Partial, cotangent, finish, merge, merge_devices
from .kernels import Kernel
from .scores import Coefficients, Entries, gradients, partial_answer, score
from .sharding import ONE_DEVICE, Shards


def retrieve(
    kernel: Kernel,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
    *,
    shards: Shards = ONE_DEVICE,
    trained: bool = False,
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

    Returns:
      [B, F]; zeros where there is no entry (or no weight) to answer: the prior.
    """
    return _retrieve(kernel, trained, shards, tuple(map(Entries.of, blocks)), coefficients, queries)


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

    def similarities(rows: Any, whole: Any) -> list[jax.Array]:
        query, total = whole
        # The answer's gradient in a numerator is what that numerator's similarities are scaled by.
        outer = cotangent(total, jnp.ones_like(total.numerator))
        parts = [score(kernel, e, query) for e in rows]
        return [s.similarity[:, 0] * outer.in_part(s.maximum).numerator[0, 0] for s in parts]

    entries = tuple(map(Entries.of, blocks))
    total = _forward(kernel, False, shards, entries, coefficients, query)[1][4]
    found = shards.spread(similarities, entries, (query, total), [True] * len(blocks))
    return [(s * c.values, s) for s, c in zip(found, coefficients, strict=True)]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _retrieve(
    kernel: Kernel,
    trained: bool,
    shards: Shards,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
) -> jax.Array:
    return _forward(kernel, trained, shards, entries, coefficients, queries)[0]


def _forward(
    kernel: Kernel,
    trained: bool,
    shards: Shards,
    entries: tuple[Entries, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
) -> tuple[jax.Array, Any]:
    def part(rows: Any, queries: jax.Array) -> tuple[Partial, Any]:
        entries, coefficients = rows
        saved = [score(kernel, e, queries) for e in entries]
        parts = [partial_answer(e, c, s) for e, c, s in zip(entries, coefficients, saved, strict=True)]
        # A leading axis, so that what each device saves can be told apart.
        return merge_devices(shards, reduce(merge, parts)), jax.tree.map(lambda x: x[None], saved)

    total, saved = shards.spread(part, (entries, coefficients), queries, (False, True))
    return finish(total), (entries, coefficients, queries, saved, total)


def _backward(kernel: Kernel, trained: bool, shards: Shards, residuals: Any, gradient: jax.Array) -> Any:
    def part(rows: Any, whole: Any) -> Any:
        queries, outer = whole
        entries, coefficients, saved = rows
        saved = jax.tree.map(lambda x: x[0], saved)
        found = [
            gradients(kernel, e, c, s, queries, outer, trained=trained)
            for e, c, s in zip(entries, coefficients, saved, strict=True)
        ]
        by_queries = shards.total(reduce(jnp.add, [each.queries for each in found]))
        return by_queries, tuple(each.entries for each in found)

    entries, coefficients, queries, saved, total = residuals
    by_queries, by_entries = shards.spread(
        part, (entries, coefficients, saved), (queries, cotangent(total, gradient)), (False, True)
    )
    return by_entries if trained else None, None, by_queries


_retrieve.defvjp(_forward, _backward)
