"""The learner triple: `init`, `predict` and `update` over an explicit state.

`update` predicts, then learns: it returns the predictions made before learning from the batch. The step runs
in separate jitted calls: one that only reads the databases, and per layer one that appends in place (beside
reads, XLA would copy every database).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ..errors import ConfigError
from ..memory import cold_policies
from ..memory.coefficients import Clock, CoefficientTable, block_coefficients, device_table
from ..memory.cold import ColdChunk, ColdPart
from ..memory.database import COUNTERS, Database, Rows
from ..memory.explain import Contribution, explain
from ..memory.layout import Layout
from ..memory.plan import SCORES_BUDGET_BYTES
from ..memory.policies import Occupancy, admit, append, prune
from ..memory.retrieval import retrieve
from ..memory.sharding import ONE_DEVICE, Shards
from ..memory.spill import Budget, SpillFolder
from ..memory.tiers import Tiers, retrieve_tiers
from .dense import DenseSignals, signal_trees, weight_names
from .initial import initial_database
from .layers import GrowingSpec, Recall
from .losses import Task
from .networks import Network

# Examples of one call that predicts: more make it no faster, and every number of them is compiled.
_PREDICTED_AT_ONCE = 1024
_QUERIES_BYTES = 2**28  # of the queries of one layer in a pass over the disk
_ALL_HOT: Mapping[str, ColdPart] = {}  # no memory has a cold part


class Examples(Protocol):
    """A batch: any object with these attributes."""

    @property
    def x(self) -> np.ndarray: ...  # [B, …]
    @property
    def y(self) -> np.ndarray: ...  # [B] labels, or [B, C] targets
    @property
    def origins(self) -> np.ndarray: ...  # [B] stream offsets


class Batch(NamedTuple):
    """The plainest batch."""

    x: np.ndarray  # [B, …]
    y: np.ndarray  # [B] labels, or [B, C] targets
    origins: np.ndarray  # [B] stream offsets


@dataclass(frozen=True)
class Memory:
    """One growing layer's state."""

    database: Database
    occupancy: Occupancy
    clock: Clock | None  # None where neither momentum nor decay is used
    cold: ColdPart | None = None  # the entries on disk; None without a byte budget

    @property
    def entries(self) -> int:
        """Entries in memory and on disk (waits for the device)."""
        return int(self.database.entries) + (0 if self.cold is None else self.cold.entries)


@dataclass(frozen=True)
class State:
    """All that a learner has learnt. Passing it to `update` consumes it."""

    step: int  # updates done
    memories: Mapping[str, Memory]  # by layer name
    parameters: Any  # the network's nnx.State of parameters
    optimiser: Any  # the optimiser's state


@dataclass(frozen=True)
class Result:
    """What one update saw and did."""

    outputs: jax.Array  # [B, C] predicted before learning from the batch
    losses: jax.Array  # [B] of those predictions
    changes: Mapping[str, jax.Array]  # per layer [5] int32: admitted, merged, rejected, pruned, evicted
    pruning_bounds: Mapping[str, float]  # layers pruned at this step: bound on their output's change
    nearest: Mapping[str, jax.Array]  # [B] distances to the nearest keys, where admission measures them
    maintain_seconds: float  # time that pruning took
    dense: Mapping[str, DenseSignals]  # per dense layer: its inputs and output gradients


class _Candidates(NamedTuple):
    """What a batch offers to one layer's database."""

    keys: jax.Array  # [B, D]
    values: jax.Array  # [B, F]
    weights: jax.Array | None  # [B]
    admitted: jax.Array  # [B] bool
    nearest: jax.Array | None  # [B] distance to the nearest key, where admission measures it


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
        self.budgets = {name: self._budget(layer.spec) for name, layer in self.layers.items()}
        self.scores_budget_bytes = scores_budget_bytes
        self._graph, self._parameters = nnx.split(network)
        self._weight_names = weight_names(network, self._parameters)
        self._optimiser = optax.with_extra_args_support(optimiser or optax.identity())
        self._learn = jax.jit(self._learn_step)
        self._predict = jax.jit(self._predict_step)
        self._trace = jax.jit(self._trace_step)
        self._train = jax.jit(self._train_step, donate_argnums=(0, 1))
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
        memories = {}
        for number, (name, layer) in enumerate(self.layers.items()):
            budget = self.budgets[name]
            spec = replace(layer.spec, memory=cold_policies.hot_policy(layer.spec.memory, budget))
            database = initial_database(spec, jax.random.fold_in(key, number), self.shards)
            clock = Clock.start() if spec.fades else None
            cold = None if budget is None else ColdPart(budget.layout, (), ())
            memories[name] = Memory(database, Occupancy.of(database, holes=False), clock, cold)
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
        blocks, table = memory.database.blocks, self._table(memory)
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
            self._table(memory),
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
        outputs, losses, candidates, gradients, dense = learn(
            self._databases(state),
            self._tables(state),
            state.parameters,
            self._floating(batch.x),
            y,
            None if weights is None else self._floating(weights),
        )
        memories, changes = {}, {}
        origins = jnp.asarray(batch.origins, jnp.int32)
        for name, memory in state.memories.items():
            if name in self._frozen:
                memories[name], changes[name] = _held(memory), jnp.zeros(len(COUNTERS), jnp.int32)
                continue
            memories[name], changes[name] = self._grow(name, memory, candidates[name], origins, step)
        parameters, optimiser = state.parameters, state.optimiser
        if jax.tree.leaves(parameters) and "parameters" not in self._frozen:
            parameters, optimiser = self._train(parameters, optimiser, gradients, dense)
        memories, bounds, seconds = self._maintain(memories, changes, step)
        nearest = {name: c.nearest for name, c in candidates.items() if c.nearest is not None}
        result = Result(outputs, losses, changes, bounds, nearest, seconds, dense)
        return State(step, memories, parameters, optimiser), result

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
        return {name: self._table(memory) for name, memory in state.memories.items()}

    def _table(self, memory: Memory) -> CoefficientTable | None:
        if memory.clock is None:
            return None
        return device_table(memory.clock, memory.clock, self._floating_type)

    def _future_table(self, memory: Memory, momentum: float) -> CoefficientTable | None:
        """Upper bounds on the coefficients from now on."""
        if memory.clock is None:
            return None
        return self._table(
            replace(memory, clock=replace(memory.clock, coefficients=memory.clock.future_bounds(momentum)))
        )

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
        x: jax.Array,
        y: jax.Array,
        weights: jax.Array | None,
        cold: Mapping[str, ColdPart] = _ALL_HOT,
    ) -> tuple[jax.Array, jax.Array, dict[str, _Candidates], Any, dict[str, DenseSignals]]:
        def forward(probes: Mapping[str, jax.Array] | None, parameters: Any) -> tuple[jax.Array, Any]:
            # Without probes only shapes are asked for, and the disk is left alone.
            parts = _ALL_HOT if probes is None else cold
            recall = Recall(databases, tables, probes, parts, self.scores_budget_bytes)
            outputs = nnx.merge(self._graph, parameters)(x, recall)
            losses = self.task.loss(outputs, y)
            total = jnp.sum(losses if weights is None else losses * weights)
            return total, (outputs, losses, recall.queries, recall.outputs, recall.nearest)

        shapes = jax.eval_shape(lambda p: forward(None, p)[1][3], parameters)
        probes = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
        (per_output, summed), aux = jax.grad(forward, argnums=(0, 1), has_aux=True)(probes, parameters)
        outputs, losses, queries, layer_outputs, nearest = aux
        candidates = {
            name: self._candidates(name, queries[name], layer_outputs[name], per_output[name], nearest)
            for name in self.layers
        }
        # The optimiser descends the batch mean.
        count = x.shape[0] if weights is None else jnp.sum(weights)
        mean = jax.tree.map(lambda g: g / count, summed)
        dense = {name: DenseSignals(queries[name], per_output[name] / count) for name in self._dense}
        return outputs, losses, candidates, mean, dense

    def _candidates(
        self,
        name: str,
        queries: jax.Array,
        outputs: jax.Array,
        gradients: jax.Array,
        nearest: Mapping[str, jax.Array],
    ) -> _Candidates:
        spec = self.layers[name].spec
        values, weights = spec.rule(outputs, gradients)
        square = nearest.get(name)
        admitted = admit(spec.memory, square, queries.shape[0])
        return _Candidates(queries, values, weights, admitted, None if square is None else jnp.sqrt(square))

    def _train_step(
        self, parameters: Any, optimiser: Any, gradients: Any, dense: Mapping[str, DenseSignals]
    ) -> tuple[Any, Any]:
        signals = signal_trees(self._weight_names, dense)
        updates, optimiser = self._optimiser.update(gradients, optimiser, parameters, **signals)
        return optax.apply_updates(parameters, updates), optimiser

    def _grow(
        self, name: str, memory: Memory, candidates: _Candidates, origins: jax.Array, step: int
    ) -> tuple[Memory, jax.Array]:
        rows = Rows(candidates.keys, candidates.values, candidates.weights, origins)
        memory, change = self.append(name, memory, rows, candidates.admitted, step)
        if memory.clock is not None:
            spec = self.layers[name].spec
            clock = memory.clock.advance(momentum=spec.momentum, decay=spec.decay)
            memory = replace(memory, clock=clock)
        return memory, change

    def append(
        self, name: str, memory: Memory, rows: Rows, admitted: jax.Array, step: int
    ) -> tuple[Memory, jax.Array]:
        """Writes rows into a layer's memory, within its cap and byte budget. The memory is consumed.

        Args:
          name: the layer.
          memory: its memory; the clock stays as it is.
          rows: B candidate rows.
          admitted: [B] bool: those that admission let through.
          step: the creation step, ≥ 1.

        Returns:
          The memory, and what changed: [5] int32 in the order of COUNTERS.

        Raises:
          ConfigError: the byte budget has no room for B entries.
          StorageError: the file system refused entries that exceed the budget.
        """
        policy, budget, evicted = self.layers[name].spec.memory, self.budgets[name], 0
        if budget is not None:
            assert memory.cold is not None
            room = cold_policies.make_room(
                policy,
                budget,
                memory.database,
                memory.occupancy,
                memory.cold,
                admitted,
                self._writer(name),
                step,
            )
            memory = replace(memory, database=room.database, occupancy=room.occupancy, cold=room.cold)
            policy, admitted, evicted = cold_policies.hot_policy(policy, budget), room.admitted, room.evicted
        table = self._table(memory) if policy.eviction == "smallest" else None
        database, occupancy, change = append(
            policy, memory.database, memory.occupancy, table, rows, admitted, step
        )
        if evicted:
            change = change.at[COUNTERS.index("evicted")].add(evicted)
        return replace(memory, database=database, occupancy=occupancy), change

    def prune(self, name: str, memory: Memory, epsilon: float, step: int) -> tuple[Memory, int, float]:
        """Removes a layer's entries that stay negligible, in memory and on disk. The memory is consumed.

        Args:
          name: the layer.
          memory: its memory.
          epsilon: ε.
          step: the present step.

        Returns:
          The memory, how many entries went, and the bound on the output's change (see `policies.prune`).
        """
        future = self._future_table(memory, self.layers[name].spec.momentum)
        database, occupancy, count, bound = prune(memory.database, memory.occupancy, future, epsilon, step)
        cold = memory.cold
        if cold is not None:
            cold, more, cold_bound = cold_policies.prune_cold(cold, future, epsilon, self._writer(name))
            counters = database.counters.at[COUNTERS.index("pruned")].add(more)
            database = replace(database, counters=counters)
            count, bound = count + more, bound + cold_bound
        return replace(memory, database=database, occupancy=occupancy, cold=cold), count, bound

    def drop_cold(self, name: str, memory: Memory, gone: Sequence[np.ndarray]) -> Memory:
        """Lets chosen entries on disk go.

        Args:
          name: the layer.
          memory: its memory, with a cold part.
          gone: per chunk, [R] bool.
        """
        assert memory.cold is not None
        live = [rows & ~out for rows, out in zip(memory.cold.live, gone, strict=True)]
        cold = cold_policies.condensed(memory.cold.with_live(live), self._writer(name))
        return replace(memory, cold=cold)

    def _writer(self, name: str) -> Callable[[Layout, dict[str, np.ndarray]], ColdChunk]:
        return partial(self._spill_folder.write, name)

    def _maintain(
        self, memories: Mapping[str, Memory], changes: dict[str, jax.Array], step: int
    ) -> tuple[dict[str, Memory], dict[str, float], float]:
        """Prunes where it is due; also returns the seconds that this took by itself."""
        due = [
            name
            for name, layer in self.layers.items()
            if name not in self._frozen
            and layer.spec.memory.prune_epsilon > 0
            and step % layer.spec.memory.prune_every == 0
        ]
        if not due:
            return dict(memories), {}, 0.0
        jax.block_until_ready(changes)
        begin = time.perf_counter()
        pruned, bounds = self._prune(memories, changes, due, step)
        return pruned, bounds, time.perf_counter() - begin

    def _prune(
        self, memories: Mapping[str, Memory], changes: dict[str, jax.Array], due: Sequence[str], step: int
    ) -> tuple[dict[str, Memory], dict[str, float]]:
        pruned, bounds = dict(memories), {}
        for name in due:
            epsilon = self.layers[name].spec.memory.prune_epsilon
            pruned[name], count, bounds[name] = self.prune(name, memories[name], epsilon, step)
            changes[name] = changes[name].at[3].add(count)
        return pruned, bounds


def _held(memory: Memory) -> Memory:
    """A frozen layer's memory one step later."""
    return memory if memory.clock is None else replace(memory, clock=memory.clock.hold())


def _require_distinct(names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(
                f"expected layers of different names, which name their memories; found two named {name!r}: "
                f"rename one"
            )
