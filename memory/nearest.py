"""How far each query is from its nearest key: what novelty is judged by."""

from functools import reduce

import jax
import jax.numpy as jnp

from .database import Block
from .plan import SCORES_BUDGET_BYTES, Plan, over_chunks, plan_reading
from .sharding import ONE_DEVICE, Shards

_Nearest = tuple[jax.Array, jax.Array]  # [B] squared distance and [B] int32 row of its key


def nearest_square_distances(
    blocks: tuple[Block, ...],
    queries: jax.Array,
    shards: Shards = ONE_DEVICE,
    *,
    budget_bytes: int = SCORES_BUDGET_BYTES,
) -> jax.Array:
    """Squared Euclidean distance from each query to its nearest live key.

    Args:
      blocks: the database's blocks.
      queries: [B, D].
      shards: the devices that hold the rows.
      budget_bytes: most bytes of distances [N, B] on a device at any time.

    Returns:
      [B]; +inf where the database is empty. In one jitted call with `retrieve` the products of blocks that
      are read whole are shared.
    """
    plan = plan_reading(
        sum(block.slots for block in blocks) // shards.count,
        queries.shape[0],
        blocks[0].keys.shape[1] + blocks[0].values.shape[1],
        itemsize=queries.dtype.itemsize,
        budget_bytes=budget_bytes,
    )

    def nearest(blocks: tuple[Block, ...], queries: jax.Array) -> jax.Array:
        return shards.least(reduce(jnp.minimum, [_in_block(block, queries, plan) for block in blocks]))

    # A decision, not a quantity to learn through.
    found: jax.Array = shards.spread(nearest, blocks, jax.lax.stop_gradient(queries), False)
    return found


def _in_block(block: Block, queries: jax.Array, plan: Plan) -> jax.Array:
    way = plan.orientation
    norms = jnp.sum(queries * queries, axis=1)

    def step(best: _Nearest, chunk: tuple[jax.Array, ...], _: None) -> tuple[_Nearest, None]:
        keys, key_norms, live, rows = chunk
        distances = way.pairs(way.products(keys, queries), norms, key_norms).square_distances()
        distances = jnp.where(way.across_entries(live), distances, jnp.inf)
        least = jnp.min(distances, axis=way.entry_axis)
        # The row of the nearest; argmin takes 1.5 times as long on a CPU.
        closest = distances == way.across_queries(least)
        row = jnp.max(jnp.where(closest, way.across_entries(rows), 0), axis=way.entry_axis)
        nearer = least < best[0]
        return (jnp.where(nearer, least, best[0]), jnp.where(nearer, row, best[1])), None

    rows = jnp.arange(block.live.shape[0], dtype=jnp.int32)
    none = jnp.full(queries.shape[0], jnp.inf, queries.dtype), jnp.zeros(queries.shape[0], jnp.int32)
    columns = block.keys, block.key_norms, block.live, rows
    (_, row), _ = over_chunks(step, none, columns, plan.chunk)
    # Expanding the square loses digits: in float32 a third of all exact duplicates came out apart.
    exact = jnp.sum((queries - block.keys[row]) ** 2, axis=1)
    return jnp.where(block.live[row], exact, jnp.inf)
