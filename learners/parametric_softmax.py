"""The parametric softmax layer: a softmax layer of fixed size whose entries are all trained (F.5)."""

import jax
import jax.numpy as jnp
from flax import nnx

from .dense import DenseLayer
from .layers import Recall


class ParametricSoftmaxLayer(nnx.Module):
    """s(q) = Σ exp(⟨k, q⟩/(T·√D))·v / Σ w·exp(⟨k, q⟩/(T·√D)) over entries that are parameters.

    Keys and values are two dense layers, NAME_keys and NAME_values, around a softmax. Without weights all w
    are 1, which the paper found to train more stably; with them v is a weighted value, as in growing layers.

    Args:
      name: names the layer.
      inputs: numbers per query, D.
      outputs: numbers per value, F.
      entries: N.
      temperature: T.
      weighted: whether entries have trained weights; they start at 1/N, and values at that share.
      rngs: draws keys and values, of unit root mean square.
    """

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        entries: int,
        temperature: float,
        *,
        weighted: bool,
        rngs: nnx.Rngs,
    ) -> None:
        self.name = name
        self.scale = 1 / (temperature * inputs**0.5)
        share = 1 / entries if weighted else 1.0
        unit, shared = nnx.initializers.normal(1.0), nnx.initializers.normal(share)
        self.keys = DenseLayer(f"{name}_keys", inputs, entries, rngs=rngs, draw=unit)
        self.values = DenseLayer(f"{name}_values", entries, outputs, rngs=rngs, draw=shared)
        weights = jnp.full(entries, share, jnp.result_type(float))
        self.weights = nnx.Param(weights) if weighted else None

    def __call__(self, queries: jax.Array, recall: Recall) -> jax.Array:
        """Outputs [B, F] for queries [B, D]."""
        logits = self.scale * self.keys(queries, recall)
        if self.weights is None:
            return self.values(jax.nn.softmax(logits), recall)
        # The largest logit cancels; it keeps the exponentials finite.
        similarity = jnp.exp(logits - jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True)))
        denominator = (similarity @ self.weights[...])[:, None]
        safe = jnp.where(denominator == 0, 1, denominator)
        return self.values(jnp.where(denominator == 0, 0, similarity / safe), recall)
