"""The keeper of one growing layer's memory: begins it, appends, prunes, folds, within cap and byte budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError
from ..memory import cold_policies
from ..memory.admission import Decision
from ..memory.append import Occupancy, append
from ..memory.coefficients import Clocks, device_table
from ..memory.cold import ColdChunk, ColdPart
from ..memory.database import COUNTERS, Rows
from ..memory.folding import fold_equal
from ..memory.layout import Layout
from ..memory.policy import MemoryConfig
from ..memory.pruning import forget, prune
from ..memory.sharding import Shards
from ..memory.spill import Budget
from .growth import Candidates
from .initial import initial_database
from .layers import GrowingSpec
from .schedules import highest, rate_at
from .state import Memory
from .training import Columns, forgotten, train


@dataclass(frozen=True)
class Maintenance:
    """What pruning and folding did to a memory."""

    removed: int = 0  # entries
    bound: float | None = None  # on the change of the layer's output by pruning; None: none, or not known


@dataclass(frozen=True)
class Keeper:
    """Keeps the memory of one layer. Every method that takes a memory consumes it."""

    spec: GrowingSpec
    budget: Budget | None  # slots in memory; None: all entries stay there
    write: Callable[[Layout, dict[str, np.ndarray]], ColdChunk]  # writes a chunk to disk

    def __post_init__(self) -> None:
        if self.budget is not None and self.spec.training is not None:
            raise ConfigError(
                "memory.budget_bytes: expected none where entries are trained, as those on disk are never "
                "rewritten: leave out budget_bytes, or train"
            )

    def start(self, key: jax.Array, shards: Shards) -> Memory:
        """The memory before the first example; `key` draws the initial entries."""
        spec = replace(self.spec, memory=cold_policies.hot_policy(self.spec.memory, self.budget))
        database = initial_database(spec, key, shards)
        cold = None if self.budget is None else ColdPart(self.budget.layout, (), ())
        clocks = Clocks.start() if spec.fades else None
        training = None if spec.training is None else spec.training.start(database)
        return Memory(database, Occupancy.of(database, holes=False), clocks, cold, training)

    def grow(
        self,
        memory: Memory,
        offered: Candidates,
        origins: jax.Array,
        step: int,
        gradients: tuple[Columns, ...] | None = None,
    ) -> tuple[Memory, jax.Array]:
        """Trains the entries where the layer is hybrid, appends a batch, and advances the clocks.

        Args:
          memory: the memory.
          offered: what the batch offers.
          origins: [B] int32 stream offsets of the examples.
          step: the creation step, ≥ 1.
          gradients: per block those of the entries, of the batch-mean loss; None: entries are not trained.

        Returns:
          The memory, and what changed: [5] int32 in the order of COUNTERS.
        """
        if gradients is not None:
            memory = self._trained(memory, gradients, step)
        rows = Rows(offered.keys, offered.values, offered.weights, origins)
        memory, change = self.append(memory, rows, offered.decision, step)
        if memory.training is not None:
            memory = self._joined(memory, step)
        if memory.clocks is not None:
            momentum = rate_at(self.spec.momentum, step - 1)
            clocks = memory.clocks.advance(
                momentum=momentum,
                weight_momentum=momentum if self.spec.momentum_on == "both" else 0.0,
                decay=rate_at(self.spec.decay, step - 1),
            )
            memory = replace(memory, clocks=clocks)
        return memory, change

    def append(self, memory: Memory, rows: Rows, decision: Decision, step: int) -> tuple[Memory, jax.Array]:
        """Writes rows within cap and byte budget; the clocks stay as they are.

        Args:
          memory: the memory.
          rows: B offered rows.
          decision: what admission made of them.
          step: the creation step, ≥ 1.

        Returns:
          The memory, and what changed: [5] int32 in the order of COUNTERS.

        Raises:
          ConfigError: the byte budget has no room for B entries.
          StorageError: the file system refused entries that exceed the budget.
        """
        policy, evicted = self.spec.memory, 0
        if self.budget is not None:
            assert memory.cold is not None
            room = cold_policies.make_room(
                policy,
                self.budget,
                memory.database,
                memory.occupancy,
                memory.cold,
                decision.admitted,
                self.write,
                step,
            )
            memory = replace(memory, database=room.database, occupancy=room.occupancy, cold=room.cold)
            policy, evicted = cold_policies.hot_policy(policy, self.budget), room.evicted
            decision = decision._replace(admitted=room.admitted)
        weighs = policy.eviction in ("smallest", "merge_nearest") or policy.admission == "quantize"
        table = memory.table if weighs else None
        database, occupancy, change = append(
            policy,
            self.spec.kernel,
            memory.database,
            memory.occupancy,
            table,
            rows,
            decision,
            step,
            seed=self.spec.seed,
        )
        if evicted:
            change = change.at[COUNTERS.index("evicted")].add(evicted)
        return replace(memory, database=database, occupancy=occupancy), change

    def prune(self, memory: Memory, epsilon: float, step: int) -> tuple[Memory, Maintenance]:
        """Removes the entries that stay negligible, in memory and on disk (App. D.1).

        Args:
          memory: the memory.
          epsilon: ε.
          step: the present step.
        """
        spec = self.spec
        bounds = None
        if memory.clocks is not None:
            most = highest(spec.momentum)
            ahead = memory.clocks.bounded(most, most if spec.momentum_on == "both" else 0.0)
            bounds = device_table(ahead, memory.database.blocks[0].keys.dtype)
        pruned = prune(spec.kernel, memory.database, memory.occupancy, memory.table, bounds, epsilon, step)
        memory = replace(memory, database=pruned.database, occupancy=pruned.occupancy)
        done = Maintenance(pruned.entries, pruned.bound)
        if memory.cold is not None:
            cold, more, bound = cold_policies.prune_cold(memory.cold, bounds, epsilon, self.write)
            counters = memory.database.counters.at[COUNTERS.index("pruned")].add(more)
            memory = replace(memory, cold=cold, database=replace(memory.database, counters=counters))
            # No bound is known on the change of a ratio by entries on disk.
            known = pruned.bound is not None and not (spec.kernel.normalised and more)
            done = Maintenance(pruned.entries + more, (pruned.bound or 0.0) + bound if known else None)
        return memory, done

    def maintain(self, memory: Memory, step: int) -> tuple[Memory, Maintenance]:
        """Folds and prunes where it is due at this step."""
        policy, done = self.spec.memory, Maintenance()
        if _due(policy.fold_every, step):
            database, folded = fold_equal(memory.database, memory.table, step)
            occupancy = Occupancy.of(database, holes=memory.occupancy.holes or bool(folded))
            memory, done = replace(memory, database=database, occupancy=occupancy), Maintenance(len(folded))
        if policy.prune_epsilon > 0 and _due(policy.prune_every, step):
            memory, pruned = self.prune(memory, policy.prune_epsilon, step)
            done = Maintenance(done.removed + pruned.removed, pruned.bound)
        return memory, done

    def forget(self, memory: Memory, origins: np.ndarray, step: int) -> tuple[Memory, int]:
        """Removes the entries of given examples, in memory and on disk (see `pruning.forget`).

        Args:
          memory: the memory.
          origins: [M] stream offsets.
          step: the present step.

        Returns:
          The memory, and how many entries went.
        """
        database, occupancy, count = forget(
            memory.database, memory.occupancy, jnp.asarray(origins, jnp.int32), step
        )
        memory = replace(memory, database=database, occupancy=occupancy)
        if memory.cold is None:
            return memory, count
        gone = [
            live & np.isin(chunk.read(memory.cold.layout, ["origin"])["origin"], origins)
            for chunk, live in zip(memory.cold.chunks, memory.cold.live, strict=True)
        ]
        more = sum(int(rows.sum()) for rows in gone)
        counters = database.counters.at[COUNTERS.index("pruned")].add(more)
        memory = replace(memory, database=replace(database, counters=counters))
        return self.drop_cold(memory, gone), count + more

    def drop_cold(self, memory: Memory, gone: Sequence[np.ndarray]) -> Memory:
        """Lets chosen entries on disk go.

        Args:
          memory: the memory, with a cold part.
          gone: per chunk, [R] bool.
        """
        assert memory.cold is not None
        live = [rows & ~out for rows, out in zip(memory.cold.live, gone, strict=True)]
        return replace(memory, cold=cold_policies.condensed(memory.cold.with_live(live), self.write))

    def _trained(self, memory: Memory, gradients: tuple[Columns, ...], step: int) -> Memory:
        assert self.spec.training is not None
        assert memory.training is not None
        database, states = train(self.spec.training, memory.database, memory.training, gradients, step)
        return replace(memory, database=database, training=states)

    def _joined(self, memory: Memory, step: int) -> Memory:
        """The optimisers' states after rows were appended: zeros for them, and for blocks that were added."""
        assert self.spec.training is not None
        assert memory.training is not None
        states = self.spec.training.grown(memory.training, memory.database)
        if memory.occupancy.holes or self.spec.memory.eviction != "none":  # slots are written again
            states = forgotten(states, memory.database.blocks, jnp.int32(step))
        return replace(memory, training=states)


def maintenance_due(policy: MemoryConfig, step: int) -> bool:
    """Whether a memory is to be pruned or folded at this step."""
    return _due(policy.fold_every, step) or (policy.prune_epsilon > 0 and _due(policy.prune_every, step))


def _due(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0
