"""The Delta update of dense layers: descent that first forgets along the inputs it is given (E.1, F.8.1)."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

Normalised = Literal["nothing", "decay", "everything"]


def add_delta_decay(
    decay: float, normalised: Normalised = "nothing"
) -> optax.GradientTransformationExtraArgs:
    """Adds λ·Xᵀ·X·W to the gradients of weights W [D, F] that were given inputs X [B, D] (Eq. 122).

    Args:
      decay: λ ≥ 0.
      normalised: what of an example's part is divided by its ‖x‖²: nothing, its decay (F.8.1), or everything
        it writes, decay and gradient (the write strength of a normalised delta rule, Eq. 103 with λ/‖x‖²).

    Returns:
      A transformation whose update asks for parameters, `inputs` and `output_gradients` (see `dense`).
    """

    def update(
        gradients: Any,
        state: optax.EmptyState,
        parameters: Any = None,
        *,
        inputs: Any,
        output_gradients: Any,
        **_: Any,
    ) -> tuple[Any, optax.EmptyState]:
        if parameters is None:
            raise ValueError(
                "expected parameters, which decay along the inputs, beside gradients; found none"
            )

        def change(
            gradient: jax.Array, weights: jax.Array, given: jax.Array, at_output: jax.Array
        ) -> jax.Array:
            rows, errors = (a.reshape(-1, a.shape[-1]) for a in (given, at_output))
            scaled = rows if normalised == "nothing" else rows * _inverse_squares(rows)
            if normalised == "everything":
                gradient = scaled.T @ errors
            return gradient + decay * (scaled.T @ (rows @ weights))

        return jax.tree.map(change, gradients, parameters, inputs, output_gradients), state

    return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)


def delta(
    learning_rate: optax.ScalarOrSchedule, decay: float, normalised: Normalised = "nothing"
) -> optax.GradientTransformationExtraArgs:
    """The Delta optimiser for matrices of weights: W ← W·(I − λη·X·Xᵀ) − η·∇ (Eq. 122).

    One example at a time with write strength s and step ε this is Eq. 103 where η = s·ε and λ = 1/ε.

    Args:
      learning_rate: η; a schedule also schedules the decay.
      decay: λ ≥ 0.
      normalised: see `add_delta_decay`.
    """
    return optax.chain(add_delta_decay(decay, normalised), optax.scale_by_learning_rate(learning_rate))


def _inverse_squares(rows: jax.Array) -> jax.Array:
    """[B, 1] 1/‖x‖², zero where x is."""
    squares = jnp.sum(rows * rows, axis=1, keepdims=True)
    return jnp.where(squares == 0, 0, 1 / jnp.where(squares == 0, 1, squares))
