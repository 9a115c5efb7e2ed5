"""A checkpoint: one atomic commit of all that a run needs to go on as if it had never stopped.

The growing layers' databases are tables of the store; parameters, optimiser state and clocks are one blob,
and whatever else advances (the reader, counts, the window of metrics not yet recorded) is another.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, FormatError
from ..learners import Learner, Memory, State
from ..learners.training import States
from ..memory.append import Occupancy
from ..memory.coefficients import Clock, Clocks
from ..memory.cold import ColdPart, committed_cold
from ..memory.database import Database
from ..memory.persist import (
    TableMap,
    chunks_change,
    cold_meta,
    database_meta,
    load_database,
    table_change,
)
from ..memory.store import ChunksChange, Generation, Store, TableChange
from .adopting import check_cap, check_layer, check_layers, fitting_cold, kinds, resting_clocks
from .finite import require_finite

_LEARNER, _PROGRESS, _WAITING = "learner.npz", "progress.json", "waiting.npz"
_COLD = ".cold"  # ends the name of the table that holds a layer's cold part
_TELLING = ("key_norms", "value_norms", "weights")  # columns that are finite only if the whole entry is


@dataclass(frozen=True)
class Checkpointer:
    """Commits a learner's state, writing only what changed since the commit before."""

    store: Store
    maps: Mapping[str, TableMap]

    def commit(
        self,
        state: State,
        progress: Mapping[str, Any],
        meta: Mapping[str, Any],
        tag: str | None = None,
        waiting: bytes | None = None,
    ) -> "Checkpointer":
        """Makes everything durable.

        Args:
          state: the learner's state.
          progress: everything else that advances (JSON): reader, counts, window, positions.
          meta: what a reader of the store may want to see (JSON).
          tag: keeps this generation under a name.
          waiting: the batches that wait for their labels; None: there is none.

        Raises:
          DivergedError: an entry or a parameter is not finite; the commit before is intact.
          StorageError: the file system refused; the commit before is intact.
        """
        changes, maps, layers = {}, {}, {}
        for name, memory in state.memories.items():
            known = self.maps.get(name, TableMap.empty())
            changes[name], found = table_change(memory.database, known, state.step)
            maps[name] = replace(found, cold=memory.cold)
            layers[name] = database_meta(memory.database) | cold_meta(memory.cold, name + _COLD)
        _require_finite(state, changes)
        tables: dict[str, TableChange | ChunksChange] = {**changes, **self._chunks_changes(state)}
        blobs = {_LEARNER: _dump_learner(state), _PROGRESS: json.dumps(progress).encode()}
        if waiting is not None:
            blobs[_WAITING] = waiting
        self.store.commit(
            step=state.step, tables=tables, blobs=blobs, meta={**meta, "layers": layers}, tag=tag
        )
        return replace(self, maps=maps)

    def _chunks_changes(self, state: State) -> dict[str, ChunksChange]:
        """What must be done about the tables of cold parts."""
        changes, head = {}, self.store.head
        for name, memory in state.memories.items():
            table, known = name + _COLD, self.maps.get(name, TableMap.empty())
            if memory.cold is None or not (memory.cold.chunks or (head and table in head.tables)):
                continue
            changes[table] = chunks_change(memory.cold, known.cold)
            # Rows that were spilled between two commits have never been looked at.
            for chunk in memory.cold.chunks[changes[table].kept :]:
                columns = chunk.read(memory.cold.layout, [c for c in _TELLING if c in chunk.files])
                require_finite(state.step, f"entries of layer {name}", list(columns.values()))
        return changes

    def from_scratch(self) -> "Checkpointer":
        """One whose next commit writes all entries anew: those in memory are not the last commit's."""
        nothing = np.empty(0, np.int64)
        return replace(self, maps={n: TableMap(nothing, known.rows, -1) for n, known in self.maps.items()})


def save(state: State, path: str | Path) -> None:
    """Writes what a learner has learnt to a new folder, durably.

    Args:
      state: the learner's state; it stays usable.
      path: a folder that is empty or does not exist yet.

    Raises:
      ConfigError: the folder holds something.
      DivergedError: an entry or a parameter is not finite.
      StorageError: the file system refused.
    """
    with Store.create(Path(path)) as store:
        Checkpointer(store, {}).commit(state, {}, {})


def load(path: str | Path, learner: Learner) -> State:
    """Reads what `save`, or a run's last commit in `RUN/memory`, has written.

    Args:
      path: the folder.
      learner: a learner of the same layers and shapes.

    Raises:
      MissingDataError, FormatError: there is nothing, or it is damaged.
      ConfigError: the learner has other layers or shapes.
    """
    with Store.open(Path(path)) as store:
        return load_state(store.generation(), learner, learner.init(jax.random.key(0)))[0]


def load_state(
    generation: Generation, learner: Learner, start: State, *, capped: bool = True
) -> tuple[State, dict[str, TableMap]]:
    """A committed learner's state.

    Args:
      generation: the commit.
      learner: the learner that goes on with it.
      start: the learner's own first state: gives the shapes of parameters and optimiser.
      capped: whether the memories have to be within the learner's caps.

    Raises:
      ConfigError: the learner has other layers or shapes than the committed one.
    """
    layers = _layers(generation)
    where = str(generation.path)
    check_layers(where, learner.layers, layers)
    for name, meta in layers.items():
        check_layer(where, name, meta, start.memories[name])
        if capped:
            check_cap(where, name, meta["entries"] + meta.get("cold", {"entries": 0})["entries"], learner)
    blob = _load_blob(generation)
    memories, maps = {}, {}
    for name, meta in layers.items():
        database, found = load_database(generation.tables[name], meta, generation.step, learner.shards)
        cold = fitting_cold(where, name, database, _load_cold(generation, meta), learner)
        maps[name] = replace(found, cold=cold)
        holes = bool(blob[f"{name}/holes"]) or found.moved
        memories[name] = Memory(
            database,
            Occupancy.of(database, holes=holes),
            _load_clocks(blob, name, start.memories[name], generation.step),
            cold,
            _load_training(str(generation.path), blob, name, database, learner),
        )
    parameters, optimiser = _load_leaves(generation, blob, (start.parameters, start.optimiser))
    return State(generation.step, memories, parameters, optimiser), maps


def load_clocks(generation: Generation) -> dict[str, Clocks]:
    """The committed clocks by layer, of those layers whose entries change with age; needs no learner."""
    if _LEARNER not in generation.blobs:
        return {}
    blob, name_end = _load_blob(generation), "/clock/initial"
    names = [name.removesuffix(name_end) for name in blob if name.endswith(name_end)]
    return {name: _stored_clocks(blob, name) for name in names}


def load_progress(generation: Generation) -> dict[str, Any]:
    """What `Checkpointer.commit` was given as progress.

    Raises:
      FormatError: the store holds something else.
    """
    _layers(generation)
    progress: dict[str, Any] = json.loads(generation.blob(_PROGRESS))
    return progress


def load_waiting(generation: Generation) -> bytes | None:
    """The committed batches that wait for their labels; None if there is none."""
    return generation.blob(_WAITING) if _WAITING in generation.blobs else None


def _layers(generation: Generation) -> dict[str, Any]:
    layers: dict[str, Any] | None = generation.meta.get("layers")
    if layers is None:
        raise FormatError(f"{generation.path}: expected a learner's memory; found a store of something else")
    return layers


def _load_cold(generation: Generation, meta: Mapping[str, Any]) -> ColdPart | None:
    if "cold" not in meta:
        return None
    return committed_cold(generation.tables[meta["cold"]["table"]], generation.path)


def _dump_learner(state: State) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    for name, memory in state.memories.items():
        arrays[f"{name}/holes"] = np.array(memory.occupancy.holes)
        if memory.clocks is not None:
            clocks = {"clock": memory.clocks.values}
            if memory.clocks.weights is not memory.clocks.values:
                clocks["weight_clock"] = memory.clocks.weights
            for kind, clock in clocks.items():
                arrays[f"{name}/{kind}/initial"] = np.array(clock.initial)
                arrays[f"{name}/{kind}/coefficients"] = clock.coefficients
                arrays[f"{name}/{kind}/velocities"] = clock.velocities
        for number, leaf in enumerate(jax.tree.leaves(memory.training)):
            rows = leaf.ndim > 0
            arrays[f"{name}/training/{number}"] = (
                memory.database.shards.fetch(leaf) if rows else np.asarray(leaf)
            )
    for number, leaf in enumerate(jax.tree.leaves((state.parameters, state.optimiser))):
        arrays[f"leaf/{number}"] = np.asarray(leaf)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _load_blob(generation: Generation) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(generation.blob(_LEARNER))) as file:
        return {name: file[name] for name in file.files}


def _load_clocks(blob: Mapping[str, np.ndarray], name: str, start: Memory, step: int) -> Clocks | None:
    """The committed clocks; if the learner begins to use some, at rest with all coefficients 1."""
    if f"{name}/clock/initial" not in blob:
        return resting_clocks(start, step)
    return _stored_clocks(blob, name)


def _stored_clocks(blob: Mapping[str, np.ndarray], name: str) -> Clocks:
    values = _load_clock(blob, f"{name}/clock")
    if f"{name}/weight_clock/initial" not in blob:
        return Clocks.both(values)
    return Clocks(values, _load_clock(blob, f"{name}/weight_clock"))


def _load_clock(blob: Mapping[str, np.ndarray], prefix: str) -> Clock:
    coefficients, velocities = blob[f"{prefix}/coefficients"], blob[f"{prefix}/velocities"]
    return Clock(len(coefficients), float(blob[f"{prefix}/initial"]), coefficients, velocities)


def _load_training(
    where: str, blob: Mapping[str, np.ndarray], name: str, database: Database, learner: Learner
) -> States | None:
    """The committed states of the optimisers of entries; new ones if the learner begins to train them."""
    training = learner.layers[name].spec.training
    if training is None:
        return None
    fresh = training.start(database)
    leaves, structure = jax.tree.flatten(fresh)
    stored = [blob[f"{name}/training/{n}"] for n in range(len(leaves)) if f"{name}/training/{n}" in blob]
    if not stored:
        return fresh
    if kinds(leaves) != kinds(stored):
        raise ConfigError(
            f"{where}: expected optimisers of the entries of {name} with {kinds(leaves)}; found "
            f"{kinds(stored)}: go on with the same optimiser and number of devices"
        )
    place = database.shards.place
    states: States = jax.tree.unflatten(structure, [place(x) if x.ndim else jnp.array(x) for x in stored])
    return states


def _load_leaves(generation: Generation, blob: Mapping[str, np.ndarray], like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    stored = [blob[f"leaf/{number}"] for number in range(sum(name.startswith("leaf/") for name in blob))]
    expected, found = kinds(leaves), kinds(stored)
    if expected != found:
        raise ConfigError(
            f"{generation.path}: expected parameters and an optimiser of {expected}; found {found}: use the "
            f"network, optimiser and precision that wrote them"
        )
    # Copies: updates consume them.
    return jax.tree.unflatten(structure, [jnp.array(leaf) for leaf in stored])


def _require_finite(state: State, changes: Mapping[str, TableChange]) -> None:
    for name, change in changes.items():
        columns = [change.appended[c] for c in _TELLING if c in change.appended]
        require_finite(state.step, f"entries of layer {name}", columns)
    leaves = map(np.asarray, jax.tree.leaves((state.parameters, state.optimiser)))
    require_finite(state.step, "parameters", leaves)
