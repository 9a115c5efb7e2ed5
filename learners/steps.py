"""What a learner computes from databases, parameters and examples: pure functions, most of them compiled.

A step only reads the databases. What is to become of a batch is returned as candidates, and appended in calls
of its own: in one call with the reads, XLA would copy every database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from ..memory.coefficients import CoefficientTable
from ..memory.cold import ColdPart
from ..memory.database import Database
from .dense import DenseSignals, signal_trees
from .growth import Answered, Candidates, candidates
from .language import Places, Tokens, may_enter
from .layers import GrowingLayer, Recall
from .losses import Task
from .rules import Rates
from .state import State
from .training import Columns, trained_columns

Entries = Mapping[str, tuple[Columns, ...]]  # by layer, per block: the columns that are trained
ColdParts = Mapping[str, ColdPart]  # by layer
ALL_HOT: ColdParts = {}  # no memory has a cold part


class Learnt(NamedTuple):
    """What a step reads of all that is learnt, beside what is on disk."""

    databases: Mapping[str, Database]
    tables: Mapping[str, CoefficientTable | None]  # present coefficients by creation step
    parameters: Any


class Asked(NamedTuple):
    """A batch of examples as a step gets it."""

    x: jax.Array  # [B, …]
    y: jax.Array | None = None  # [B, …]
    weights: jax.Array | None = None  # [B] what gradients are multiplied by; None: 1
    values: jax.Array | None = None  # [Q] int32 as `Task.places` gives them; None: not known


class Lesson(NamedTuple):
    """What a step finds out for an update."""

    outputs: Any  # [B, C], of texts `Tokens`
    losses: jax.Array  # [B]
    offered: dict[str, Candidates]  # by growing layer
    gradients: Any  # of the parameters, of the batch-mean loss; None once the optimiser has had them
    dense: dict[str, DenseSignals]  # by dense layer
    by_entry: Entries  # gradients of trained entries, of the batch-mean loss


class Traced(NamedTuple):
    """What a growing layer was asked."""

    queries: jax.Array  # [R, D]
    places: Places | None  # which tokens the rows are; None: row i is example i


@dataclass(eq=False)  # hashed by identity, as what is compiled has to be
class Steps:
    """The computations of one network."""

    graph: Any  # of the network, as `nnx.split` gives it
    task: Task
    layers: Mapping[str, GrowingLayer]
    dense: Sequence[str]  # names of the dense layers
    scores_budget_bytes: int  # most bytes of scores [N, R] of a layer on a device at any time
    optimiser: optax.GradientTransformationExtraArgs  # of the parameters
    weight_names: Any  # of dense layers' weights, a tree like the parameters

    def predict(self, learnt: Learnt, asked: Asked, cold: ColdParts = ALL_HOT) -> jax.Array:
        """Outputs [B, …]."""
        return self._outputs(learnt, asked, cold)[0]

    def answer(self, learnt: Learnt, asked: Asked, cold: ColdParts = ALL_HOT) -> tuple[Any, jax.Array]:
        """What is kept of the outputs, and losses [B]."""
        assert asked.y is not None
        outputs = self.predict(learnt, asked, cold)
        return self.task.kept(outputs, asked.y), self.task.loss(outputs, asked.y)

    def trace(self, learnt: Learnt, asked: Asked, cold: ColdParts = ALL_HOT) -> dict[str, Traced]:
        """What each growing layer is asked."""
        recall = self._outputs(learnt, asked, cold)[1]
        return {name: Traced(recall.queries[name], recall.places.get(name)) for name in self.layers}

    def learn(
        self, learnt: Learnt, rates: Mapping[str, Rates], asked: Asked, cold: ColdParts = ALL_HOT
    ) -> Lesson:
        """Predicts a batch, and finds out what is to be learnt from it."""
        y = asked.y
        assert y is not None

        def forward(
            probes: Mapping[str, jax.Array] | None, parameters: Any, entries: Entries
        ) -> tuple[jax.Array, Any]:
            # Without probes only shapes are asked for, and the disk is left alone.
            parts = ALL_HOT if probes is None else cold
            changed = learnt._replace(
                databases=_with_entries(learnt.databases, entries), parameters=parameters
            )
            outputs, recall = self._outputs(changed, asked, parts, probes)
            losses = self.task.loss(outputs, y)
            total = jnp.sum(losses if asked.weights is None else losses * asked.weights)
            known = recall.queries, recall.outputs, recall.nearest, recall.places, recall.log_normalisers
            return total, (self.task.kept(outputs, y), losses, known)

        entries = {
            name: tuple(map(trained_columns, learnt.databases[name].blocks))
            for name, layer in self.layers.items()
            if layer.spec.training is not None
        }
        shapes = jax.eval_shape(lambda p: forward(None, p, entries)[1][2][1], learnt.parameters)
        probes = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
        gradients, aux = jax.grad(forward, argnums=(0, 1, 2), has_aux=True)(
            probes, learnt.parameters, entries
        )
        per_output, summed, by_entry = gradients
        kept, losses, (queries, answers, nearest, places, normalisers) = aux
        answered = {
            name: Answered(
                queries[name],
                answers[name],
                per_output[name],
                nearest.get(name),
                places.get(name),
                normalisers.get(name),
            )
            for name in self.layers
        }
        offered = {
            name: self._offered(name, learnt, each, rates, asked, kept) for name, each in answered.items()
        }
        # The optimiser descends the batch mean.
        count = asked.x.shape[0] if asked.weights is None else jnp.sum(asked.weights)
        mean, by_entry = jax.tree.map(lambda g: g / count, (summed, by_entry))
        dense = {name: DenseSignals(queries[name], per_output[name] / count) for name in self.dense}
        return Lesson(kept, losses, offered, mean, dense, by_entry)

    def train(
        self, parameters: Any, optimiser: Any, gradients: Any, dense: Mapping[str, DenseSignals]
    ) -> tuple[Any, Any]:
        """The parameters and the optimiser's state after a step of the optimiser."""
        signals = signal_trees(self.weight_names, dense)
        updates, optimiser = self.optimiser.update(gradients, optimiser, parameters, **signals)
        return optax.apply_updates(parameters, updates), optimiser

    def learn_and_train(
        self,
        trains: bool,
        parameters: Any,
        optimiser: Any,
        others: Learnt,
        rates: Mapping[str, Rates],
        asked: Asked,
    ) -> tuple[Any, Any, Lesson]:
        """A batch, and if `trains` a step of the optimiser.

        Args:
          trains: whether the parameters change.
          parameters: the network's.
          optimiser: its state.
          others: what is learnt but for the parameters.
          rates: of the growing layers' rules.
          asked: the batch.

        Returns:
          The next parameters and state of the optimiser, and the lesson without their gradients: they are not
          all there at once.
        """
        lesson = self.learn(others._replace(parameters=parameters), rates, asked)
        if trains:
            parameters, optimiser = self.train(parameters, optimiser, lesson.gradients, lesson.dense)
        return parameters, optimiser, lesson._replace(gradients=None)

    def squares(self, learnt: Learnt, x: jax.Array, y: jax.Array) -> Any:
        """The sum of the squared gradients of the examples' own losses, a tree like the parameters."""

        def loss(parameters: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            outputs, _ = self._outputs(learnt._replace(parameters=parameters), Asked(x[None]), ALL_HOT)
            return self.task.loss(outputs, y[None])[0]

        gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(learnt.parameters, x, y)
        return jax.tree.map(lambda g: jnp.sum(g * g, axis=0), gradients)

    def _outputs(
        self,
        learnt: Learnt,
        asked: Asked,
        cold: ColdParts,
        probes: Mapping[str, jax.Array] | None = None,
    ) -> tuple[jax.Array, Recall]:
        recall = Recall(
            learnt.databases, learnt.tables, probes, cold, self.scores_budget_bytes, values=asked.values
        )
        return nnx.merge(self.graph, learnt.parameters)(asked.x, recall), recall

    def _offered(
        self,
        name: str,
        learnt: Learnt,
        answered: Answered,
        rates: Mapping[str, Rates],
        asked: Asked,
        kept: Any,
    ) -> Candidates:
        spec, may = self.layers[name].spec, None
        if isinstance(kept, Tokens) and spec.tokens is not None and answered.places is not None:
            assert asked.y is not None
            if spec.tokens.admission == "values" and spec.tokens.reading != "values":
                # Known before the step: appending the few rows is all that is left to do.
                assert asked.values is not None
                answered = answered.rows(asked.values, asked.y.shape[1])
            assert answered.places is not None
            may = may_enter(spec.tokens, answered.places, asked.y, kept.losses)
        return candidates(spec, learnt.databases[name], learnt.tables[name], answered, rates[name], may)


def learnt_of(state: State) -> Learnt:
    """What a step reads of a state."""
    databases = {name: memory.database for name, memory in state.memories.items()}
    tables = {name: memory.table for name, memory in state.memories.items()}
    return Learnt(databases, tables, state.parameters)


def cold_of(state: State) -> dict[str, ColdPart]:
    """The cold parts that hold anything, by layer."""
    parts = {name: memory.cold for name, memory in state.memories.items()}
    return {name: part for name, part in parts.items() if part is not None and part.chunks}


def _with_entries(databases: Mapping[str, Database], entries: Entries) -> dict[str, Database]:
    """The databases with columns to differentiate with respect to."""
    changed = dict(databases)
    for name, columns in entries.items():
        pairs = zip(databases[name].blocks, columns, strict=True)
        blocks = tuple(replace(block, **trained) for block, trained in pairs)
        changed[name] = replace(databases[name], blocks=blocks)
    return changed
