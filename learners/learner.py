"""The learner triple: `init`, `predict` and `update` over an explicit state.

`update` predicts, then learns: it returns the predictions made before learning from the batch. The step runs
in separate jitted calls: one that only reads the databases, and per layer one that appends in place (beside
reads, XLA would copy every database).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ..errors import ConfigError
from ..memory import cold_policies
from ..memory.coefficients import CoefficientTable, block_coefficients
from ..memory.cold import ColdPart
from ..memory.database import COUNTERS, Database
from ..memory.explain import Contribution, explain
from ..memory.plan import SCORES_BUDGET_BYTES
from ..memory.retrieval import retrieve
from ..memory.sharding import ONE_DEVICE, Shards
from ..memory.spill import Budget, SpillFolder
from ..memory.tiers import Tiers, retrieve_tiers
from .dense import DenseSignals, signal_trees, weight_names
from .growth import Candidates, candidates
from .keeper import Keeper, maintenance_due
from .layers import GrowingSpec, Recall
from .losses import Task
from .networks import Network
from .rules import Rates
from .state import Examples, Memory, Result, State
from .training import Columns, trained_columns

# Examples of one call that predicts: more make it no faster, and every number of them is compiled.
_PREDICTED_AT_ONCE = 1024
_QUERIES_BYTES = 2**28  # of the queries of one layer in a pass over the disk
_Entries = Mapping[str, tuple[Columns, ...]]  # by layer, per block: the columns that are trained
_ALL_HOT: Mapping[str, ColdPart] = {}  # no memory has a cold part
_FISHER_EXAMPLES = 32  # whose gradients of all parameters are held at once


class Learner:
    """A network, its loss, and how it learns.

    Args:
      network: the network; its parameters as they are become the initial ones.
      task: what the outputs mean.
      optimiser: trains the network's parameters on the batch-mean loss; growing layers need none. It is also
        given `inputs` and `output_gradients` of dense layers (see `dense`).
      shards: the devices that the databases' rows are spread over.
      scores_budget_bytes: most bytes of scores [N, B] of a layer on a device at any time.
      spill_folder: where entries go that exceed a memory's byte budget; None: a temporary folder.

    Raises:
      ConfigError: two layers have the same name, or a byte budget does not fit its layer.
    """

    def __init__(
        self,
        network: Network,
        task: Task,
        optimiser: optax.GradientTransformation | None = None,
        shards: Shards = ONE_DEVICE,
        scores_budget_bytes: int = SCORES_BUDGET_BYTES,
        spill_folder: Path | None = None,
    ) -> None:
        self.task = task
        self.shards = shards
        self._spill_folder = SpillFolder(spill_folder)
        self.layers = {layer.name: layer for layer in network.growing_layers()}
        self._dense = [layer.name for layer in network.dense_layers()]
        _require_distinct([layer.name for layer in network.growing_layers()] + self._dense)
        self.keepers = {
            name: Keeper(layer.spec, self._budget(layer.spec), partial(self._spill_folder.write, name))
            for name, layer in self.layers.items()
        }
        self.scores_budget_bytes = scores_budget_bytes
        self._graph, self._parameters = nnx.split(network)
        self._weight_names = weight_names(network, self._parameters)
        self._optimiser = optax.with_extra_args_support(optimiser or optax.identity())
        self._learn = jax.jit(self._learn_step)
        self._predict = jax.jit(self._predict_step)
        self._trace = jax.jit(self._trace_step)
        self._train = jax.jit(self._train_step, donate_argnums=(0, 1))
        self._squares = jax.jit(self._squares_step)
        self._frozen: frozenset[str] = frozenset()

    def freeze(self, names: Iterable[str]) -> None:
        """Leaves parts as they are from now on: updates predict, but add nothing there and let nothing fade.

        Args:
          names: growing layers; "memory" for all of them, "parameters" for what the optimiser trains.

        Raises:
          ConfigError: there is no such layer.
        """
        wanted = set(names)
        known = {*self.layers, "memory", "parameters"}
        if unknown := wanted - known:
            raise ConfigError(
                f"freeze: expected names among {', '.join(sorted(known))}; found {min(unknown)!r}"
            )
        self._frozen = frozenset(wanted | (self.layers.keys() if "memory" in wanted else set()))

    def init(self, key: jax.Array) -> State:
        """The state before the first example; `key` draws the initial entries."""
        memories = {
            name: keeper.start(jax.random.fold_in(key, number), self.shards)
            for number, (name, keeper) in enumerate(self.keepers.items())
        }
        # Copies: updates consume the state, and `init` may be called again.
        parameters = jax.tree.map(jnp.array, self._parameters)
        return State(0, memories, parameters, self._optimiser.init(parameters))

    def predict(self, state: State, x: np.ndarray) -> np.ndarray:
        """Outputs [n, C] for examples x [n, …]."""
        databases, tables, cold = self._databases(state), self._tables(state), self._cold(state)
        predict = partial(self._predict_step, cold=cold) if cold else self._predict
        size = max(1, min(self._query_block(state), len(x)))
        outputs = []
        for start in range(0, len(x), size):
            chunk = x[start : start + size]
            padded = np.concatenate([chunk, np.zeros((size - len(chunk), *x.shape[1:]), x.dtype)])
            output = predict(databases, tables, state.parameters, self._floating(padded))
            outputs.append(np.asarray(output[: len(chunk)]))
        if not outputs:
            return np.empty((0, self.task.outputs), self._floating_type)
        return np.concatenate(outputs)

    def network(self, state: State) -> Network:
        """A copy of the network with a state's parameters."""
        network: Network = nnx.merge(self._graph, jax.tree.map(jnp.array, state.parameters))
        return network

    def query(self, state: State, layer: str, queries: np.ndarray) -> np.ndarray:
        """What one growing layer's database answers, [B, F], to queries [B, D] (see `memory.retrieve`)."""
        memory, kernel = state.memories[layer], self.layers[layer].spec.kernel
        blocks, table = memory.database.blocks, memory.table
        if memory.cold is not None:
            tiers = Tiers(memory.database, memory.cold, table)
            return np.asarray(retrieve_tiers(kernel, tiers, self._floating(queries))[0])
        coefficients = tuple(block_coefficients(block, table) for block in blocks)
        answers = retrieve(
            kernel,
            blocks,
            coefficients,
            self._floating(queries),
            shards=memory.database.shards,
            budget_bytes=self.scores_budget_bytes,
        )
        return np.asarray(answers)

    def explain(
        self, state: State, x: np.ndarray, layer: str, *, count: int = 5, output: int | None = None
    ) -> list[Contribution]:
        """The entries of a growing layer that contributed most to its answer for one example.

        Args:
          state: the learner's state.
          x: one example […].
          layer: the layer's name.
          count: how many entries.
          output: measure along this output of the layer, for the readout a class; None: along its answer.

        Raises:
          ConfigError: there is no such layer or output.
        """
        if layer not in self.layers:
            raise ConfigError(f"expected a growing layer among {', '.join(self.layers)}; found {layer!r}")
        spec = self.layers[layer].spec
        last = spec.value_features - 1
        if output is not None and not 0 <= output <= last:
            raise ConfigError(f"expected an output of {layer} from 0 to {last}; found {output}")
        cold = self._cold(state)
        trace = partial(self._trace_step, cold=cold) if cold else self._trace
        queries = trace(
            self._databases(state), self._tables(state), state.parameters, self._floating(x[None])
        )
        memory = state.memories[layer]
        direction = None if output is None else jax.nn.one_hot(output, spec.value_features)
        return explain(
            spec.kernel,
            memory.database,
            memory.table,
            queries[layer][0],
            count=count,
            direction=direction,
            cold=memory.cold,
        )

    def update(
        self, state: State, batch: Examples, weights: np.ndarray | None = None
    ) -> tuple[State, Result]:
        """Predicts the batch, then learns from it. The state is consumed.

        Args:
          state: the state; its arrays may not be used afterwards.
          batch: B ≥ 1 examples.
          weights: [B] what each example's gradient is multiplied by, > 0; None: 1. Parameters are trained on
            the weighted mean of the losses.

        Returns:
          The next state, and what was predicted and changed.
        """
        step = state.step + 1
        y = jnp.asarray(batch.y) if self.task.classification else self._floating(batch.y)
        cold = self._cold(state)
        # Reading the disk is no part of a compiled program: with a cold part, each operation is one.
        learn = partial(self._learn_step, cold=cold) if cold else self._learn
        rates = {name: layer.spec.rule.rates(state.step) for name, layer in self.layers.items()}
        outputs, losses, offered, gradients, dense, by_entry = learn(
            self._databases(state),
            self._tables(state),
            state.parameters,
            rates,
            self._floating(batch.x),
            y,
            None if weights is None else self._floating(weights),
        )
        memories: dict[str, Memory] = {}
        changes: dict[str, jax.Array] = {}
        origins = jnp.asarray(batch.origins, jnp.int32)
        for name, memory in state.memories.items():
            if name in self._frozen:
                memories[name], changes[name] = memory.held(), jnp.zeros(len(COUNTERS), jnp.int32)
                continue
            memories[name], changes[name] = self.keepers[name].grow(
                memory, offered[name], origins, step, by_entry.get(name)
            )
        parameters, optimiser = state.parameters, state.optimiser
        if jax.tree.leaves(parameters) and "parameters" not in self._frozen:
            parameters, optimiser = self._train(parameters, optimiser, gradients, dense)
        bounds, seconds = self._maintain(memories, changes, step)
        nearest = {
            name: o.decision.distance for name, o in offered.items() if o.decision.distance is not None
        }
        result = Result(outputs, losses, changes, bounds, nearest, seconds, dense)
        return State(step, memories, parameters, optimiser), result

    def squared_gradients(self, state: State, x: np.ndarray, y: np.ndarray) -> Any:
        """The empirical Fisher information's diagonal: mean squared gradients of the examples' own losses.

        Args:
          state: the state, which stays usable.
          x: examples [n, …], n ≥ 1.
          y: their targets.

        Returns:
          A tree like the parameters.
        """
        total: Any = None
        for start in range(0, len(x), _FISHER_EXAMPLES):
            part = slice(start, start + _FISHER_EXAMPLES)
            targets = jnp.asarray(y[part]) if self.task.classification else self._floating(y[part])
            found = self._squares(
                self._databases(state),
                self._tables(state),
                state.parameters,
                self._floating(x[part]),
                targets,
            )
            total = found if total is None else jax.tree.map(jnp.add, total, found)
        return jax.tree.map(lambda sums: sums / len(x), total)

    def forget(self, state: State, origins: np.ndarray) -> tuple[State, dict[str, int]]:
        """Removes the entries that came from given examples. The state is consumed.

        What those examples have done to trained parameters, or to other examples' errors, stays.

        Args:
          state: the state.
          origins: [M] stream offsets.

        Returns:
          The state, and by layer how many entries went.
        """
        memories, counts = {}, {}
        for name, memory in state.memories.items():
            memories[name], counts[name] = self.keepers[name].forget(memory, origins, state.step)
        return replace(state, memories=memories), counts

    @property
    def compilations(self) -> int:
        """How many times the training step was compiled so far in this process."""
        count: int = self._learn._cache_size()  # type: ignore[attr-defined]
        return count

    def drop_programs(self) -> None:
        """Frees the compiled programs: after growth those of smaller capacities are never used again."""
        for program in (self._learn, self._predict, self._trace):
            program.clear_cache()  # type: ignore[attr-defined]

    @cached_property
    def _floating_type(self) -> Any:
        return jnp.result_type(float)

    def _floating(self, x: np.ndarray) -> jax.Array:
        return jnp.asarray(x, self._floating_type)

    def _query_block(self, state: State) -> int:
        itemsize: int = self._floating_type.itemsize
        if self._cold(state):  # every block of queries reads the whole disk; scores are kept small there
            widest = max(layer.spec.key_features for layer in self.layers.values())
            return max(16, _QUERIES_BYTES // (itemsize * widest))
        return _PREDICTED_AT_ONCE

    def _databases(self, state: State) -> dict[str, Database]:
        return {name: memory.database for name, memory in state.memories.items()}

    def _cold(self, state: State) -> dict[str, ColdPart]:
        """The cold parts that hold anything, by layer."""
        parts = {name: memory.cold for name, memory in state.memories.items()}
        return {name: part for name, part in parts.items() if part is not None and part.chunks}

    def _budget(self, spec: GrowingSpec) -> Budget | None:
        return cold_policies.budget_of(
            spec.memory,
            spec.key_features,
            spec.value_features,
            weighted=spec.kernel.normalised,
            dtype=self._floating_type,
            initial_entries=spec.initial_entries,
            shards=self.shards,
        )

    def _tables(self, state: State) -> dict[str, CoefficientTable | None]:
        return {name: memory.table for name, memory in state.memories.items()}

    def _predict_step(
        self,
        databases: Mapping[str, Database],
        tables: Mapping[str, Any],
        parameters: Any,
        x: jax.Array,
        cold: Mapping[str, ColdPart] = _ALL_HOT,
    ) -> jax.Array:
        recall = Recall(databases, tables, None, cold, self.scores_budget_bytes)
        return nnx.merge(self._graph, parameters)(x, recall)

    def _trace_step(
        self,
        databases: Mapping[str, Database],
        tables: Mapping[str, Any],
        parameters: Any,
        x: jax.Array,
        cold: Mapping[str, ColdPart] = _ALL_HOT,
    ) -> dict[str, jax.Array]:
        """The query of each growing layer, [B, D]."""
        recall = Recall(databases, tables, None, cold, self.scores_budget_bytes)
        nnx.merge(self._graph, parameters)(x, recall)
        return {name: recall.queries[name] for name in self.layers}

    def _learn_step(
        self,
        databases: Mapping[str, Database],
        tables: Mapping[str, CoefficientTable | None],
        parameters: Any,
        rates: Mapping[str, Rates],
        x: jax.Array,
        y: jax.Array,
        weights: jax.Array | None,
        cold: Mapping[str, ColdPart] = _ALL_HOT,
    ) -> tuple[jax.Array, jax.Array, dict[str, Candidates], Any, dict[str, DenseSignals], _Entries]:
        def forward(
            probes: Mapping[str, jax.Array] | None, parameters: Any, entries: _Entries
        ) -> tuple[jax.Array, Any]:
            # Without probes only shapes are asked for, and the disk is left alone.
            parts = _ALL_HOT if probes is None else cold
            recall = Recall(
                _with_entries(databases, entries), tables, probes, parts, self.scores_budget_bytes
            )
            outputs = nnx.merge(self._graph, parameters)(x, recall)
            losses = self.task.loss(outputs, y)
            total = jnp.sum(losses if weights is None else losses * weights)
            return total, (outputs, losses, recall.queries, recall.outputs, recall.nearest)

        entries = {
            name: tuple(map(trained_columns, databases[name].blocks))
            for name, layer in self.layers.items()
            if layer.spec.training is not None
        }
        shapes = jax.eval_shape(lambda p: forward(None, p, entries)[1][3], parameters)
        probes = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
        gradients, aux = jax.grad(forward, argnums=(0, 1, 2), has_aux=True)(probes, parameters, entries)
        per_output, summed, by_entry = gradients
        outputs, losses, queries, answers, nearest = aux
        offered = {
            name: candidates(
                layer.spec,
                databases[name],
                tables[name],
                queries[name],
                answers[name],
                per_output[name],
                rates[name],
                nearest.get(name),
            )
            for name, layer in self.layers.items()
        }
        # The optimiser descends the batch mean.
        count = x.shape[0] if weights is None else jnp.sum(weights)
        mean, by_entry = jax.tree.map(lambda g: g / count, (summed, by_entry))
        dense = {name: DenseSignals(queries[name], per_output[name] / count) for name in self._dense}
        return outputs, losses, offered, mean, dense, by_entry

    def _squares_step(
        self,
        databases: Mapping[str, Database],
        tables: Mapping[str, CoefficientTable | None],
        parameters: Any,
        x: jax.Array,
        y: jax.Array,
    ) -> Any:
        def loss(parameters: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            outputs = nnx.merge(self._graph, parameters)(x[None], Recall(databases, tables))
            return self.task.loss(outputs, y[None])[0]

        gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(parameters, x, y)
        return jax.tree.map(lambda g: jnp.sum(g * g, axis=0), gradients)

    def _train_step(
        self, parameters: Any, optimiser: Any, gradients: Any, dense: Mapping[str, DenseSignals]
    ) -> tuple[Any, Any]:
        signals = signal_trees(self._weight_names, dense)
        updates, optimiser = self._optimiser.update(gradients, optimiser, parameters, **signals)
        return optax.apply_updates(parameters, updates), optimiser

    def _maintain(
        self, memories: dict[str, Memory], changes: dict[str, jax.Array], step: int
    ) -> tuple[dict[str, float], float]:
        """Prunes and folds where it is due.

        Returns:
          Bounds on the change of the outputs of the layers pruned, and the seconds that this took by itself.
        """
        due = [
            name
            for name, layer in self.layers.items()
            if name not in self._frozen and maintenance_due(layer.spec.memory, step)
        ]
        if not due:
            return {}, 0.0
        jax.block_until_ready(changes)
        begin, bounds = time.perf_counter(), {}
        for name in due:
            memories[name], done = self.keepers[name].maintain(memories[name], step)
            changes[name] = changes[name].at[COUNTERS.index("pruned")].add(done.removed)
            if done.bound is not None:
                bounds[name] = done.bound
        return bounds, time.perf_counter() - begin


def _with_entries(databases: Mapping[str, Database], entries: _Entries) -> dict[str, Database]:
    """The databases with columns to differentiate with respect to."""
    changed = dict(databases)
    for name, columns in entries.items():
        pairs = zip(databases[name].blocks, columns, strict=True)
        blocks = tuple(replace(block, **trained) for block, trained in pairs)
        changed[name] = replace(databases[name], blocks=blocks)
    return changed


def _require_distinct(names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(
                f"expected layers of different names, which name their memories; found two named {name!r}: "
                f"rename one"
            )
