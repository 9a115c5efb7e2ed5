"""Causal self-attention as Gemma 3 has it: normed queries and keys, rotary positions, grouped keys.

Positions enter only through rotations of queries and keys (Su et al., 2021), so that scores depend on the
distance of two tokens alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from .norms import RMSNorm


class Cache(NamedTuple):
    """What attention keeps of the tokens before: S places, the later ones of which are still free."""

    keys: jax.Array  # [B, S, K, H]
    values: jax.Array  # [B, S, K, H]


class Attention(nnx.Module):
    """Multi-head attention in which several heads share keys and values.

    Args:
      width: numbers per token, D.
      heads: of queries.
      groups: heads of keys and values, K; a divisor of `heads`.
      size: numbers of a head, H, even.
      base: of the rotations' wave lengths.
      rngs: draws the weights, of variance 1 / fan-in.
    """

    def __init__(
        self, width: int, heads: int, groups: int, size: int, *, base: float, rngs: nnx.Rngs
    ) -> None:
        self.base, self.heads, self.groups, self.size = base, heads, groups, size
        self.query = linear(width, heads * size, rngs=rngs)
        self.key = linear(width, groups * size, rngs=rngs)
        self.value = linear(width, groups * size, rngs=rngs)
        self.out = linear(heads * size, width, rngs=rngs)
        self.query_norm, self.key_norm = RMSNorm(size), RMSNorm(size)

    def __call__(
        self, x: jax.Array, positions: jax.Array, visible: jax.Array, cache: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """Attends.

        Args:
          x: tokens [B, T, D].
          positions: [T] int32, consecutive.
          visible: [B, T, S] bool which tokens each may see, itself always; S is T without a cache.
          cache: of the tokens before, and with room for these at their positions.

        Returns:
          [B, T, D], and the cache with these tokens.
        """
        batch, tokens, _ = x.shape
        shape = batch, tokens, -1, self.size
        queries = self.query_norm(self.query(x).reshape(shape))
        keys = self.key_norm(self.key(x).reshape(shape))
        present = Cache(rotated(keys, positions, self.base), self.value(x).reshape(shape))
        if cache is not None:
            put = jax.lax.dynamic_update_slice_in_dim
            present = jax.tree.map(lambda whole, new: put(whole, new, positions[0], 1), cache, present)
        queries = rotated(queries, positions, self.base) * self.size**-0.5
        grouped = queries.reshape(batch, tokens, self.groups, -1, self.size)
        scores = jnp.einsum("btkgh,bskh->bkgts", grouped, present.keys)
        scores = jnp.where(visible[:, None, None], scores, -jnp.inf)
        mixed = jnp.einsum("bkgts,bskh->btkgh", jax.nn.softmax(scores), present.values)
        return self.out(mixed.reshape(batch, tokens, -1)), present

    def empty_cache(self, batch: int, places: int) -> Cache:
        """Room for so many tokens of B texts."""
        shape = batch, places, self.groups, self.size
        return Cache(*(jnp.zeros(shape, self.query.kernel.dtype) for _ in Cache._fields))


def rotated(x: jax.Array, positions: jax.Array, base: float) -> jax.Array:
    """Turns the pair (i, i + H/2) of each head by position·base^(−2i/H).

    Args:
      x: [B, T, heads, H].
      positions: [T] int32.
      base: of the wave lengths.
    """
    half = x.shape[-1] // 2
    rates = base ** (-jnp.arange(half, dtype=x.dtype) / half)
    angles = positions[:, None, None].astype(x.dtype) * rates
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def linear(inputs: int, outputs: int, *, rngs: nnx.Rngs) -> nnx.Linear:
    """y = x·W without a bias; W is drawn with variance 1 / fan-in."""
    return nnx.Linear(inputs, outputs, use_bias=False, param_dtype=jnp.result_type(float), rngs=rngs)
