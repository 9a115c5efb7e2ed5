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
from ..memory.coefficients import block_coefficients
from ..memory.database import COUNTERS
from ..memory.explain import Contribution, explain
from ..memory.plan import SCORES_BUDGET_BYTES
from ..memory.retrieval import retrieve
from ..memory.sharding import ONE_DEVICE, Shards
from ..memory.spill import Budget, SpillFolder
from ..memory.tiers import Tiers, retrieve_tiers
from .dense import weight_names
from .keeper import Keeper, maintenance_due
from .layers import GrowingSpec
from .losses import Task
from .networks import Network
from .rules import Rates
from .state import Examples, Memory, Result, State
from .steps import Asked, Lesson, Steps, cold_of, learnt_of

# Examples of one call that predicts: more make it no faster, and every number of them is compiled.
_PREDICTED_AT_ONCE = 1024
_TOKENS_AT_ONCE = 8192  # the same of texts, whose outputs are a number per token and word
_QUERIES_BYTES = 2**28  # of the queries of one layer in a pass over the disk
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
        self._graph, self._parameters = nnx.split(network)
        self._steps = Steps(
            self._graph,
            task,
            self.layers,
            self._dense,
            scores_budget_bytes,
            optax.with_extra_args_support(optimiser or optax.identity()),
            weight_names(network, self._parameters),
        )
        # In one program the optimiser takes each gradient as it is found, and not all are held at once.
        self._step = jax.jit(self._steps.learn_and_train, static_argnums=0, donate_argnums=(1, 2))
        self._predict = jax.jit(self._steps.predict)
        self._answer = jax.jit(self._steps.answer)
        self._trace = jax.jit(self._steps.trace)
        self._train = jax.jit(self._steps.train, donate_argnums=(0, 1))
        self._squares = jax.jit(self._steps.squares)
        self._frozen: frozenset[str] = frozenset()
        # Whether a step needs to know where values stand: their number is in the shape of what is compiled.
        policies = [layer.spec.tokens for layer in self.layers.values() if layer.spec.tokens is not None]
        self._marked = any("values" in (policy.reading, policy.admission) for policy in policies)

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
        return State(0, memories, parameters, self._steps.optimiser.init(parameters))

    def predict(self, state: State, x: np.ndarray) -> np.ndarray:
        """Outputs [n, C] for examples x [n, …], or [n, T, C] for texts.

        Raises:
          ConfigError: a layer is read only where the targets say.
        """
        learnt, cold = learnt_of(state), cold_of(state)
        predict = partial(self._steps.predict, cold=cold) if cold else self._predict
        size = self._at_once(state, x)
        outputs = []
        for start in range(0, len(x), size):
            chunk = x[start : start + size]
            output = predict(learnt, Asked(self._inputs(_filled(chunk, size, 0))))
            outputs.append(np.asarray(output[: len(chunk)]))
        if not outputs:
            return np.empty((0, self.task.outputs), self._floating_type)
        return np.concatenate(outputs)

    def answer(self, state: State, x: np.ndarray, y: np.ndarray) -> tuple[Any, np.ndarray]:
        """What is kept of the outputs for examples whose targets are known, and their losses.

        Args:
          state: the state, which stays usable.
          x: [n, …], n ≥ 1.
          y: [n, …].

        Returns:
          Outputs [n, C], or of texts `Tokens`, as arrays of numpy; and losses [n].
        """
        learnt, cold = learnt_of(state), cold_of(state)
        answer = partial(self._steps.answer, cold=cold) if cold else self._answer
        size, filling = self._at_once(state, x), -1 if self.task.language else 0
        chunks = [slice(start, start + size) for start in range(0, len(x), size)]
        places = max((len(self.task.places(y[chunk])) for chunk in chunks), default=1) if self._marked else 1
        parts = []
        for chunk in chunks:
            asked = self._asked(_filled(x[chunk], size, 0), _filled(y[chunk], size, filling), places)
            found, count = answer(learnt, asked), len(x[chunk])
            parts.append(jax.tree.map(lambda column, n=count: np.asarray(column)[:n], found))
        joined: tuple[Any, np.ndarray] = jax.tree.map(lambda *each: np.concatenate(each), *parts)
        return joined

    @property
    def network_graph(self) -> tuple[Any, Any]:
        """The network's structure and its initial parameters, which `nnx.merge` makes a network of."""
        return self._graph, self._parameters

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
            return np.asarray(retrieve_tiers(kernel, tiers, self._floating(queries)).answers)
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
        self,
        state: State,
        x: np.ndarray,
        layer: str,
        *,
        count: int = 5,
        output: int | None = None,
        y: np.ndarray | None = None,
        token: int = 0,
    ) -> list[Contribution]:
        """The entries of a growing layer that contributed most to its answer for one example.

        Args:
          state: the learner's state.
          x: one example […].
          layer: the layer's name.
          count: how many entries.
          output: measure along this output of the layer, for the readout a class; None: along its answer.
          y: the example's targets, for layers that are read only where they say.
          token: which token of a text.

        Raises:
          ConfigError: there is no such layer or output, or the layer is not read at the token.
        """
        if layer not in self.layers:
            raise ConfigError(f"expected a growing layer among {', '.join(self.layers)}; found {layer!r}")
        spec = self.layers[layer].spec
        last = spec.value_features - 1
        if output is not None and not 0 <= output <= last:
            raise ConfigError(f"expected an output of {layer} from 0 to {last}; found {output}")
        cold = cold_of(state)
        trace = partial(self._steps.trace, cold=cold) if cold else self._trace
        asked = Asked(self._inputs(x[None])) if y is None else self._asked(x[None], y[None])
        traced = trace(learnt_of(state), asked)[layer]
        row = 0 if traced.places is None else _row_of(traced.places.token, token, layer)
        memory = state.memories[layer]
        direction = None if output is None else jax.nn.one_hot(output, spec.value_features)
        return explain(
            spec.kernel,
            memory.database,
            memory.table,
            traced.queries[row],
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
        rates = {name: layer.spec.rule.rates(state.step) for name, layer in self.layers.items()}
        asked = self._asked(batch.x, batch.y)
        if weights is not None:
            asked = asked._replace(weights=self._floating(weights))
        parameters, optimiser, lesson = self._learnt(state, rates, asked)
        offered = lesson.offered
        memories: dict[str, Memory] = {}
        changes: dict[str, jax.Array] = {}
        origins = jnp.asarray(batch.origins, jnp.int32)
        for name, memory in state.memories.items():
            if name in self._frozen:
                memories[name], changes[name] = memory.held(), jnp.zeros(len(COUNTERS), jnp.int32)
                continue
            memories[name], changes[name] = self.keepers[name].grow(
                memory, offered[name], offered[name].origins(origins), step, lesson.by_entry.get(name)
            )
        bounds, seconds = self._maintain(memories, changes, step)
        nearest = {
            name: o.decision.distance for name, o in offered.items() if o.decision.distance is not None
        }
        examples = {name: o.examples for name, o in offered.items() if o.examples is not None}
        result = Result(
            lesson.outputs, lesson.losses, changes, bounds, nearest, seconds, lesson.dense, examples
        )
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
            found = self._squares(learnt_of(state), self._inputs(x[part]), self._targets(y[part]))
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
    def scores_budget_bytes(self) -> int:
        """Most bytes of scores of a layer on a device at any time, in programs compiled from now on."""
        return self._steps.scores_budget_bytes

    @scores_budget_bytes.setter
    def scores_budget_bytes(self, budget: int) -> None:
        self._steps.scores_budget_bytes = budget

    @property
    def compilations(self) -> int:
        """How many times the training step was compiled so far in this process."""
        count: int = self._step._cache_size()  # type: ignore[attr-defined]
        return count

    def drop_programs(self) -> None:
        """Frees the compiled programs: after growth those of smaller capacities are never used again."""
        for program in (self._step, self._predict, self._answer, self._trace):
            program.clear_cache()  # type: ignore[attr-defined]

    @cached_property
    def _floating_type(self) -> Any:
        return jnp.result_type(float)

    def _floating(self, x: np.ndarray) -> jax.Array:
        return jnp.asarray(x, self._floating_type)

    def _inputs(self, x: np.ndarray) -> jax.Array:
        """Numbers of words stay what they are."""
        return jnp.asarray(x) if self.task.language else self._floating(x)

    def _targets(self, y: np.ndarray) -> jax.Array:
        return jnp.asarray(y) if self.task.classification else self._floating(y)

    def _asked(self, x: np.ndarray, y: np.ndarray, places: int = 1) -> Asked:
        """A batch with targets; `places` is the least length of its values' places."""
        values = jnp.asarray(self.task.places(y, places)) if self._marked else None
        return Asked(self._inputs(x), self._targets(y), values=values)

    def _at_once(self, state: State, x: np.ndarray) -> int:
        """How many examples are predicted in one call."""
        rows = x.shape[1] if self.task.language else 1  # of an example
        return max(1, min(self._query_block(state) // rows, len(x)))

    def _query_block(self, state: State) -> int:
        """Rows of a growing layer that are asked in one call."""
        itemsize: int = self._floating_type.itemsize
        if cold_of(state):  # every block of queries reads the whole disk; scores are kept small there
            widest = max(layer.spec.key_features for layer in self.layers.values())
            return max(16, _QUERIES_BYTES // (itemsize * widest))
        return _TOKENS_AT_ONCE if self.task.language else _PREDICTED_AT_ONCE

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

    def _learnt(self, state: State, rates: Mapping[str, Rates], asked: Asked) -> tuple[Any, Any, Lesson]:
        """The parameters and the optimiser's state after a batch, and what it teaches the memories."""
        trains = bool(jax.tree.leaves(state.parameters)) and "parameters" not in self._frozen
        learnt, cold = learnt_of(state), cold_of(state)
        if not cold:
            others = learnt._replace(parameters=None)
            found: tuple[Any, Any, Lesson] = self._step(
                trains, state.parameters, state.optimiser, others, rates, asked
            )
            return found
        # Reading the disk is no part of a compiled program: with a cold part, each operation is one.
        lesson = self._steps.learn(learnt, rates, asked, cold)
        if not trains:
            return state.parameters, state.optimiser, lesson
        return (*self._train(state.parameters, state.optimiser, lesson.gradients, lesson.dense), lesson)

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


def _filled(rows: np.ndarray, size: int, filling: int) -> np.ndarray:
    """Rows [n, …] filled up to `size` of them."""
    return np.concatenate([rows, np.full((size - len(rows), *rows.shape[1:]), filling, rows.dtype)])


def _row_of(tokens: jax.Array, token: int, layer: str) -> int:
    found = np.flatnonzero(np.asarray(tokens) == token)
    if not len(found):
        raise ConfigError(
            f"expected a token at which layer {layer} is read; found token {token}, where it is not"
        )
    return int(found[0])


def _require_distinct(names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(
                f"expected layers of different names, which name their memories; found two named {name!r}: "
                f"rename one"
            )
