"""What a batch offers to a growing layer's memory: traced into the step that only reads."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..memory.admission import Decision, decide
from ..memory.coefficients import CoefficientTable
from ..memory.database import Database
from .layers import GrowingSpec
from .rules import Rates


class Candidates(NamedTuple):
    """What a batch offers to one layer's database."""

    keys: jax.Array  # [B, D]
    values: jax.Array  # [B, F]
    weights: jax.Array | None  # [B]
    decision: Decision


def candidates(
    spec: GrowingSpec,
    database: Database,
    table: CoefficientTable | None,
    queries: jax.Array,
    outputs: jax.Array,
    gradients: jax.Array,
    rates: Rates,
    nearest: jax.Array | None = None,
) -> Candidates:
    """What the growing rule makes of a batch, and what admission says to it.

    Args:
      spec: the layer.
      database: its memory before the batch.
      table: present coefficients; None: all 1.
      queries: [B, D].
      outputs: [B, F].
      gradients: [B, F] of each example's own loss with respect to its output.
      rates: step sizes of this update.
      nearest: [B] squared distances to the nearest keys where they are known already; None: to be found.
    """
    values, weights = spec.rule(outputs, gradients, rates)
    errors = jnp.linalg.norm(gradients, axis=1)
    decision = decide(spec.memory, spec.kernel, database, table, queries, errors, nearest)
    return Candidates(queries, values, weights, decision)
