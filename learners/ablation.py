"""What a trained network owes to a part of it, found by taking the part away.

`linearised` replaces the exponential of softmax layers by its first-order expansion, exp(x) ≈ 1 + x, after
training (Fig. 3 right): where predictions suffer, the layers work beyond the linear regime.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError
from ..memory.coefficients import CoefficientTable, block_coefficients
from ..memory.database import Block
from ..memory.kernels import WeightedSoftmax
from ..memory.tiers import Tiers
from .layers import GrowingLayer, Recall
from .learner import Learner
from .state import Memory, State

_EXAMPLES = 1024  # predicted at once


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """A softmax layer with a linear exponential: (Σṽ + (Σṽkᵀ)·q/c) / (Σw + (Σwk)·q/c), c = T·√D."""

    values: jax.Array  # [F] Σ ṽ
    products: jax.Array  # [D, F] Σ k·ṽᵀ / c
    weight: jax.Array  # [] Σ w
    weighted_keys: jax.Array  # [D] Σ w·k / c

    def __call__(self, queries: jax.Array) -> jax.Array:
        """[B, F]; zeros where the denominator is zero."""
        denominator = (self.weight + queries @ self.weighted_keys)[:, None]
        none = denominator == 0
        return jnp.where(none, 0, (self.values + queries @ self.products) / jnp.where(none, 1, denominator))


@dataclass
class LinearRecall(Recall):
    """A recall in which layers answer by their moments."""

    moments: Mapping[str, Moments] = field(default_factory=dict)

    def _retrieve(self, layer: GrowingLayer, queries: jax.Array) -> jax.Array:
        return self.moments[layer.name](queries)


def linearised(learner: Learner, state: State) -> Callable[[np.ndarray], np.ndarray]:
    """The network of a state with exp(x) replaced by 1 + x in its growing softmax layers.

    Args:
      learner: the learner.
      state: its state, which stays usable.

    Returns:
      Outputs [n, C] for examples x [n, …].

    Raises:
      ConfigError: a growing layer's kernel is not a softmax.
    """
    moments = {}
    for name, layer in learner.layers.items():
        if not isinstance(layer.spec.kernel, WeightedSoftmax):
            kernel = type(layer.spec.kernel).__name__
            raise ConfigError(
                f"linearise: expected softmax layers, whose exponential is replaced; found {kernel} in {name}"
            )
        moments[name] = _moments(layer.spec.kernel, state.memories[name])
    network = learner.network(state)

    @jax.jit
    def answer(moments: Mapping[str, Moments], x: jax.Array) -> jax.Array:
        return network(x, LinearRecall({}, {}, moments=moments))

    def predict(x: np.ndarray) -> np.ndarray:
        parts = [x[start : start + _EXAMPLES] for start in range(0, len(x), _EXAMPLES)]
        outputs = [np.asarray(answer(moments, jnp.asarray(part, jnp.result_type(float)))) for part in parts]
        return np.concatenate(outputs) if outputs else np.empty((0, learner.task.outputs))

    return predict


def _moments(kernel: WeightedSoftmax, memory: Memory) -> Moments:
    database, table = memory.database, memory.table
    blocks = database.blocks if memory.cold is None else Tiers(database, memory.cold, table).blocks()
    parts = [_of_block(kernel, block, table) for block in blocks]
    total: Moments = jax.tree.map(lambda *sums: sum(sums[1:], sums[0]), *parts)
    return total


@partial(jax.jit, static_argnums=0)
def _of_block(kernel: WeightedSoftmax, block: Block, table: CoefficientTable | None) -> Moments:
    coefficients = block_coefficients(block, table)
    assert block.weights is not None
    assert coefficients.weights is not None
    values = block.values * coefficients.values[:, None]
    weights = block.weights * coefficients.weights
    scale = 1 / (kernel.temperature * sqrt(block.keys.shape[1]))
    return Moments(
        jnp.sum(values, axis=0), scale * block.keys.T @ values, jnp.sum(weights), scale * weights @ block.keys
    )
