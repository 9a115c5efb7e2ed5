"""The Mesa (FOOF) update of dense layers: gradients whitened by the second moment of the inputs (E.4).

Replacing linear attention by the best linear map from all keys to all values gives W ← W − η·∇·(S + λI)⁻¹,
with S a discounted second moment of the layer's inputs.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

Form = Literal["cumulative", "static"]


class MesaState(NamedTuple):
    """What the update keeps of all inputs so far."""

    mass: jax.Array  # [] Γ: discounted number of batches
    moments: Any  # per matrix of weights [D, F]: S [D, D]


def scale_by_mesa(
    forgetting: float,
    regularisation: float,
    *,
    form: Form = "cumulative",
    newton_schulz: int | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Multiplies gradients by (S + λI)⁻¹, where S takes in the batch first.

    Args:
      forgetting: γ in [0, 1]; 1 weighs all batches alike.
      regularisation: λ > 0.
      form: "cumulative": S is a mean over batches, examples and features (Eqs. 119–121), so that λ means the
        same at every width and time; "static": S is a discounted sum over examples (E.4.1, FOOF), so that the
        steps shorten as examples accumulate.
      newton_schulz: iterations that approximate the inverse; None: solve exactly (Cholesky).

    Returns:
      A transformation whose update asks for `inputs` (see `dense`).
    """

    def init(parameters: Any) -> MesaState:
        moments = jax.tree.map(lambda w: jnp.zeros((w.shape[0], w.shape[0]), w.dtype), parameters)
        return MesaState(jnp.zeros((), jnp.result_type(float)), moments)

    def update(
        gradients: Any, state: MesaState, parameters: Any = None, *, inputs: Any, **_: Any
    ) -> tuple[Any, MesaState]:
        mass = forgetting * state.mass + 1
        kept = forgetting * state.mass / mass if form == "cumulative" else jnp.asarray(forgetting)

        def moment(before: jax.Array, given: jax.Array) -> jax.Array:
            rows = given.reshape(-1, given.shape[-1])
            fresh = rows.T @ rows
            scale = 1 / (rows.size * mass) if form == "cumulative" else jnp.ones(())
            return kept.astype(before.dtype) * before + scale.astype(before.dtype) * fresh

        def whiten(gradient: jax.Array, moment: jax.Array) -> jax.Array:
            matrix = moment + regularisation * jnp.eye(len(moment), dtype=moment.dtype)
            if newton_schulz is not None:
                return newton_schulz_inverse(matrix, newton_schulz) @ gradient
            solution: jax.Array = jax.scipy.linalg.solve(matrix, gradient, assume_a="pos")
            return solution

        moments = jax.tree.map(moment, state.moments, inputs)
        return jax.tree.map(whiten, gradients, moments), MesaState(mass, moments)

    return optax.GradientTransformationExtraArgs(init, update)


def mesa(
    learning_rate: optax.ScalarOrSchedule,
    forgetting: float,
    regularisation: float,
    *,
    form: Form = "cumulative",
    newton_schulz: int | None = None,
    momentum: float = 0.0,
    adam: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """The Mesa optimiser for matrices of weights [D, F] (Eq. 121), also under momentum or Adam (Table 9).

    Args:
      learning_rate: η.
      forgetting: γ.
      regularisation: λ.
      form: see `scale_by_mesa`.
      newton_schulz: see `scale_by_mesa`.
      momentum: of the whitened gradients; with Adam its β₁.
      adam: whether whitened gradients are scaled by Adam.
    """
    steps = [scale_by_mesa(forgetting, regularisation, form=form, newton_schulz=newton_schulz)]
    if adam:
        steps.append(optax.scale_by_adam(b1=momentum))
    elif momentum:
        steps.append(optax.trace(momentum))
    return optax.chain(*steps, optax.scale_by_learning_rate(learning_rate))


def newton_schulz_inverse(matrix: jax.Array, iterations: int) -> jax.Array:
    """Approximates the inverse of a symmetric positive definite matrix [D, D] by X ← X·(2I − A·X).

    From X = I/c with c no less than the largest eigenvalue, the error along an eigenvalue a is (1 − a/c) to
    the power 2^iterations: small eigenvalues need more iterations.
    """
    largest = jnp.minimum(jnp.linalg.norm(matrix), jnp.max(jnp.sum(jnp.abs(matrix), axis=1)))
    start = jnp.eye(len(matrix), dtype=matrix.dtype) / largest

    def improve(_: Any, inverse: jax.Array) -> jax.Array:
        return 2 * inverse - inverse @ (matrix @ inverse)

    found: jax.Array = jax.lax.fori_loop(0, iterations, improve, start)
    return found
