"""The slow obvious model of a bounded database: a dictionary from slot to entry, one row at a time."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from lamina.memory.coefficients import Clock
from lamina.memory.database import INITIAL
from lamina.memory.policies import MemoryConfig

MOMENTUM, DECAY = 0.5, 0.25


class Entry(NamedTuple):
    key: tuple[float, ...]
    value: float
    weight: float
    created: int
    origin: int


@dataclass
class PolicyModel:
    """What a policy must have made of everything that was offered."""

    policy: MemoryConfig
    weighted: bool
    fading: bool
    slots: dict[int, Entry] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("admitted", "merged", "rejected", "pruned", "evicted"), 0)
    )

    def append(self, rows: list[Entry], clock: Clock) -> set[int]:
        """Offers the rows of one step; returns the slots written."""
        keys = [entry.key for entry in self.slots.values()]
        taken: set[int] = set()
        for row in rows:
            slot = self._slot(taken, clock) if self._novel(row.key, keys) else None
            if slot is None:
                self.counts["rejected"] += 1
                continue
            self.counts["admitted"] += 1
            self.counts["evicted"] += slot in self.slots
            self.slots[slot] = row
            taken.add(slot)
        return taken

    def prune(self, epsilon: float, clock: Clock) -> float:
        """Removes what is negligible for good; returns Σ of the removed entries' largest value norms."""
        bounds = clock.future_bounds(MOMENTUM) if self.fading else np.ones(clock.step)
        gone = {
            slot
            for slot, entry in self.slots.items()
            if entry.created != INITIAL
            and self._worth(entry, bounds[entry.created - 1]) < np.float32(epsilon)
        }
        removed = sum(float(bounds[e.created - 1]) * abs(e.value) for s, e in self.slots.items() if s in gone)
        self.slots = {slot: entry for slot, entry in self.slots.items() if slot not in gone}
        self.counts["pruned"] += len(gone)
        return removed

    def _novel(self, key: tuple[float, ...], keys: list[tuple[float, ...]]) -> bool:
        """Judged against the keys before the batch, which `keys` are."""
        threshold = self.policy.novelty_threshold
        if threshold is None:
            return True
        return all(float(np.hypot(*np.subtract(key, other))) > threshold for other in keys)

    def _slot(self, taken: set[int], clock: Clock) -> int | None:
        """The lowest empty slot; at the cap, that of the entry that gives way."""
        cap = self.policy.capacity
        if cap is None or len(self.slots) < cap:
            return next(slot for slot in range(len(self.slots) + 1) if slot not in self.slots)
        old = {s: e for s, e in self.slots.items() if e.created != INITIAL and s not in taken}
        if self.policy.eviction == "none" or not old:
            return None
        if self.policy.eviction == "oldest":
            return min(old, key=lambda slot: (old[slot].created, slot))
        ones = np.ones(clock.step)
        present = clock.coefficients if self.fading else ones
        return min(old, key=lambda slot: (self._worth(old[slot], present[old[slot].created - 1]), slot))

    def _worth(self, entry: Entry, coefficient: float) -> np.float32:
        value, weight = (np.float32(coefficient) * np.float32(abs(x)) for x in (entry.value, entry.weight))
        return max(value, weight) if self.weighted else value
