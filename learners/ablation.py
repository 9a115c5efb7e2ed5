"""What a trained network owes to a part of it, found by taking the part away.

`linearised` replaces the exponential of softmax layers by its first-order expansion, exp(x) ≈ 1 + x, after
training (Fig. 3 right): where predictions suffer, the layers work beyond the linear regime.
"""

from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..errors import ConfigError
from ..memory.coefficients import CoefficientTable, block_coefficients
from ..memory.database import Block
from ..memory.kernels import WeightedSoftmax
from ..memory.tiers import Tiers
from .layers import GrowingLayer, Recall
from .learner import Learner
from .state import Memory, State


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """What is left of a softmax layer's entries where the exponential is linear; c is T·√D."""

    values: jax.Array  # [F] Σ ṽ
    products: jax.Array  # [D, F] Σ k·ṽᵀ / c
    weight: jax.Array  # [] Σ w
    weighted_keys: jax.Array  # [D] Σ w·k / c


class LinearisedSoftmax(nnx.Module):
    """(Σṽ + (Σṽkᵀ)·q/c) / (Σw + (Σwk)·q/c): a softmax layer with 1 + x in the place of exp(x)."""

    def __init__(self, moments: Moments) -> None:
        self.values = nnx.Param(moments.values)
        self.products = nnx.Param(moments.products)
        self.weight = nnx.Param(moments.weight)
        self.weighted_keys = nnx.Param(moments.weighted_keys)

    def __call__(self, queries: jax.Array, recall: Recall) -> jax.Array:
        """Outputs [B, F] for queries [B, D]; zeros where the denominator is zero."""
        denominator = (self.weight[...] + queries @ self.weighted_keys[...])[:, None]
        none = denominator == 0
        numerator = self.values[...] + queries @ self.products[...]
        return jnp.where(none, 0, numerator / jnp.where(none, 1, denominator))


def linearised(learner: Learner, state: State) -> tuple[Learner, State]:
    """The network of a state with exp(x) replaced by 1 + x in its growing softmax layers.

    Args:
      learner: the learner.
      state: its state, which stays usable.

    Returns:
      A learner without growing layers, and its state.

    Raises:
      ConfigError: there is no growing layer, or a growing layer's kernel is not a softmax.
    """
    if not learner.layers:
        raise ConfigError("linearise: expected growing softmax layers; found no growing layer")
    network = learner.network(state)
    for path, module in list(nnx.iter_modules(network)):
        if isinstance(module, GrowingLayer):
            _put(network, path, LinearisedSoftmax(_moments(module, state.memories[module.name])))
    fixed = Learner(network, learner.task)
    return fixed, fixed.init(jax.random.key(0))


def _put(network: nnx.Module, path: tuple[Any, ...], module: nnx.Module) -> None:
    parent: Any = network
    for name in path[:-1]:
        parent = parent[name] if isinstance(name, int) else getattr(parent, name)
    if isinstance(path[-1], int):
        parent[path[-1]] = module
    else:
        setattr(parent, path[-1], module)


def _moments(layer: GrowingLayer, memory: Memory) -> Moments:
    kernel = layer.spec.kernel
    if not isinstance(kernel, WeightedSoftmax):
        raise ConfigError(
            f"linearise: expected softmax layers, whose exponential is replaced; found "
            f"{type(kernel).__name__} in {layer.name}"
        )
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
