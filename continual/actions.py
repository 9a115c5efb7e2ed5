"""What a phase may do to the memories before its first step and after its last one.

Each action takes a state and gives the next; the state is consumed. Entries of the initial function stay.
"""

from collections.abc import Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from ..learners import Learner, Memory, State
from ..memory.coefficients import Clock, device_table
from ..memory.database import COUNTERS, EMPTY, INITIAL, Rows
from ..memory.policies import MemoryConfig, Occupancy, append, prune
from .effective import coefficients_of, sizes_of

_MERGED_AT_ONCE = 1024  # entries appended in one call


def decay(state: State, factor: float) -> State:
    """Multiplies what every entry so far contributes, now and (under momentum) later."""

    def fade(memory: Memory) -> Memory:
        clock = memory.clock or Clock(state.step, 1.0, np.ones(state.step), np.zeros(state.step))
        return replace(
            memory,
            clock=replace(
                clock, coefficients=clock.coefficients * factor, velocities=clock.velocities * factor
            ),
        )

    return replace(state, memories={name: fade(memory) for name, memory in state.memories.items()})


def prune_all(state: State, learner: Learner, epsilon: float) -> State:
    """Removes the entries whose effective value and weight stay below ε (App. D.1), in every layer."""
    memories = {}
    for name, memory in state.memories.items():
        bounds = None
        if memory.clock is not None:
            ahead = memory.clock.future_bounds(learner.layers[name].spec.momentum)
            clock = replace(memory.clock, coefficients=ahead)
            bounds = device_table(clock, clock, memory.database.blocks[0].keys.dtype)
        database, occupancy, _, _ = prune(memory.database, memory.occupancy, bounds, epsilon, state.step)
        memories[name] = Memory(database, occupancy, memory.clock)
    return replace(state, memories=memories)


def cap(state: State, entries: int) -> State:
    """Removes the least effective entries of every layer until so many are left, initial ones included."""
    memories = {}
    for name, memory in state.memories.items():
        created = memory.database.column("created")
        excess = int(memory.database.entries) - entries
        worth = np.where(created > INITIAL, np.abs(coefficients_of(memory)) * sizes_of(memory), np.inf)
        least = np.argsort(worth, kind="stable")[: max(0, excess)]
        memories[name] = _without(memory, least[np.isfinite(worth[least])], state.step)
    return replace(state, memories=memories)


def brought_forward(past: State, step: int) -> State:
    """An earlier state as if it had been left alone until `step`: nothing was added, nothing faded."""
    memories = {}
    for name, memory in past.memories.items():
        clock = memory.clock
        for _ in range(0 if clock is None else step - past.step):
            assert clock is not None
            clock = clock.hold()
        memories[name] = replace(memory, clock=clock)
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
        rows = _live_rows(other.memories[name], shift)
        clock = memory.clock
        if clock is not None:  # a creation step whose entries have no momentum
            coefficients, velocities = np.append(clock.coefficients, 1.0), np.append(clock.velocities, 0.0)
            clock = Clock(step, clock.initial, coefficients, velocities)
        memory = replace(memory, clock=clock)
        memories[name] = _with_rows(memory, rows, learner.layers[name].spec.memory, step)
    return replace(state, step=step, memories=memories)


def _live_rows(memory: Memory, shift: int) -> dict[str, np.ndarray]:
    """The columns of all entries but the initial ones, as they count now, in the order of slots."""
    database, coefficients = memory.database, coefficients_of(memory)
    live = database.column("created") > INITIAL
    present = coefficients[live]
    rows = {
        "keys": database.column("keys")[live],
        "values": database.column("values")[live] * present[:, None],
        "origin": database.column("origin")[live] + shift,
    }
    if database.weighted:
        rows["weights"] = database.column("weights")[live] * present
    return rows


def _with_rows(memory: Memory, rows: Mapping[str, np.ndarray], policy: MemoryConfig, step: int) -> Memory:
    """Appends entries, which are evicted or left out where the layer's cap says so."""
    every = replace(policy, admission="all", novelty_threshold=None)
    dtype = memory.database.blocks[0].keys.dtype
    for start in range(0, len(rows["origin"]), _MERGED_AT_ONCE):
        part = {name: column[start : start + _MERGED_AT_ONCE] for name, column in rows.items()}
        weights = jnp.asarray(part["weights"], dtype) if "weights" in part else None
        fresh = Rows(
            jnp.asarray(part["keys"], dtype),
            jnp.asarray(part["values"], dtype),
            weights,
            jnp.asarray(part["origin"], jnp.int32),
        )
        table = None if memory.clock is None else device_table(memory.clock, memory.clock, dtype)
        admitted = jnp.ones(len(part["origin"]), bool)
        database, occupancy, _ = append(
            every, memory.database, memory.occupancy, table, fresh, admitted, step
        )
        memory = Memory(database, occupancy, memory.clock)
    return memory


def _without(memory: Memory, slots: np.ndarray, step: int) -> Memory:
    """Empties slots; their entries count as evicted."""
    database = memory.database
    gone = np.zeros(database.capacity, bool)
    gone[slots] = True
    blocks, begin = [], 0
    for block in database.blocks:
        out = database.shards.place(gone[begin : begin + block.slots])
        created = jnp.where(out, EMPTY, block.created)
        blocks.append(replace(block, created=created, changed=jnp.where(out, step, block.changed)))
        begin += block.slots
    counters = database.counters.at[COUNTERS.index("evicted")].add(len(slots))
    database = replace(
        database, blocks=tuple(blocks), entries=database.entries - len(slots), counters=counters
    )
    holes = memory.occupancy.holes or len(slots) > 0
    return Memory(database, Occupancy.of(database, holes=holes), memory.clock)
