"""RMSNorm with a trained scale, as Gemma has it."""

import jax
import jax.numpy as jnp
from flax import nnx

from .layers import rms_norm


class RMSNorm(nnx.Module):
    """x·(1 + s) / √(mean x² + 10⁻⁶) over the last axis; s starts at 0, so that weight decay pulls to 1."""

    def __init__(self, features: int) -> None:
        self.scale = nnx.Param(jnp.zeros(features, jnp.result_type(float)))

    def __call__(self, x: jax.Array) -> jax.Array:
        return rms_norm(x) * (1 + self.scale[...])
