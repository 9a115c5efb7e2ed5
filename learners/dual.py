"""The dual form of a dense layer, both ways (Sec. 2, Eq. 1).

A linear growing database is a weight matrix written as a sum; a dense layer trained by SGD is a linear
growing database of its inputs and output gradients, and of the rows of its initial matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ..errors import ConfigError
from ..memory.admission import Decision
from ..memory.append import Occupancy, append
from ..memory.coefficients import CoefficientTable, block_coefficients, pad_by_step
from ..memory.database import Block, Database, Rows, empty_database
from ..memory.explain import Contribution, explain
from ..memory.kernels import Linear
from ..memory.policy import MemoryConfig
from ..memory.retrieval import retrieve
from ..memory.scores import Coefficients
from ..memory.sharding import ONE_DEVICE, Shards
from .dense import DenseLayer
from .initial import with_initial_entries
from .layers import GrowingLayer
from .learner import Learner
from .sgd import SGD, EntryWeights
from .state import State

_UNBOUNDED = MemoryConfig()


def weight_matrix(database: Database, table: CoefficientTable | None = None) -> jax.Array:
    """Collapses a database into the matrix that answers every query as a linear kernel over it does.

    Args:
      database: of a linear kernel.
      table: present coefficients by creation step; None: all 1.

    Returns:
      Σ c·k·vᵀ over all entries, [D, F]: q·W is Σ c·⟨k, q⟩·v (Eq. 1). The paper's W is its transpose.
    """
    coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
    matrix: jax.Array = _collapse(database.shards, database.blocks, coefficients)
    return matrix


def collapse(
    learner: Learner, state: State, optimiser: optax.GradientTransformation | None = None
) -> tuple[Learner, State]:
    """Turns the linear growing layers of a network into dense layers of the same names and outputs.

    Args:
      learner: a learner all of whose growing layers have the linear kernel.
      state: what it has learnt; it stays usable.
      optimiser: trains the new learner's parameters; None: it only predicts.

    Returns:
      A learner without memories, and its state at the same step.

    Raises:
      ConfigError: a growing layer has another kernel, which no matrix answers like.
    """
    network = learner.network(state)
    for path, layer in list(nnx.iter_modules(network)):
        if isinstance(layer, GrowingLayer):
            _replace(network, path, _dense(learner, state, layer))
    dense = Learner(network, learner.task, optimiser)
    return dense, replace(dense.init(jax.random.key(0)), step=state.step)


@dataclass(frozen=True)
class Recording:
    """A dense layer's training by SGD, recorded as a database that answers as the layer does.

    Keys are the layer's inputs, values its negative output gradients, and an entry's coefficient is its
    gradient's weight, so that entries are never rewritten however learning rate, momentum and decay go on.
    """

    rule: SGD
    database: Database
    occupancy: Occupancy
    weights: EntryWeights

    @classmethod
    def start(
        cls, matrix: jax.Array, rule: SGD, *, initial_capacity: int = 1024, shards: Shards = ONE_DEVICE
    ) -> "Recording":
        """The recording of a layer that has not been trained yet.

        Args:
          matrix: [D, F] its initial weights W₀, which become D initial entries: unit vectors and rows of W₀.
          rule: how it is going to be trained.
          initial_capacity: slots for further entries; more follow as they arrive.
          shards: the devices to spread the entries over.
        """
        features, outputs = matrix.shape
        database = empty_database(
            features + initial_capacity,
            features,
            outputs,
            weighted=False,
            dtype=matrix.dtype,
            shards=shards,
        )
        database = with_initial_entries(database, jnp.eye(features, dtype=matrix.dtype), matrix, None)
        return cls(rule, database, Occupancy.of(database, holes=False), EntryWeights.start())

    def record(self, inputs: Any, gradients: Any, origins: np.ndarray | None = None) -> "Recording":
        """Adds one step's entries. This recording's database is consumed.

        Args:
          inputs: [B, D] what the layer was given.
          gradients: [B, F] the gradient, with respect to the layer's outputs, of the loss that is descended
            (where that is a mean over the batch, each example's own gradient over B).
          origins: [B] stream offsets of the examples; None: unknown (−1).
        """
        dtype = self.database.blocks[0].keys.dtype
        keys, values = jnp.asarray(inputs, dtype), -jnp.asarray(gradients, dtype)
        offsets = np.full(len(keys), -1) if origins is None else origins
        database, occupancy, _ = append(
            _UNBOUNDED,
            Linear(),
            self.database,
            self.occupancy,
            None,
            Rows(keys, values, None, jnp.asarray(offsets, jnp.int32)),
            Decision.everything(len(keys)),
            self.weights.steps + 1,
        )
        weights = self.weights.advance(self.rule)
        return replace(self, database=database, occupancy=occupancy, weights=weights)

    def answer(self, queries: Any) -> jax.Array:
        """What the trained layer outputs, [B, F], for inputs [B, D], retrieved from the entries."""
        blocks, table = self.database.blocks, self.table()
        coefficients = tuple(block_coefficients(block, table) for block in blocks)
        inputs = jnp.asarray(queries, blocks[0].keys.dtype)
        return retrieve(Linear(), blocks, coefficients, inputs, shards=self.database.shards)

    def explain(self, query: Any, *, count: int = 5, direction: Any | None = None) -> list[Contribution]:
        """The recorded examples behind the layer's output for one input [D] (see `memory.explain`)."""
        inputs = jnp.asarray(query, self.database.blocks[0].keys.dtype)
        return explain(Linear(), self.database, self.table(), inputs, count=count, direction=direction)

    def weight_matrix(self) -> jax.Array:
        """The trained layer's weights, [D, F]."""
        return weight_matrix(self.database, self.table())

    def table(self) -> CoefficientTable:
        """The entries' weights as coefficients by creation step."""
        weights = self.weights.weights
        column = jnp.asarray(pad_by_step(weights[0], weights[1:]), self.database.blocks[0].keys.dtype)
        return CoefficientTable(column, column)


def _dense(learner: Learner, state: State, layer: GrowingLayer) -> DenseLayer:
    """The dense layer that answers as a growing one does."""
    if not isinstance(layer.spec.kernel, Linear):
        raise ConfigError(
            f"expected layers of the linear kernel to collapse into matrices; found "
            f"{type(layer.spec.kernel).__name__} in {layer.name}"
        )
    inputs, outputs = layer.spec.key_features, layer.spec.value_features
    dense = DenseLayer(layer.name, inputs, outputs, rngs=nnx.Rngs(0), draw=nnx.initializers.zeros)
    # A linear function is what it answers to unit vectors, wherever its entries lie.
    dense.kernel[...] = jnp.asarray(learner.query(state, layer.name, np.eye(inputs)))
    return dense


def _replace(network: nnx.Module, path: Sequence[Any], layer: nnx.Module) -> None:
    *parents, last = path
    holder: Any = network
    for part in parents:
        holder = holder[part] if isinstance(part, int) else getattr(holder, part)
    if isinstance(last, int):
        holder[last] = layer
    else:
        setattr(holder, last, layer)


@partial(jax.jit, static_argnums=0)
def _collapse(shards: Shards, blocks: tuple[Block, ...], coefficients: tuple[Coefficients, ...]) -> jax.Array:
    def product(rows: Any, _: Any) -> Any:
        parts = [(block.keys * c.values[:, None]).T @ block.values for block, c in zip(*rows, strict=True)]
        return shards.total(reduce(add, parts))

    matrix: jax.Array = shards.spread(product, (blocks, coefficients), (), False)
    return matrix
