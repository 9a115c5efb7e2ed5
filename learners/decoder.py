"""A small decoder of texts in the form of Gemma 3, whose feed-forward parts may be growing layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from .attention import Attention, Cache
from .feed_forward import FeedForward
from .layers import Recall
from .networks import Network
from .norms import RMSNorm


@dataclass(frozen=True)
class AttentionShape:
    """What all layers' attention shares."""

    heads: int
    groups: int  # heads of keys and values
    size: int  # numbers of a head
    window: int  # how many tokens a local layer sees, the present one included
    local_base: float
    global_base: float


class DecoderLayer(nnx.Module):
    """x ← x + norm(attend(norm(x))), then x ← x + norm(feed_forward(norm(x))).

    Args:
      width: numbers per token, D.
      shape: of the attention.
      feed_forward: what follows it.
      local: whether only the tokens in the window are seen.
      post_norm: whether a norm follows the feed-forward part, if that allows for one.
      rngs: draws the attention's weights.
    """

    def __init__(
        self,
        width: int,
        shape: AttentionShape,
        feed_forward: FeedForward,
        *,
        local: bool,
        post_norm: bool,
        rngs: nnx.Rngs,
    ) -> None:
        self.local = local
        self.attention = Attention(
            width,
            shape.heads,
            shape.groups,
            shape.size,
            base=shape.local_base if local else shape.global_base,
            rngs=rngs,
        )
        self.feed_forward = feed_forward
        self.before_attention, self.after_attention = RMSNorm(width), RMSNorm(width)
        self.before_feed_forward = RMSNorm(width)
        self.after_feed_forward = RMSNorm(width) if post_norm and feed_forward.normed else None

    def __call__(
        self,
        x: jax.Array,
        positions: jax.Array,
        visible: jax.Array,
        recall: Recall,
        cache: Cache | None = None,
    ) -> tuple[jax.Array, Cache]:
        """See `Attention`; x is [B, T, D]."""
        change, cache = self.attention(self.before_attention(x), positions, visible, cache)
        x = x + self.after_attention(change)
        change = self.feed_forward(self.before_feed_forward(x), recall)
        if self.after_feed_forward is not None:
            change = self.after_feed_forward(change)
        return x + change, cache


class Decoder(Network):
    """Logits of the word that follows each token.

    An input is [B, T, 2] int32: a word, and the number of the text that it belongs to, from 1; texts packed
    into one sequence do not see each other. Embeddings are multiplied by √D, and read out the words again.

    Args:
      words: size of the vocabulary, C.
      width: numbers per token, D.
      shape: of the attention.
      feed_forward: of each layer.
      global_every: every so many layers one sees all earlier tokens, the others their window.
      post_norm: whether norms follow the feed-forward parts that allow for one.
      rngs: draws the weights.
    """

    def __init__(
        self,
        words: int,
        width: int,
        shape: AttentionShape,
        feed_forward: Sequence[FeedForward],
        *,
        global_every: int,
        post_norm: bool,
        rngs: nnx.Rngs,
    ) -> None:
        self.width, self.window = width, shape.window
        draw = nnx.initializers.normal(width**-0.5)
        self.embedding = nnx.Param(draw(rngs.params(), (words, width), jnp.result_type(float)))
        self.layers = nnx.List(
            [
                DecoderLayer(
                    width, shape, part, local=(number + 1) % global_every != 0, post_norm=post_norm, rngs=rngs
                )
                for number, part in enumerate(feed_forward)
            ]
        )
        self.norm = RMSNorm(width)

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        """Logits [B, T, C] for words and texts [B, T, 2]."""
        words, texts = x[..., 0], x[..., 1]
        positions = jnp.arange(x.shape[1], dtype=jnp.int32)
        same = texts[:, :, None] == texts[:, None]
        return self._logits(words, positions, positions, same, recall, [None] * len(self.layers))[0]

    def extend(
        self, words: jax.Array, start: jax.Array, caches: Sequence[Cache], recall: Recall
    ) -> tuple[jax.Array, list[Cache]]:
        """Goes on with texts of which the first tokens were seen.

        Args:
          words: [B, T] the next words.
          start: [] int32 how many came before.
          caches: per layer, with room for these.
          recall: the memories.

        Returns:
          Logits [B, T, C], and the caches with these words.
        """
        positions = start + jnp.arange(words.shape[1], dtype=jnp.int32)
        places = jnp.arange(caches[0].keys.shape[1], dtype=jnp.int32)
        return self._logits(words, positions, places, jnp.bool_(True), recall, caches)

    def empty_caches(self, batch: int, places: int) -> list[Cache]:
        """Room for so many tokens of B texts."""
        return [layer.attention.empty_cache(batch, places) for layer in self.layers]

    def _logits(
        self,
        words: jax.Array,
        positions: jax.Array,
        places: jax.Array,
        same: jax.Array,
        recall: Recall,
        caches: Sequence[Cache | None],
    ) -> tuple[jax.Array, list[Cache]]:
        """`places` are the positions [S] of what may be seen, `same` whether it is of the same text."""
        distance = positions[:, None] - places
        seen = (distance >= 0) & jnp.broadcast_to(same, (words.shape[0], *distance.shape))
        near = seen & (distance < self.window)
        stream = self.embedding[...][words] * self.width**0.5
        present = []
        for layer, cache in zip(self.layers, caches, strict=True):
            stream, cache = layer(stream, positions, near if layer.local else seen, recall, cache)
            present.append(cache)
        return self.norm(stream) @ self.embedding[...].T, present
