"""Networks: residual stacks of growing layers, and the parametric network of the same shape."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from .dense import DenseLayer
from .layers import GrowingLayer, Recall, rms_norm
from .parametric_softmax import ParametricSoftmaxLayer

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "softmax": jax.nn.softmax,
}


class Network(nnx.Module):
    """What a learner trains: a function of examples and of the memories of its growing layers."""

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        """Outputs [B, C] for examples x [B, …]."""
        raise NotImplementedError

    def growing_layers(self) -> list[GrowingLayer]:
        """The network's growing layers in the order of their names' appearance."""
        return [module for _, module in nnx.iter_modules(self) if isinstance(module, GrowingLayer)]

    def dense_layers(self) -> list[DenseLayer]:
        """The network's dense layers."""
        return [module for _, module in nnx.iter_modules(self) if isinstance(module, DenseLayer)]


class ResidualGrowingNetwork(Network):
    """e ← e + g(RMSNorm(e)) per growing block, then a growing readout of RMSNorm(e) (Eq. 13, F.2)."""

    def __init__(self, blocks: Sequence[GrowingLayer], readout: GrowingLayer) -> None:
        self.blocks = nnx.List(blocks)
        self.readout = readout

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        stream = x.reshape(x.shape[0], -1)
        for block in self.blocks:
            stream = stream + block(rms_norm(stream), recall)
        return self.readout(rms_norm(stream), recall)


class ResidualMLP(Network):
    """Residual blocks of dense layers, then a dense readout of norm(e): the parametric baseline.

    A block adds W₂·σ(W₁·norm(e)) to the stream e (Eq. 12) or, with one matrix, σ(W·norm(e)) (F.2). Norms are
    RMSNorm with a trained scale. Layers are named block0, block1, … (block0_inner and block0_outer where they
    are two) and readout.

    Args:
      features: numbers per example, D.
      outputs: C.
      blocks: residual blocks.
      width: hidden units of a block; None: blocks of one matrix.
      activation: σ, one of ACTIVATIONS.
      rngs: draws the weights.
    """

    def __init__(
        self, features: int, outputs: int, blocks: int, width: int | None, activation: str, *, rngs: nnx.Rngs
    ) -> None:
        norm = partial(nnx.RMSNorm, features, param_dtype=jnp.result_type(float), rngs=rngs)
        dense = partial(DenseLayer, rngs=rngs)
        self.activation = activation
        self.norms = nnx.List([norm() for _ in range(blocks)])
        names = [f"block{number}" for number in range(blocks)]
        if width is None:
            self.inner = nnx.List([dense(name, features, features) for name in names])
            self.outer: nnx.List[DenseLayer] = nnx.List([])
        else:
            self.inner = nnx.List([dense(f"{name}_inner", features, width) for name in names])
            self.outer = nnx.List([dense(f"{name}_outer", width, features) for name in names])
        self.final_norm = norm()
        self.readout = dense("readout", features, outputs)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        stream = x.reshape(x.shape[0], -1)
        activation = ACTIVATIONS[self.activation]
        for number, (norm, inner) in enumerate(zip(self.norms, self.inner, strict=True)):
            change = activation(inner(norm(stream), recall))
            stream = stream + (self.outer[number](change, recall) if self.outer else change)
        return self.readout(self.final_norm(stream), recall)


class ParametricSoftmaxNetwork(Network):
    """e ← e + s(RMSNorm(e)) per block, then a readout s(RMSNorm(e)): parametric softmax layers (F.5)."""

    def __init__(self, layers: Sequence[ParametricSoftmaxLayer]) -> None:
        self.layers = nnx.List(layers)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        stream = x.reshape(x.shape[0], -1)
        *blocks, readout = self.layers
        for block in blocks:
            stream = stream + block(rms_norm(stream), recall)
        return readout(rms_norm(stream), recall)
