"""Training stored entries as parameters: the parametric half of a hybrid layer (Sec. 3.3, Algorithm 4).

Keys, values and weights of the entries that were there before a step follow an optimiser's descent on the
batch-mean loss; rows appended by the step join with an optimiser's state of zeros and share its count of
steps. Weights that a step would make negative become 0 (App. C.5), unless they may be negative. Each block of
a database has a state of its own, so that nothing is copied when the database grows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ..memory.database import INITIAL, Block, Database

COLUMNS = ("keys", "values", "weights")
Columns = Mapping[str, jax.Array]  # those of COLUMNS that a block has
States = tuple[dict[str, Any], ...]  # per block, per column, the optimiser's state


@dataclass(frozen=True)
class EntryTraining:
    """How entries are trained: an optimiser per column. Hashable, as it is static in compiled programs."""

    keys: optax.GradientTransformation
    values: optax.GradientTransformation
    weights: optax.GradientTransformation
    # No weight of the initial function falls below this, no other one below 0; None: they are not limited.
    least_initial_weight: float | None = None

    def start(self, database: Database) -> States:
        """The optimisers' states before the first step."""
        return tuple(self._of_block(block) for block in database.blocks)

    def grown(self, states: States, database: Database) -> States:
        """The states with those of blocks that were added since: zeros, at the others' count of steps."""
        first = states[0]
        added = [
            jax.tree.map(_joining, first, self._of_block(block)) for block in database.blocks[len(states) :]
        ]
        return (*states, *added)

    def _of_block(self, block: Block) -> dict[str, Any]:
        # Copies: states are donated, and must not share arrays.
        return {
            name: jax.tree.map(jnp.array, getattr(self, name).init(column))
            for name, column in trained_columns(block).items()
        }


def trained_columns(block: Block) -> dict[str, jax.Array]:
    """A block's columns that can be trained."""
    columns = {name: getattr(block, name) for name in COLUMNS}
    return {name: column for name, column in columns.items() if column is not None}


def train(
    training: EntryTraining,
    database: Database,
    states: States,
    gradients: tuple[Columns, ...],
    step: int,
) -> tuple[Database, States]:
    """One step of the optimisers over all entries.

    Args:
      training: the optimisers.
      database: consumed.
      states: theirs; consumed.
      gradients: per block those of the columns, of the batch-mean loss.
      step: the present step, which the entries are marked with as changed.
    """
    blocks, moved = _train_blocks(training, database.blocks, states, gradients, jnp.int32(step))
    return replace(database, blocks=blocks), moved


@partial(jax.jit, donate_argnums=0)
def forgotten(states: States, blocks: tuple[Block, ...], step: jax.Array) -> States:
    """The states with zeros for the rows that were written in this step.

    Args:
      states: consumed.
      blocks: the database's, after the step's rows were appended.
      step: [] int32 the present step.
    """

    def cleared(leaf: jax.Array, fresh: jax.Array) -> jax.Array:
        if leaf.ndim == 0:
            return leaf
        return jnp.where(fresh.reshape(-1, *[1] * (leaf.ndim - 1)), 0, leaf)

    return tuple(
        jax.tree.map(lambda leaf, fresh=block.created == step: cleared(leaf, fresh), state)
        for state, block in zip(states, blocks, strict=True)
    )


def _joining(present: jax.Array, new: jax.Array) -> jax.Array:
    """A new block's state: counts of steps are shared, all else begins at zero."""
    return jnp.array(present) if new.ndim == 0 else new


@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _train_blocks(
    training: EntryTraining,
    blocks: tuple[Block, ...],
    states: States,
    gradients: tuple[Columns, ...],
    step: jax.Array,
) -> tuple[tuple[Block, ...], States]:
    trained, states_after = [], []
    for block, state, slope in zip(blocks, states, gradients, strict=True):
        columns, after = {}, {}
        for name, column in trained_columns(block).items():
            transformation: optax.GradientTransformation = getattr(training, name)
            updates, after[name] = transformation.update(slope[name], state[name], column)
            # Empty slots have no gradient, but weight decay or rounding might move them.
            live = block.live.reshape(-1, *[1] * (column.ndim - 1))
            moved = optax.apply_updates(column, updates)
            if name == "weights" and training.least_initial_weight is not None:
                # A layer whose weights are all zero would learn no more: so are its gradients.
                least = jnp.where(block.created == INITIAL, training.least_initial_weight, 0)
                moved = jnp.maximum(moved, least.astype(moved.dtype))
            columns[name] = jnp.where(live, moved, column)
        trained.append(_with_norms(replace(block, **columns), step))
        states_after.append(after)
    return tuple(trained), tuple(states_after)


def _with_norms(block: Block, step: jax.Array) -> Block:
    return replace(
        block,
        key_norms=jnp.sum(block.keys * block.keys, axis=1),
        value_norms=jnp.sqrt(jnp.sum(block.values * block.values, axis=1)),
        changed=jnp.where(block.live, step, block.changed),
    )
