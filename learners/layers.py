"""Growing layers as Flax modules, and the recall through which they read their memories.

A growing layer has no parameters: it names a database. The learner hands the network a `Recall` that holds
all databases, answers their queries, and notes queries and outputs for the growing rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from ..memory.coefficients import CoefficientTable, block_coefficients
from ..memory.cold import ColdPart
from ..memory.database import Database
from ..memory.kernels import Kernel
from ..memory.plan import SCORES_BUDGET_BYTES
from ..memory.policy import MemoryConfig
from ..memory.retrieval import retrieve_normalised
from ..memory.tiers import Tiers, retrieve_tiers
from .language import Places, TokenConfig
from .rules import GrowingRule
from .schedules import Rate, highest
from .training import EntryTraining


@dataclass(frozen=True)
class GrowingSpec:
    """Everything that defines one growing layer."""

    key_features: int  # D
    value_features: int  # F
    kernel: Kernel
    rule: GrowingRule
    memory: MemoryConfig
    initial: str  # one of INITIALISERS: the initialiser of normalised kernels' first entries
    initial_entries: int  # how many of them, n; 0 for summed kernels
    momentum: Rate  # μ
    decay: Rate  # γ
    momentum_on: Literal["both", "values"] = "both"  # whether weights have momentum too
    seed: int = 0  # of what the memory's policies draw at random
    training: EntryTraining | None = None  # trains the stored entries too (hybrid layers); None: they stay
    tokens: TokenConfig | None = None  # which tokens of a text are read and stored; None: rows are examples
    initial_weight: float | None = None  # of each of the first entries; None: 1/n

    @property
    def fades(self) -> bool:
        """Whether coefficients differ from 1."""
        return highest(self.momentum) > 0 or highest(self.decay) > 0


class GrowingLayer(nnx.Module):
    """A layer whose output is retrieved from a growing database (Eq. 13's g_D)."""

    def __init__(self, name: str, spec: GrowingSpec) -> None:
        self.name = name
        self.spec = spec

    def __call__(self, queries: jax.Array, recall: "Recall", places: Places | None = None) -> jax.Array:
        """Retrieves [R, F] for queries [R, D]; without `places` row i is example i of the batch."""
        return recall(self, queries, places)


@dataclass
class Recall:
    """One forward pass's access to all memories.

    `probes` are zeros added to each layer's output: the gradient with respect to them is the per-example
    gradient at that output.
    """

    databases: Mapping[str, Database]
    tables: Mapping[str, CoefficientTable | None]
    probes: Mapping[str, jax.Array] | None = None
    cold: Mapping[str, ColdPart] = field(default_factory=dict)  # of memories that have one; never in `jit`
    scores_budget_bytes: int = SCORES_BUDGET_BYTES  # most bytes of scores of a layer at any time
    queries: dict[str, jax.Array] = field(default_factory=dict)
    outputs: dict[str, jax.Array] = field(default_factory=dict)
    # Squared distances to the nearest keys, [R], of memories with a cold part whose admission asks for them.
    nearest: dict[str, jax.Array] = field(default_factory=dict)
    # Numbers of the tokens whose next word belongs to a value, as `Task.places` gives them; None: not known.
    values: jax.Array | None = None
    places: dict[str, Places] = field(default_factory=dict)  # of the rows of layers that read tokens
    # Logarithms of the denominators, [B], of layers whose kernel is normalised.
    log_normalisers: dict[str, jax.Array] = field(default_factory=dict)

    def __call__(self, layer: GrowingLayer, queries: jax.Array, places: Places | None = None) -> jax.Array:
        if places is not None:
            self.places[layer.name] = places
        return self.note(layer.name, queries, self._retrieve(layer, queries))

    def note(self, name: str, queries: jax.Array, output: jax.Array) -> jax.Array:
        """Adds a layer's probe to its output, and notes what the layer was given and gave."""
        if self.probes is not None:
            output = output + self.probes[name]
        self.queries[name] = queries
        self.outputs[name] = output
        return output

    def _retrieve(self, layer: GrowingLayer, queries: jax.Array) -> jax.Array:
        database, table = self.databases[layer.name], self.tables[layer.name]
        kernel = layer.spec.kernel
        if layer.name in self.cold:
            found = retrieve_tiers(
                kernel,
                Tiers(database, self.cold[layer.name], table),
                queries,
                nearest=layer.spec.memory.admission != "all" and self.probes is not None,
                scores_budget_bytes=self.scores_budget_bytes,
            )
            if found.distances is not None:
                self.nearest[layer.name] = found.distances
            if found.log_normaliser is not None:
                self.log_normalisers[layer.name] = found.log_normaliser
            return found.answers
        blocks, shards, budget = database.blocks, database.shards, self.scores_budget_bytes
        coefficients = tuple(block_coefficients(block, table) for block in blocks)
        output, log_normaliser = retrieve_normalised(
            kernel,
            blocks,
            coefficients,
            queries,
            shards=shards,
            trained=layer.spec.training is not None,
            budget_bytes=budget,
        )
        if log_normaliser is not None:
            self.log_normalisers[layer.name] = log_normaliser
        return output


def rms_norm(x: jax.Array, epsilon: float = 1e-6) -> jax.Array:
    """x / √(mean x² + ε) over the last axis, without a scale."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + epsilon)
