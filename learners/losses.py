"""What a network's outputs mean, and the losses per example that follow from that."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .language import Tokens, token_losses, tokens_of


@dataclass(frozen=True)
class Task:
    """What the outputs mean: C class logits, C regression targets, or C words to follow every token.

    With words, an example is a text of T tokens, the outputs are logits [B, T, C], and y [B, T, 2] holds the
    word to be predicted (−1: none) and the number of the attribute that it tells (−1: none).
    """

    outputs: int  # C
    classification: bool  # whether targets are indices, of classes or words
    attributes: tuple[str, ...] | None = None  # what the texts tell of, by number; None: no texts

    @property
    def language(self) -> bool:
        """Whether examples are texts."""
        return self.attributes is not None

    def loss(self, outputs: jax.Array, y: jax.Array) -> jax.Array:
        """Losses [B] of outputs [B, …] against targets; that of a text is summed over its words."""
        if self.language:
            return jnp.sum(token_losses(outputs, y[..., 0]), axis=1)
        return cross_entropy(outputs, y) if self.classification else squared_error(outputs, y)

    def kept(self, outputs: jax.Array, y: jax.Array) -> jax.Array | Tokens:
        """What is kept of the outputs: of texts, the likeliest words and each word's loss."""
        return tokens_of(outputs, y[..., 0]) if self.language else outputs

    def places(self, y: np.ndarray, least: int = 1) -> np.ndarray:
        """The numbers, among all tokens of a batch of texts, of those whose next word belongs to a value.

        Args:
          y: [B, T, 2] targets.
          least: of the result's length.

        Returns:
          [Q] int32 in ascending order, filled up with B·T to one of few lengths.
        """
        found = np.flatnonzero(y[..., 1].reshape(-1) >= 0).astype(np.int32)
        grain = 2 ** max(0, len(found).bit_length() - 4)  # at most an eighth of the length is filled up
        length = max(least, -(-len(found) // grain) * grain)
        filled = np.full(length, y[..., 1].size, np.int32)
        filled[: len(found)] = found
        return filled


def cross_entropy(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Softmax cross-entropy of logits [B, C] with integer labels [B], in nats: [B]."""
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
    return losses


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Squared error summed over outputs [B, C] against targets [B, C] (or [B] where C is 1): [B]."""
    return jnp.sum((outputs - targets.reshape(outputs.shape)) ** 2, axis=1)
