"""A Vision Transformer whose feed-forward parts may grow (F.11)."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from .dense import DenseLayer
from .language import every_token
from .layers import GrowingLayer, Recall
from .networks import Network
from .parts import Part

_SMALL = nnx.initializers.normal(0.02)


@dataclass(frozen=True)
class Patches:
    """How an image is cut into square patches."""

    height: int  # pixels
    width: int
    channels: int
    size: int  # pixels along a side of a patch, a divisor of height and width

    @property
    def count(self) -> int:
        """P."""
        return (self.height // self.size) * (self.width // self.size)

    @property
    def features(self) -> int:
        """Numbers of a patch."""
        return self.size * self.size * self.channels

    def cut(self, images: jax.Array) -> jax.Array:
        """Patches [B, P, …] of images [B, …] in rows of pixels, flat or not."""
        rows, columns = self.height // self.size, self.width // self.size
        tiles = images.reshape(-1, rows, self.size, columns, self.size, self.channels)
        return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(-1, self.count, self.features)


def attention_of_all(query: jax.Array, key: jax.Array, value: jax.Array, **_: object) -> jax.Array:
    """Softmax attention [B, T, H, E] to all keys, in its inputs' precision: jax.nn's stops at float32."""
    scores = jnp.einsum("bthe,bshe->bhts", query, key) * query.shape[-1] ** -0.5
    return jnp.einsum("bhts,bshe->bthe", jax.nn.softmax(scores), value)


class TransformerBlock(nnx.Module):
    """x ← x + attention(LayerNorm(x)), then x ← x + part(LayerNorm(x)), the part for every token by itself.

    Args:
      width: numbers per token, D.
      heads: of the attention.
      part: D numbers to D numbers.
      rngs: draws the attention's weights.
    """

    def __init__(self, width: int, heads: int, part: Part, *, rngs: nnx.Rngs) -> None:
        floating = jnp.result_type(float)
        self.attention = nnx.MultiHeadAttention(
            heads,
            width,
            decode=False,
            deterministic=True,
            param_dtype=floating,
            attention_fn=attention_of_all,
            rngs=rngs,
        )
        self.before, self.between = (nnx.LayerNorm(width, param_dtype=floating, rngs=rngs) for _ in range(2))
        self.part = part

    def __call__(self, tokens: jax.Array, recall: Recall, *, kept: int | None = None) -> jax.Array:
        """Tokens [B, T, D] after the block; with `kept` only the first so many of them."""
        normed = self.before(tokens)
        attended: jax.Array = tokens[:, :kept] + self.attention(normed[:, :kept], normed)
        inputs = self.between(attended)
        if not isinstance(self.part, GrowingLayer):
            return attended + self.part(inputs, recall)
        batch, count, width = inputs.shape
        answers = self.part(inputs.reshape(-1, width), recall, every_token(batch, count))
        total: jax.Array = attended + answers.reshape(attended.shape)
        return total


class VisionTransformer(Network):
    """Patches and a class token through blocks; the class token is read out after a last LayerNorm.

    Args:
      patches: how images are cut.
      width: numbers per token, D.
      heads: of the attention.
      parts: the blocks' feed-forward parts.
      outputs: C.
      rngs: draws the weights.
    """

    def __init__(
        self,
        patches: Patches,
        width: int,
        heads: int,
        parts: Sequence[Part],
        outputs: int,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        floating = jnp.result_type(float)
        self.patches = patches
        self.embedding = nnx.Linear(patches.features, width, param_dtype=floating, rngs=rngs)
        self.class_token = nnx.Param(_SMALL(rngs.params(), (width,), floating))
        self.positions = nnx.Param(_SMALL(rngs.params(), (patches.count + 1, width), floating))
        self.blocks = nnx.List([TransformerBlock(width, heads, part, rngs=rngs) for part in parts])
        self.last_norm = nnx.LayerNorm(width, param_dtype=floating, rngs=rngs)
        self.readout = DenseLayer("readout", width, outputs, rngs=rngs)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        embedded = self.embedding(self.patches.cut(x))
        first = jnp.broadcast_to(self.class_token[...], (len(x), 1, embedded.shape[-1]))
        tokens = jnp.concatenate([first, embedded], axis=1) + self.positions[...]
        *blocks, last = self.blocks
        for block in blocks:
            tokens = block(tokens, recall)
        # Nothing is read of the other tokens any more: their part would neither matter nor learn.
        answer = last(tokens, recall, kept=1)[:, 0]
        return self.readout(self.last_norm(answer), recall)
