"""Merging: an entry takes up the value (and weight) of another with a key equal or close to its own.

For equal keys and equal coefficients this is exact (Remark B.1), otherwise an approximation: of the key, and
under momentum of the pace at which the two would have grown.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .coefficients import CoefficientTable
from .database import EMPTY, INITIAL, Block, Database, Rows
from .sharding import Shards


class Effective(NamedTuple):
    """Values and weights as they act at the present step: stored ones times their coefficients."""

    values: jax.Array  # [M, F]
    weights: jax.Array | None  # [M]


def merge(
    database: Database,
    table: CoefficientTable | None,
    slots: jax.Array,
    addition: Effective,
    step: jax.Array,
) -> Database:
    """Adds to the entries in given slots, in place: every block is consumed (donated).

    Args:
      database: the database.
      table: present coefficients by creation step; None: all 1.
      slots: [M] int32; rows whose slot is −1 are not added.
      addition: what to add.
      step: [] int32 the present step.
    """
    blocks = _merge_blocks(database.shards, database.blocks, table, slots, addition, step)
    return replace(database, blocks=blocks)


def combined_rows(rows: Rows, target: jax.Array) -> Rows:
    """A batch's rows with the values of those merged into an earlier row (target ≤ −2) added to it."""
    host = jnp.where(target <= -2, -2 - target, -1)
    share = (host[:, None] == jnp.arange(host.shape[0])).astype(rows.values.dtype)  # [B from, B into]
    weights = None if rows.weights is None else rows.weights + share.T @ rows.weights
    return replace(rows, values=rows.values + share.T @ rows.values, weights=weights)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _merge_blocks(
    shards: Shards,
    blocks: tuple[Block, ...],
    table: CoefficientTable | None,
    slots: jax.Array,
    addition: Effective,
    step: jax.Array,
) -> tuple[Block, ...]:
    def put(
        parts: tuple[Block, ...], whole: tuple[jax.Array, Effective, CoefficientTable | None, jax.Array]
    ) -> tuple[Block, ...]:
        slots, addition, table, step = whole
        merged = []
        for part in parts:
            size = part.slots * shards.count
            merged.append(_add(part, shards.local_places(slots, size), addition, table, step))
            slots = slots - size
        return tuple(merged)

    spread: tuple[Block, ...] = shards.spread(put, blocks, (slots, addition, table, step), True)
    return spread


def _add(
    block: Block, places: jax.Array, addition: Effective, table: CoefficientTable | None, step: jax.Array
) -> Block:
    created = block.created.at[places].get(mode="fill", fill_value=EMPTY)
    live = created != EMPTY
    row = jnp.maximum(created, INITIAL)

    def share(amounts: jax.Array, coefficients: jax.Array | None) -> jax.Array:
        factor = live.astype(amounts.dtype)
        if coefficients is not None:
            present = coefficients[row]
            factor = jnp.where(live & (present != 0), 1 / jnp.where(present == 0, 1, present), 0)
        return amounts * factor.reshape(-1, *[1] * (amounts.ndim - 1))

    into = jnp.where(live, places, block.slots)
    values = block.values.at[into].add(
        share(addition.values, None if table is None else table.values), mode="drop"
    )
    weights = block.weights
    if weights is not None:
        assert addition.weights is not None
        weights = weights.at[into].add(
            share(addition.weights, None if table is None else table.weights), mode="drop"
        )
    sums = values.at[into].get(mode="fill", fill_value=0)
    norms = jnp.sqrt(jnp.sum(sums * sums, axis=1))
    return replace(
        block,
        values=values,
        weights=weights,
        value_norms=block.value_norms.at[into].set(norms, mode="drop"),
        changed=block.changed.at[into].set(step, mode="drop"),
    )
