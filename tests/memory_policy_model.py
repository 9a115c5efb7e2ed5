"""The slow obvious model of a bounded database: a dictionary from slot to entry, one row at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from lamina.memory.coefficients import Clock
from lamina.memory.database import INITIAL
from lamina.memory.policy import MemoryConfig

MOMENTUM, DECAY = 0.5, 0.25
TEMPERATURE = 0.7
MARGIN = 2e-3  # between thresholds and computed scores, so that rounding decides nothing


class Entry(NamedTuple):
    key: tuple[float, ...]
    value: float
    weight: float
    created: int
    origin: int


def alike(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """ρ of two keys, the same for RBF kernels and for exponentials of inner products."""
    square = np.sum(np.subtract(first, second) ** 2)
    return float(np.exp(-square / (2 * TEMPERATURE * np.sqrt(len(first)))))


def distance(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    return float(np.hypot(*np.subtract(first, second)))


def together(host: Entry, moved: Entry) -> Entry:
    return host._replace(value=host.value + moved.value, weight=host.weight + moved.weight)


def mix(word: int) -> int:
    """The finaliser of MurmurHash3."""
    word = ((word ^ word >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    word = ((word ^ word >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    return word ^ word >> 16


def hashed(first: int, second: int, seed: int) -> int:
    mixed = seed
    for word in (first, second):
        mixed = mix((mixed * 0x9E3779B9 ^ (word & 0xFFFFFFFF)) & 0xFFFFFFFF)
    return mix(mixed) >> 1


@dataclass
class PolicyModel:
    """What a policy must have made of everything that was offered."""

    policy: MemoryConfig
    weighted: bool
    fading: bool
    seed: int = 0
    slots: dict[int, Entry] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("admitted", "merged", "rejected", "pruned", "evicted"), 0)
    )

    def append(self, rows: list[Entry], errors: list[float], clock: Clock) -> set[int]:
        """Offers the rows of one step; returns the slots written."""
        before = dict(self.slots)
        admitted: list[Entry] = []
        merges: list[tuple[Entry, Entry]] = []  # a row, and the entry or row that takes it up
        for row, error in zip(rows, errors, strict=True):
            company = admitted if self.policy.admission_scope == "batch" else []
            host = self._host(row, before, company)
            if host is not None:
                merges.append((row, host))
            elif self._admits(row, error, [e.key for e in [*before.values(), *company]], len(before)):
                admitted.append(row)
            else:
                self.counts["rejected"] += 1
        written = self._place(admitted, clock)
        for row, host in merges:
            written |= self._merge(row, host)
        return written

    def prune(self, epsilon: float, clock: Clock) -> float:
        """Removes what is negligible for good; returns Σ of the removed entries' largest value norms."""
        bounds = clock.bounded(MOMENTUM).coefficients if self.fading else np.ones(clock.step)
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

    def _admits(self, row: Entry, error: float, keys: list[tuple[float, ...]], entries: int) -> bool:
        policy = self.policy
        nearest = min((distance(row.key, key) for key in keys), default=np.inf)
        if policy.admission == "novelty":
            assert policy.novelty_threshold is not None
            fullness = entries / (policy.capacity or 1)
            threshold = policy.novelty_threshold * (1 + policy.threshold_rise * fullness)
            scaled = nearest * error if policy.error_weighted and nearest < np.inf else nearest
            return scaled > threshold and (not policy.error_threshold or error > policy.error_threshold)
        if policy.admission == "coherence":
            assert policy.coherence_threshold is not None
            closest = max((alike(row.key, key) for key in keys), default=0)
            return self._below(closest, policy.coherence_threshold)
        if policy.admission == "ald":
            assert policy.ald_threshold is not None
            return not self._below(self._residual(row.key, keys), policy.ald_threshold)
        if policy.admission == "surprise":
            variance = policy.surprise_noise + self._residual(row.key, keys)
            surprise = np.log(variance) / 2 + error**2 / (2 * variance)
            new = not self._below(surprise, policy.surprise_least)
            return new and self._below(surprise, policy.surprise_most)
        return True

    def _below(self, score: float, threshold: float | None) -> bool:
        assert threshold is not None
        assert abs(score - threshold) > MARGIN, "choose another threshold"
        return score < threshold

    def _residual(self, key: tuple[float, ...], keys: list[tuple[float, ...]]) -> float:
        dictionary = sorted(set(keys))
        if not dictionary:
            return 1.0
        gram = np.array([[alike(a, b) for b in dictionary] for a in dictionary])
        own = np.array([alike(a, key) for a in dictionary])
        return max(float(1 - own @ np.linalg.solve(gram, own)), 0.0)

    def _host(self, row: Entry, before: dict[int, Entry], company: list[Entry]) -> Entry | None:
        """What takes up the row: the nearest entry, or row admitted earlier, within the radius."""
        if self.policy.admission != "quantize":
            return None
        assert self.policy.quantize_radius is not None
        choices = [*(before[slot] for slot in sorted(before)), *company]
        host = min(choices, key=lambda entry: distance(row.key, entry.key), default=None)
        near = host is not None and distance(row.key, host.key) <= self.policy.quantize_radius
        return host if near else None

    def _merge(self, row: Entry, host: Entry) -> set[int]:
        """Adds the row to the entry that was `host`, which others may have been added to since."""
        for slot, entry in self.slots.items():
            if (entry.created, entry.origin) == (host.created, host.origin):
                self.slots[slot] = together(entry, row)
                self.counts["merged"] += 1
                return {slot}
        self.counts["rejected"] += 1  # what should have taken it up found no room itself
        return set()

    def _place(self, rows: list[Entry], clock: Clock) -> set[int]:
        if self.policy.eviction == "merge_nearest":
            return self._fold(rows)
        order = (
            sorted(rows, key=self._priority, reverse=True) if self.policy.eviction == "reservoir" else rows
        )
        taken: list[int] = []
        staying: list[Entry] = []
        for row in order:
            slot = self._slot(row, taken, clock)
            if slot is None:
                self.counts["rejected"] += 1
                continue
            staying.append(row)
            taken.append(slot)
        for row, slot in zip([row for row in rows if row in staying], taken, strict=True):
            self.counts["admitted"] += 1
            self.counts["evicted"] += slot in self.slots
            self.slots[slot] = row
        return set(taken)

    def _slot(self, row: Entry, taken: list[int], clock: Clock) -> int | None:
        """The lowest empty slot; at the cap, that of the entry that gives way."""
        cap, used = self.policy.capacity, {*self.slots, *taken}
        if cap is None or len(used) < cap:
            return next(slot for slot in range(len(used) + 1) if slot not in used)
        old = {s: e for s, e in self.slots.items() if e.created != INITIAL and s not in taken}
        if self.policy.eviction == "none" or not old:
            return None
        ones = np.ones(clock.step)
        present = clock.coefficients if self.fading else ones
        worth: dict[str, Callable[[int], float]] = {
            "oldest": lambda slot: old[slot].created,
            "smallest": lambda slot: self._worth(old[slot], present[old[slot].created - 1]),
            "random": lambda slot: hashed(slot, row.created, self.seed),
            "reservoir": lambda slot: self._priority(old[slot]),
        }
        of = worth[self.policy.eviction]
        lowest = min(old, key=lambda slot: (of(slot), slot))
        if self.policy.eviction == "reservoir" and self._priority(row) <= of(lowest):
            return None
        return lowest

    def _priority(self, entry: Entry) -> int:
        bits = np.asarray(entry.key, np.float32).view(np.int32).astype(np.int64)
        fingerprint = int(np.sum(bits * np.arange(1, 2 * len(bits), 2))) & 0xFFFFFFFF
        return hashed(entry.created, hashed(entry.origin, fingerprint, self.seed), self.seed)

    def _fold(self, rows: list[Entry]) -> set[int]:
        """Greedily folds the cheapest pair until the rows fit, then writes them into the free slots."""
        room = (self.policy.capacity or 10**9) - len(self.slots)
        into: dict[int | Entry, int] = {}
        for _ in range(len(rows) - max(room, 0)):
            pairs = [
                (cost, number, rank, slot, source)
                for number, (source, entry) in enumerate([*self._sources(), *((row, row) for row in rows)])
                if source not in into and source not in into.values()
                for rank, (cost, slot) in enumerate(self._targets(source, entry))
                if slot not in into
            ]
            if not pairs:
                break
            *_, slot, source = min(pairs, key=lambda pair: pair[:3])
            into[source] = slot
        for source, slot in into.items():
            moved = self.slots[source] if isinstance(source, int) else source
            self.slots[slot] = together(self.slots[slot], moved)
        for source in into:
            if isinstance(source, int):
                del self.slots[source]
                self.counts["evicted"] += 1
            else:
                self.counts["merged"] += 1
        written = set(into.values())
        for row in rows:
            if row in into:
                continue
            if self.policy.capacity is not None and len(self.slots) >= self.policy.capacity:
                self.counts["rejected"] += 1
                continue
            slot = next(slot for slot in range(len(self.slots) + 1) if slot not in self.slots)
            self.slots[slot] = row
            self.counts["admitted"] += 1
            written.add(slot)
        return written & set(self.slots)

    def _sources(self) -> list[tuple[int, Entry]]:
        old = [(slot, entry) for slot, entry in self.slots.items() if entry.created != INITIAL]
        return sorted(old, key=lambda pair: (self._worth(pair[1], 1.0), pair[0]))

    def _targets(self, source: "int | Entry", entry: Entry) -> list[tuple[float, int]]:
        """The 4 slots of nearest features, and what moving the entry there changes."""
        size = np.hypot(entry.value, entry.weight) if self.weighted else abs(entry.value)
        others = sorted(self.slots, key=lambda slot: (-alike(entry.key, self.slots[slot].key), slot))[:4]
        return [
            (float(size * np.sqrt(2 - 2 * alike(entry.key, self.slots[slot].key))), slot)
            for slot in others
            if slot != source
        ]

    def _worth(self, entry: Entry, coefficient: float) -> np.float32:
        value, weight = (np.float32(coefficient) * np.float32(abs(x)) for x in (entry.value, entry.weight))
        return max(value, weight) if self.weighted else value
