"""Texts as examples: the loss of each token, and which tokens a growing layer reads and stores."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

NO_WORD = -1  # the target of a token that predicts nothing


class Tokens(NamedTuple):
    """What is kept of the outputs for B texts of T tokens."""

    predicted: jax.Array  # [B, T] int32 the likeliest word after each token
    losses: jax.Array  # [B, T] cross-entropy of each target in nats; 0 where there is none


@config(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False), kw_only=True)
class TokenConfig:
    """Which tokens of a text a growing layer answers, and which of them it stores."""

    # Where it is read: at every token; at every token through a learnt gate, which is the sigmoid of a linear
    # map of the query; or only where the next word belongs to a value. The last needs the targets: it is told
    # where facts stand, and cannot be generated with.
    reading: Literal["everywhere", "gate", "values"] = "everywhere"
    # Which tokens may become entries, if the memory's own admission agrees: all that have a target, those
    # whose target belongs to a value, or those whose loss exceeds loss_threshold.
    admission: Literal["all", "values", "high_loss"] = "all"
    # Nats (high_loss).
    loss_threshold: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "TokenConfig":
        if (self.admission == "high_loss") != (self.loss_threshold is not None):
            raise ValueError("admission 'high_loss' and loss_threshold belong together: set both or neither")
        return self


class Places(NamedTuple):
    """Which tokens a growing layer's R rows belong to."""

    token: jax.Array  # [R] int32 number among all tokens of the batch; B·T: the row is filling
    example: jax.Array  # [R] int32 number of the example in the batch; B: the row is filling


def token_losses(outputs: jax.Array, words: jax.Array) -> jax.Array:
    """Cross-entropy of logits [B, T, C] with words [B, T] in nats, [B, T]; 0 where there is no word."""
    known = jnp.maximum(words, 0)
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, known)
    return jnp.where(words == NO_WORD, 0, losses)


def tokens_of(outputs: jax.Array, words: jax.Array) -> Tokens:
    """What is kept of logits [B, T, C] for target words [B, T]."""
    predicted = jnp.argmax(outputs, axis=-1).astype(jnp.int32)
    return Tokens(predicted, token_losses(outputs, words))


def every_token(batch: int, tokens: int) -> Places:
    """The places of rows that are all B·T tokens in their order."""
    numbers = jnp.arange(batch * tokens, dtype=jnp.int32)
    return Places(numbers, numbers // tokens)


def chosen_tokens(numbers: jax.Array, tokens: int) -> Places:
    """The places of rows that are the tokens of given numbers [R] among all, T a text."""
    return Places(numbers, numbers // tokens)


def may_enter(policy: TokenConfig, places: Places, y: jax.Array, losses: jax.Array) -> jax.Array:
    """Which rows may become entries, [R] bool.

    Args:
      policy: the layer's.
      places: the rows' tokens.
      y: targets [B, T, 2].
      losses: [B, T] of the tokens.
    """

    def at_rows(values: jax.Array, filling: float) -> jax.Array:
        return values.reshape(-1).at[places.token].get(mode="fill", fill_value=filling)

    match policy.admission:
        case "all":
            return at_rows(y[..., 0], NO_WORD) != NO_WORD
        case "values":
            return at_rows(y[..., 1], -1) >= 0
        case "high_loss":
            assert policy.loss_threshold is not None
            return at_rows(losses, 0) > policy.loss_threshold
