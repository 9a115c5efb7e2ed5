"""Handing what was learnt on to a learner with other settings: what has to agree, and what begins anew."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax

from ..errors import ConfigError
from ..learners import Learner, Memory, State
from ..memory.coefficients import Clock, Clocks
from ..memory.cold import ColdPart
from ..memory.database import Database
from ..memory.persist import database_meta


def adopted(state: State, learner: Learner, start: State, where: str) -> State:
    """A state as another learner goes on with it.

    Memories and parameters are kept. The optimiser's state is kept if the other learner's has the same form,
    else it begins anew. A clock begins at rest where the other learner is the first to use one.

    Args:
      state: what was learnt.
      learner: who goes on.
      start: its own first state.
      where: begins the messages.

    Raises:
      ConfigError: layers, shapes or types differ.
    """
    check_layers(where, learner.layers, state.memories)
    for name, memory in state.memories.items():
        check_layer(where, name, database_meta(memory.database), start.memories[name])
    expected, found = kinds(jax.tree.leaves(start.parameters)), kinds(jax.tree.leaves(state.parameters))
    if expected != found:
        raise ConfigError(f"{where}: expected parameters of {expected}; found {found}: use the same network")
    memories = {
        name: replace(
            memory,
            clocks=memory.clocks or resting_clocks(start.memories[name], state.step),
            cold=fitting_cold(where, name, memory.database, memory.cold, learner),
        )
        for name, memory in state.memories.items()
    }
    same = _form(state.optimiser) == _form(start.optimiser)
    return State(state.step, memories, state.parameters, state.optimiser if same else start.optimiser)


def check_layers(where: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuses memories of other layers than a learner has."""
    if set(expected) != set(found):
        raise ConfigError(
            f"{where}: expected memories of the layers {sorted(expected)}; "
            f"found {sorted(found)}: use a learner of the same layers"
        )


def check_layer(where: str, name: str, meta: Mapping[str, Any], memory: Memory) -> None:
    """Refuses a memory of other shapes or another type than a learner's layer has.

    Args:
      where: begins the message.
      name: the layer.
      meta: `database_meta` of what is there.
      memory: the learner's own first memory.
    """
    database = memory.database
    expected = (
        database.key_features,
        database.value_features,
        database.weighted,
        str(database.blocks[0].keys.dtype),
    )
    found = (meta["key_features"], meta["value_features"], meta["weighted"], meta["dtype"])
    if expected != found:
        raise ConfigError(
            f"{where}: layer {name} expects (key features, value features, weights, dtype) "
            f"{expected}; found {found}: use a learner and a stream of the same kind"
        )


def check_cap(where: str, name: str, entries: int, learner: Learner) -> None:
    """Refuses a memory with more entries than a learner's cap."""
    cap = learner.layers[name].spec.memory.capacity
    if cap is not None and entries > cap:
        raise ConfigError(
            f"{where}: layer {name} holds {entries} entries; expected at most the "
            f"{cap} of learner.memory.capacity: raise it, or let the phase begin with a cap"
        )


def fitting_cold(
    where: str, name: str, database: Database, cold: ColdPart | None, learner: Learner
) -> ColdPart | None:
    """A layer's cold part as a learner goes on with it: an empty one where it is the first with a budget.

    Args:
      where: begins the messages.
      name: the layer.
      database: what of its memory is not on disk.
      cold: what is, or None.
      learner: who goes on.

    Raises:
      ConfigError: there are entries on disk and the learner has no byte budget, or too small a one.
    """
    budget, held = learner.keepers[name].budget, cold is not None and bool(cold.chunks)
    if budget is None:
        if cold is not None and held:
            raise ConfigError(
                f"{where}: layer {name} keeps {cold.entries} of its entries on disk; expected "
                f"learner.memory.budget_bytes, and no capacity that fits into it: set it"
            )
        return None
    fitting = cold if cold is not None and held else ColdPart(budget.layout, (), ())
    budget.check(f"{where}: layer {name}", database, fitting)
    return fitting


def resting_clocks(start: Memory, step: int) -> Clocks | None:
    """If a learner begins to use clocks: at rest, with all coefficients 1."""
    return None if start.clocks is None else Clocks.both(Clock.at_rest(step))


def kinds(leaves: Any) -> str:
    """Shapes and types of arrays in one line."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"


def _form(tree: Any) -> tuple[Any, str]:
    return jax.tree.structure(tree), kinds(jax.tree.leaves(tree))
