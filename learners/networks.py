"""Networks: residual stacks of growing layers, and the parametric network of the same shape."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from .layers import GrowingLayer, Recall, rms_norm

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
    """e ← e + W₂·σ(W₁·norm(e)) per block, then a dense readout (Eq. 12): the parametric baseline.

    Norms are RMSNorm with a trained scale.
    """

    def __init__(
        self, features: int, outputs: int, blocks: int, width: int, activation: str, *, rngs: nnx.Rngs
    ) -> None:
        dtype = jnp.result_type(float)
        norm = partial(nnx.RMSNorm, features, param_dtype=dtype, rngs=rngs)
        dense = partial(nnx.Linear, use_bias=False, param_dtype=dtype, rngs=rngs)
        self.activation = activation
        self.norms = nnx.List([norm() for _ in range(blocks)])
        self.inner = nnx.List([dense(features, width) for _ in range(blocks)])
        self.outer = nnx.List([dense(width, features) for _ in range(blocks)])
        self.final_norm = norm()
        self.readout = dense(features, outputs)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        stream = x.reshape(x.shape[0], -1)
        activation = ACTIVATIONS[self.activation]
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            stream = stream + outer(activation(inner(norm(stream))))
        return self.readout(self.final_norm(stream))
