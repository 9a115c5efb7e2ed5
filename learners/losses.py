"""Losses per example, and the scores that go with them."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax


@dataclass(frozen=True)
class Task:
    """What the outputs mean: C class logits, or C regression targets."""

    outputs: int  # C
    classification: bool

    @property
    def loss(self) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """Outputs [B, C] and targets → losses [B]."""
        return cross_entropy if self.classification else squared_error


def cross_entropy(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Softmax cross-entropy of logits [B, C] with integer labels [B], in nats: [B]."""
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
    return losses


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Squared error summed over outputs [B, C] against targets [B, C] (or [B] where C is 1): [B]."""
    return jnp.sum((outputs - targets.reshape(outputs.shape)) ** 2, axis=1)
