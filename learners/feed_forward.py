"""The feed-forward part of a decoder's layer: GeGLU, or a growing database in its place."""

import jax
import jax.numpy as jnp
from flax import nnx

from ..errors import ConfigError
from .attention import linear
from .language import chosen_tokens, every_token
from .layers import GrowingLayer, GrowingSpec, Recall


class FeedForward(nnx.Module):
    """A function of every token by itself."""

    normed: bool  # whether a norm may follow: one of an output that starts at 0 multiplies gradients by 1000

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        """Outputs [B, T, D] for tokens [B, T, D]."""
        raise NotImplementedError


class GeGLU(FeedForward):
    """W₃·(gelu(W₁x) ⊙ W₂x), with the tanh form of gelu and without biases (Shazeer, 2020).

    Args:
      width: numbers per token, D.
      hidden: numbers in between.
      rngs: draws the weights.
    """

    def __init__(self, width: int, hidden: int, *, rngs: nnx.Rngs) -> None:
        self.normed = True
        self.gate, self.up = (linear(width, hidden, rngs=rngs) for _ in range(2))
        self.down = linear(hidden, width, rngs=rngs)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        hidden: jax.Array = jax.nn.gelu(self.gate(x), approximate=True) * self.up(x)
        return self.down(hidden)


class GrowingFeedForward(FeedForward):
    """A growing layer that answers every token, or those that its policy names; 0 for the others.

    Args:
      name: names the layer's memory.
      spec: the layer's, with a policy for tokens.
    """

    def __init__(self, name: str, spec: GrowingSpec) -> None:
        assert spec.tokens is not None
        self.normed = False
        self.reading = spec.tokens.reading
        self.memory = GrowingLayer(name, spec)
        self.gate = _gate(spec.key_features) if self.reading == "gate" else None

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        batch, tokens, width = x.shape
        rows = x.reshape(-1, width)
        if self.reading == "values":
            numbers = self._known(recall)
            queries = rows.at[numbers].get(mode="fill", fill_value=0)
            answers = self.memory(queries, recall, chosen_tokens(numbers, tokens))
            return jnp.zeros_like(rows).at[numbers].set(answers, mode="drop").reshape(x.shape)
        answers = self.memory(rows, recall, every_token(batch, tokens)).reshape(x.shape)
        return answers if self.gate is None else jax.nn.sigmoid(self.gate(x)) * answers

    def _known(self, recall: Recall) -> jax.Array:
        if recall.values is None:
            raise ConfigError(
                f"layer {self.memory.name} is read only where the next word belongs to a value, which the "
                f"targets alone tell: set learner.rbf.tokens.reading to everywhere or gate to do without them"
            )
        return recall.values


def _gate(width: int) -> nnx.Linear:
    """Half open for every token at the start."""
    zeros, floating = nnx.initializers.zeros, jnp.result_type(float)
    return nnx.Linear(width, 1, kernel_init=zeros, param_dtype=floating, rngs=nnx.Rngs(0))
