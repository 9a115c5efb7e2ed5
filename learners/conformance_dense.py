"""Conformance of the optimisers of dense layers: a layer's recorded inputs and gradients, replayed.

A file holds `W0` [F, D], `inputs` [steps, B, D], per-example `output_gradients` [steps, B, F], the weights
`W` [steps, F, D] after each step and, for Mesa, the last second moment of the inputs: `psi` (cumulative
form), or `phi` with λ on its diagonal (static form).
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from .delta import delta
from .mesa import MesaState, mesa

Arrays = Mapping[str, np.ndarray]
Pairs = dict[str, tuple[np.ndarray, np.ndarray]]  # name -> (expected, computed)


def mesa_pairs(config: Mapping[str, Any], arrays: Arrays) -> Pairs:
    """Mesa on batch-mean gradients; config: eta, gamma, lam, and "static" as a value for the static form."""
    static = "static" in config.values() or "phi" in arrays
    optimiser = mesa(
        config["eta"],
        config["gamma"],
        config["lam"],
        form="static" if static else "cumulative",
        newton_schulz=config.get("newton_schulz"),
    )
    weights, state = _replay(optimiser, arrays, mean=True)
    pairs = {"W": (arrays["W"], weights)}
    inner: MesaState = state[0]
    moment = np.asarray(inner.moments)
    if "psi" in arrays:
        pairs["psi"] = arrays["psi"], moment
    if "phi" in arrays:
        pairs["phi"] = arrays["phi"], moment + config["lam"] * np.eye(len(moment))
    return pairs


def delta_pairs(config: Mapping[str, Any], arrays: Arrays) -> Pairs:
    """Delta on summed gradients; config: eta, lam and, where not "nothing", normalised."""
    optimiser = delta(config["eta"], config["lam"], config.get("normalised", "nothing"))
    weights, _ = _replay(optimiser, arrays, mean=False)
    return {"W": (arrays["W"], weights)}


def _replay(
    optimiser: optax.GradientTransformationExtraArgs, arrays: Arrays, *, mean: bool
) -> tuple[np.ndarray, Any]:
    """The weights after each step, [steps, F, D], and the optimiser's last state."""
    dtype = jnp.result_type(float)
    matrix = jnp.asarray(arrays["W0"].T, dtype)
    state, matrices = optimiser.init(matrix), []
    for given, at_output in zip(arrays["inputs"], arrays["output_gradients"], strict=True):
        inputs, errors = jnp.asarray(given, dtype), jnp.asarray(at_output, dtype)
        errors = errors / len(errors) if mean else errors
        updates, state = optimiser.update(
            inputs.T @ errors, state, matrix, inputs=inputs, output_gradients=errors
        )
        matrix = matrix + updates
        matrices.append(np.asarray(matrix).T)
    return np.stack(matrices), state
