"""What a phase may do to the memories before its first step and after its last one.

Each action takes a state and gives the next; the state is consumed. Entries of the initial function stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from ..learners import Learner, Memory, State
from ..memory.admission import Decision
from ..memory.append import Occupancy
from ..memory.coefficients import Clock, Clocks
from ..memory.cold_stream import WEIGHING
from ..memory.database import COUNTERS, INITIAL, Rows, emptied
from .effective import coefficients_of, columns_of, sizes_of

_MERGED_AT_ONCE = 1024  # entries appended in one call


def decay(state: State, factor: float) -> State:
    """Multiplies what every entry so far contributes, now and (under momentum) later."""

    def fade(memory: Memory) -> Memory:
        clocks = memory.clocks or Clocks.both(Clock.at_rest(state.step))
        return replace(memory, clocks=clocks.each(lambda clock: clock.scaled(1, state.step, factor)))

    return replace(state, memories={name: fade(memory) for name, memory in state.memories.items()})


def prune_all(state: State, learner: Learner, epsilon: float) -> State:
    """Removes the entries whose effective value and weight stay below ε (App. D.1), in every layer."""
    memories = {}
    for name, memory in state.memories.items():
        memories[name], _ = learner.keepers[name].prune(memory, epsilon, state.step)
    return replace(state, memories=memories)


def cap(state: State, learner: Learner, entries: int) -> State:
    """Removes the least effective entries of every layer until so many are left, initial ones included."""
    memories = {}
    for name, memory in state.memories.items():
        excess = memory.entries - entries
        worth = [
            np.where(columns["created"] > INITIAL, sizes_of(memory, columns), np.inf)
            for columns in columns_of(memory, WEIGHING)
        ]
        whole = np.concatenate(worth)
        least = np.argsort(whole, kind="stable")[: max(0, excess)]
        gone = np.zeros(len(whole), bool)
        gone[least[np.isfinite(whole[least])]] = True
        hot, *cold = np.split(gone, np.cumsum([len(part) for part in worth])[:-1])
        memory = _without(memory, np.flatnonzero(hot), int(gone.sum()), state.step)
        memories[name] = learner.keepers[name].drop_cold(memory, cold) if cold else memory
    return replace(state, memories=memories)


def brought_forward(past: State, step: int) -> State:
    """An earlier state as if it had been left alone until `step`: nothing was added, nothing faded."""
    memories = {}
    for name, memory in past.memories.items():
        for _ in range(step - past.step):
            memory = memory.held()
        memories[name] = memory
    return replace(past, step=step, memories=memories)


def merge(state: State, other: State, learner: Learner, shift: int) -> State:
    """Adds the entries of other memories, the initial ones aside: for kernels that sum, the functions add up.

    It is a step of its own, in which what the other entries count for becomes part of their values.

    Args:
      state: what is learnt here.
      other: what is learnt elsewhere, of the same layers.
      learner: whose caps and evictions hold.
      shift: added to the origins of the other's entries.
    """
    step = state.step + 1
    memories = {}
    for name, memory in state.memories.items():
        if memory.clocks is not None:
            memory = replace(memory, clocks=memory.clocks.each(Clock.without_momentum))
        for rows in _live_rows(other.memories[name], shift):
            memory = _with_rows(name, memory, rows, learner, step)
        memories[name] = memory
    return replace(state, step=step, memories=memories)


def _live_rows(memory: Memory, shift: int) -> Iterator[dict[str, np.ndarray]]:
    """The columns of all entries but the initial ones, as they count now, in the order of slots."""
    for columns in columns_of(memory, ("created", "keys", "values", "weights", "origin")):
        live = columns["created"] > INITIAL
        of_values, of_weights = coefficients_of(memory, columns["created"][live])
        rows = {
            "keys": columns["keys"][live],
            "values": columns["values"][live] * of_values[:, None],
            "origin": columns["origin"][live] + shift,
        }
        if "weights" in columns:
            rows["weights"] = columns["weights"][live] * of_weights
        yield rows


def _with_rows(
    name: str, memory: Memory, rows: Mapping[str, np.ndarray], learner: Learner, step: int
) -> Memory:
    """Appends entries, which are evicted or left out where the layer's cap says so."""
    dtype, budget = memory.database.blocks[0].keys.dtype, learner.keepers[name].budget
    at_once = _MERGED_AT_ONCE if budget is None else min(_MERGED_AT_ONCE, budget.hot_slots)
    for start in range(0, len(rows["origin"]), at_once):
        part = {column: values[start : start + at_once] for column, values in rows.items()}
        weights = jnp.asarray(part["weights"], dtype) if "weights" in part else None
        fresh = Rows(
            jnp.asarray(part["keys"], dtype),
            jnp.asarray(part["values"], dtype),
            weights,
            jnp.asarray(part["origin"], jnp.int32),
        )
        everything = Decision.everything(len(part["origin"]))
        memory, _ = learner.keepers[name].append(memory, fresh, everything, step)
    return memory


def _without(memory: Memory, slots: np.ndarray, evicted: int, step: int) -> Memory:
    """Empties slots, and counts the entries that were evicted, here and on disk."""
    database = memory.database
    gone = np.zeros(database.capacity, bool)
    gone[slots] = True
    blocks, begin = [], 0
    for block in database.blocks:
        out = database.shards.place(gone[begin : begin + block.slots])
        blocks.append(emptied(block, out, step))
        begin += block.slots
    counters = database.counters.at[COUNTERS.index("evicted")].add(evicted)
    database = replace(
        database, blocks=tuple(blocks), entries=database.entries - len(slots), counters=counters
    )
    holes = memory.occupancy.holes or len(slots) > 0
    return replace(memory, database=database, occupancy=Occupancy.of(database, holes=holes))
