"""Cos-Bochner: random Fourier features of the RBF kernel in a layer's place (Bochner; Rahimi & Recht, 2007).

With frequencies W_ij ~ N(0, 1/ℓ²) and ℓ² = T·√D, ⟨φ(x), φ(y)⟩ → exp(−‖x − y‖²/2ℓ²) as the number of features
grows: with W and b fixed, SGD on V is what a growing RBF layer of temperature T stores.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from .cosine import cosine, sine
from .feed_forward import FeedForward
from .layers import Recall


class CosBochner(FeedForward):
    """V·φ(x), where V starts at 0.

    φ(x) = √(2/m)·cos(Wx + b) with b ~ U[0, 2π], or in pairs √(2/m)·(cos(Wx), sin(Wx)) with m/2 frequencies,
    whose products vary less: by (1 − k²)²/m against (1 − k² + k⁴/2)/m for a kernel value k.

    Args:
      width: numbers per token, D.
      features: m; even where they are paired.
      temperature: T.
      paired: whether frequencies have a cosine and a sine.
      trained: whether W and b are trained beside V.
      rngs: draws W and b.
    """

    def __init__(
        self, width: int, features: int, temperature: float, *, paired: bool, trained: bool, rngs: nnx.Rngs
    ) -> None:
        self.normed = False
        self.paired, self.trained = paired, trained
        dtype, count = jnp.result_type(float), features // 2 if paired else features
        draw = jax.random.normal(rngs.params(), (width, count), dtype)
        self.frequencies = nnx.Param(draw * (temperature * width**0.5) ** -0.5)
        phases = jax.random.uniform(rngs.params(), (count,), dtype, maxval=2 * jnp.pi)
        self.phases = None if paired else nnx.Param(phases)
        self.values = nnx.Param(jnp.zeros((features, width), dtype))

    def __call__(self, x: jax.Array, recall: Recall) -> jax.Array:
        answers: jax.Array = self.features(x) @ self.values[...]
        return answers

    def features(self, x: jax.Array) -> jax.Array:
        """φ(x), [..., m], for x [..., D]."""
        angles = x @ self._drawn(self.frequencies)
        scale: float = (2 / self.values.shape[0]) ** 0.5
        if self.phases is None:
            return scale * jnp.concatenate([cosine(angles), sine(angles)], axis=-1)
        return scale * cosine(angles + self._drawn(self.phases))

    def _drawn(self, parameter: nnx.Param[jax.Array]) -> jax.Array:
        value: jax.Array = parameter[...]
        return value if self.trained else jax.lax.stop_gradient(value)
