"""Elastic weight consolidation: parameters are held where earlier phases left them, as they mattered there.

Kirkpatrick et al. (2017) in the online form of Schwarz et al. (2018), with one anchor and summed importances:
the loss gains λ/2·Σ F·(θ − θ*)², F the diagonal of the empirical Fisher information.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class ElasticState(NamedTuple):
    """The state of `elastic`."""

    inner: Any  # the state of the optimiser inside
    anchor: Any  # θ*, the parameters at the last consolidation
    importance: Any  # F, like the parameters; zeros before the first


def elastic(optimiser: optax.GradientTransformation, strength: float) -> optax.GradientTransformation:
    """An optimiser whose gradients gain λ·F·(θ − θ*).

    Args:
      optimiser: takes the steps.
      strength: λ.
    """
    inner = optax.with_extra_args_support(optimiser)

    def init(parameters: Any) -> ElasticState:
        anchor = jax.tree.map(jnp.array, parameters)  # a copy: updates consume the parameters
        return ElasticState(inner.init(parameters), anchor, jax.tree.map(jnp.zeros_like, parameters))

    def update(gradients: Any, state: ElasticState, parameters: Any = None, **extra: Any) -> Any:
        pulled = jax.tree.map(
            lambda g, f, p, a: g + strength * f * (p - a),
            gradients,
            state.importance,
            parameters,
            state.anchor,
        )
        updates, after = inner.update(pulled, state.inner, parameters, **extra)
        return updates, state._replace(inner=after)

    return optax.GradientTransformationExtraArgs(init, update)


def consolidated(state: ElasticState, parameters: Any, importance: Any) -> ElasticState:
    """The state after a phase: the anchor moves to the parameters as they are, importances add up.

    Args:
      state: the optimiser's state.
      parameters: θ.
      importance: of the phase that ends (see `Learner.squared_gradients`).
    """
    total = jax.tree.map(jnp.add, state.importance, importance)
    return ElasticState(state.inner, jax.tree.map(jnp.array, parameters), total)
