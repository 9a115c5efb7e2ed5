"""Lamina's training step on a memory of growing blocks, and the floor under it."""

import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lamina.learners import Batch, Task, build_learner, initial_key
from lamina.learners.growing_config import RBFConfig
from lamina.memory import Database, Decision, MemoryConfig, Rows, append

from ._floor import stream
from ._harness import side_by_side
from ._plan import Plan

_CHUNK = 1024  # rows appended at once while filling


class Growing:
    """A learner on its way through the pass."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        config = RBFConfig(
            kind="rbf",
            blocks=plan.blocks,
            temperature=plan.temperature,
            value_rate=plan.value_rate,
            memory=MemoryConfig(initial_capacity=plan.initial_capacity, capacity=plan.fixed_rows),
        )
        task = Task(plan.classes, classification=True)
        self.learner = build_learner(config, features=plan.features, task=task, batch_size=plan.batch, seed=0)
        self.state = self.learner.init(initial_key(0))

    @property
    def databases(self) -> dict[str, Database]:
        return {layer: memory.database for layer, memory in self.state.memories.items()}

    def learn(self, step: int) -> jax.Array:
        """One training step; the outputs [B, C] predicted before it."""
        batch = Batch(*self.plan.examples_of(step), np.arange(self.plan.batch))
        self.state, result = self.learner.update(self.state, batch)
        jax.block_until_ready((self.databases, result))
        return result.outputs

    def fill(self, entries: int) -> None:
        """Appends through the policies, as training does, but many rows at once."""
        memories = {}
        for layer, memory in self.state.memories.items():
            spec = self.learner.layers[layer].spec
            policy, kernel = spec.memory, spec.kernel
            database, occupancy = memory.database, memory.occupancy
            # The same rows again and again: what is stored does not change what a step costs.
            rows = _rows(_CHUNK, database.key_features, database.value_features)
            while occupancy.most < entries:
                count = min(_CHUNK, entries - occupancy.most)
                part = Rows(rows.keys[:count], rows.values[:count], None, rows.origin[:count])
                everything = Decision.everything(count)
                database, occupancy, _ = append(
                    policy, kernel, database, occupancy, None, part, everything, 1
                )
            memories[layer] = replace(memory, database=database, occupancy=occupancy)
        self.state = replace(self.state, memories=memories)

    def reads(self) -> list[jax.Array]:
        """Keys and values, as often as any exact step must read them.

        The first block only answers (keys, values); every later layer also passes gradients back to its
        queries (values, keys again).
        """
        return [
            rows
            for layer, database in self.databases.items()
            for block in database.blocks
            for rows in (block.keys, block.values) * (1 if layer == "block0" else 2)
        ]


def measure(plan: Plan) -> dict[str, Any]:
    """Times `Learner.update` and the floor in turn, at each number of entries.

    Returns:
      `points` (see `_point`), `capacities` (slots of a layer after each growth) and `compilations`.
    """
    growing, points = Growing(plan), []
    for entries, untimed in zip(plan.entries, plan.untimed, strict=True):
        growing.fill(untimed)
        points.append({"entries": entries, **_point(growing, plan.rounds)})
    slots = [block.slots for block in growing.databases["readout"].blocks]
    return {
        "points": points,
        "capacities": np.cumsum(slots).tolist(),
        "compilations": growing.learner.compilations,
    }


def _point(growing: Growing, rounds: int) -> dict[str, Any]:
    start = time.perf_counter()
    growing.learn(0)
    first = time.perf_counter() - start
    stream(growing.reads())
    seconds = side_by_side({"step": growing.learn, "floor": lambda _: stream(growing.reads())}, rounds)
    step, floor = (float(np.median(seconds[way])) for way in ("step", "floor"))
    readout = growing.databases["readout"]
    return {
        "slots": readout.capacity,
        "database_bytes": sum(database.nbytes for database in growing.databases.values()),
        "step_seconds": step,
        # All slots were streamed, but no step needs to read the empty ones.
        "floor_seconds": floor * int(readout.entries) / readout.capacity,
        "gigabytes_per_second": sum(rows.nbytes for rows in growing.reads()) / floor / 1e9,
        "compile_seconds": max(0.0, first - step),
    }


def _rows(count: int, key_features: int, value_features: int) -> Rows:
    draw = np.random.default_rng(0)
    keys = draw.standard_normal((count, key_features), np.float32)
    values = 1e-3 * draw.standard_normal((count, value_features), np.float32)
    return Rows(jnp.asarray(keys), jnp.asarray(values), None, jnp.arange(count, dtype=jnp.int32))
