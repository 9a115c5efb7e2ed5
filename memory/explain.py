"""Why a memory answered what it did: the entries that contributed most to an output."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from .coefficients import CoefficientTable, block_coefficients
from .cold import ColdPart
from .cold_explain import largest_parts
from .database import Database
from .kernels import Kernel
from .retrieval import contributions
from .tiers import Tiers


@dataclass(frozen=True)
class Contribution:
    """One entry's part in an output."""

    slot: int  # where the entry lies
    origin: int  # stream offset of the example it came from; −1 for the initial function
    created: int  # the step that added it; 0 for the initial function
    similarity: float  # φ(k, q), or the softmax probability of the entry times its coefficient
    share: float  # part of the output in the direction asked for; all entries' shares add up to 1
    amount: float  # the same in the output's units; negative where the entry spoke against


def explain(
    kernel: Kernel,
    database: Database,
    table: CoefficientTable | None,
    query: jax.Array,
    *,
    count: int = 5,
    direction: jax.Array | None = None,
    cold: ColdPart | None = None,
) -> list[Contribution]:
    """The entries that contributed most to the answer to one query, by size.

    Args:
      kernel: the layer's kernel.
      database: its memory.
      table: present coefficients by creation step; None: all 1.
      query: [D].
      count: how many entries; fewer where there are fewer.
      direction: [F]; contributions are measured along it, for example one class's logit. None: along the
        output itself.
      cold: the memory's entries on disk, whose slots follow those in memory; None: there are none.

    Returns:
      The contributions, largest in absolute amount first.
    """
    if cold is not None:
        whole, parts = largest_parts(kernel, Tiers(database, cold, table), query, count, direction)
        return [
            Contribution(int(slot), int(origin), int(created), float(s), float(a) / (whole or 1.0), float(a))
            for slot, created, origin, s, a in zip(*vars(parts).values(), strict=True)
        ]
    output, columns = _measure(kernel, database, table, query, direction)
    amounts = np.concatenate([database.shards.fetch(amount) for amount, _ in columns])
    similarities = np.concatenate([database.shards.fetch(similarity) for _, similarity in columns])
    created, origins = database.column("created"), database.column("origin")
    live = np.flatnonzero(created >= 0)
    order = live[np.argsort(-np.abs(amounts[live]), kind="stable")][:count]
    whole = float(output) or 1.0
    return [
        Contribution(
            slot=int(slot),
            origin=int(origins[slot]),
            created=int(created[slot]),
            similarity=float(similarities[slot]),
            share=float(amounts[slot]) / whole,
            amount=float(amounts[slot]),
        )
        for slot in order
    ]


def _measure(
    kernel: Kernel,
    database: Database,
    table: CoefficientTable | None,
    query: jax.Array,
    direction: jax.Array | None,
) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
    """The output along the direction, and per block each slot's part of it and its similarity, [n]."""
    coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
    weights = contributions(kernel, database.blocks, coefficients, query[None], database.shards)
    if direction is None:
        output = sum(w @ block.values for (w, _), block in zip(weights, database.blocks, strict=True))
        length = jnp.linalg.norm(output)
        direction = jnp.where(length == 0, 0, output / jnp.where(length == 0, 1, length))
    parts = [
        (w * (block.values @ direction), s) for (w, s), block in zip(weights, database.blocks, strict=True)
    ]
    total = sum((jnp.sum(part) for part, _ in parts), start=jnp.zeros((), query.dtype))
    return total, parts
