"""What a batch offers to a growing layer's memory: traced into the step that only reads."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..memory.admission import Decision, decide
from ..memory.coefficients import CoefficientTable
from ..memory.database import Database
from ..memory.neighbours import self_similarity
from .language import Places, chosen_tokens
from .layers import GrowingSpec
from .rules import Rates, Signals


class Candidates(NamedTuple):
    """What a batch offers to one layer's database."""

    keys: jax.Array  # [R, D]
    values: jax.Array  # [R, F]
    weights: jax.Array | None  # [R]
    decision: Decision
    examples: jax.Array | None = None  # [R] int32 the example of each row, B for none; None: row i's is i

    def origins(self, of_examples: jax.Array) -> jax.Array:
        """The rows' origins [R], given those of the examples [B]."""
        if self.examples is None:
            return of_examples
        return of_examples.at[self.examples].get(mode="fill", fill_value=-1)


class Answered(NamedTuple):
    """What a step knows of one growing layer's R rows."""

    queries: jax.Array  # [R, D]
    outputs: jax.Array  # [R, F]
    gradients: jax.Array  # [R, F] of each row's own loss with respect to its output
    nearest: jax.Array | None  # [R] squared distances to the nearest keys where they are known already
    places: Places | None = None  # which tokens the rows are; None: row i is example i
    log_normaliser: jax.Array | None = None  # [R] of the answers' denominators; None for summed kernels

    def rows(self, numbers: jax.Array, tokens: int) -> "Answered":
        """Those of some tokens, where all B·T have one, T a text; zeros for the number B·T."""
        found: Answered = jax.tree.map(
            lambda column: column.at[numbers].get(mode="fill", fill_value=0), self._replace(places=None)
        )
        return found._replace(places=chosen_tokens(numbers, tokens))


def candidates(
    spec: GrowingSpec,
    database: Database,
    table: CoefficientTable | None,
    answered: Answered,
    rates: Rates,
    offered: jax.Array | None = None,
) -> Candidates:
    """What the growing rule makes of a batch, and what admission says to it.

    Args:
      spec: the layer.
      database: its memory before the batch.
      table: present coefficients; None: all 1.
      answered: what it was asked and answered.
      rates: step sizes of this update.
      offered: [R] bool the rows that may become entries; None: all.
    """
    shares = None
    if answered.log_normaliser is not None:
        square_norms = jnp.sum(answered.queries * answered.queries, axis=1)
        own = self_similarity(spec.kernel, square_norms, spec.key_features)
        shares = jax.nn.sigmoid(own - answered.log_normaliser)
    values, weights = spec.rule(Signals(answered.outputs, answered.gradients, shares), rates)
    errors = jnp.linalg.norm(answered.gradients, axis=1)
    decision = decide(
        spec.memory, spec.kernel, database, table, answered.queries, errors, answered.nearest, offered
    )
    examples = None if answered.places is None else answered.places.example
    return Candidates(answered.queries, values, weights, decision, examples)
