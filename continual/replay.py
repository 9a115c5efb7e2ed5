"""Replay: which examples of the past are learnt from again. Only their origins are kept.

Every draw comes from (seed, step), so that a resumed run draws the same.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError
from ..learners import State
from ..memory.database import INITIAL
from ..stream.randomness import generator
from ..stream.schema import Array
from .effective import columns_of
from .phase_config import ReplayConfig

_LAYER = "readout"  # whose entries "memory" asks, if the network has a growing one; else those of all layers


class Buffer(Protocol):
    """A bounded sample of the examples so far."""

    origins: list[int]

    def add(self, draw: np.random.Generator, origin: int, label: int) -> None:
        """Takes one more example into account."""

    def state(self) -> dict[str, Any]:
        """Everything that advances, as plain JSON values; the constructor takes them back."""


class Reservoir:
    """A uniform sample of fixed size (Vitter's algorithm R)."""

    def __init__(self, size: int, seen: int = 0, origins: list[int] | None = None) -> None:
        self.size, self.seen, self.origins = size, seen, list(origins or ())

    def add(self, draw: np.random.Generator, origin: int, label: int) -> None:
        """See `Buffer.add`."""
        self.seen += 1
        if len(self.origins) < self.size:
            self.origins.append(origin)
        elif (place := int(draw.integers(self.seen))) < self.size:
            self.origins[place] = origin

    def state(self) -> dict[str, Any]:
        """See `Buffer.state`."""
        return {"seen": self.seen, "origins": list(self.origins)}


class Balanced:
    """A sample of fixed size that is as balanced over classes as the stream allows (Chrysakis & Moens, 2020).

    Until it is full, it takes everything. A class is *full* once it has been the largest. An example of a
    class that is not full replaces one of the largest class; one of a full class enters its class's sample
    with the probability that keeps that sample uniform.
    """

    def __init__(
        self,
        size: int,
        origins: list[int] | None = None,
        labels: list[int] | None = None,
        seen: Mapping[str, int] | None = None,
        full: list[int] | None = None,
    ) -> None:
        self.size, self.origins, self.labels = size, list(origins or ()), list(labels or ())
        self._seen = {int(label): count for label, count in (seen or {}).items()}
        self._full = set(full or ())

    def add(self, draw: np.random.Generator, origin: int, label: int) -> None:
        """See `Buffer.add`."""
        self._seen[label] = self._seen.get(label, 0) + 1
        if len(self.origins) < self.size:
            self.origins.append(origin)
            self.labels.append(label)
            return
        labels = np.array(self.labels)
        classes, counts = np.unique(labels, return_counts=True)
        largest = {int(each) for each in classes[counts == counts.max()]}
        self._full |= largest
        if label not in self._full:
            place = int(draw.choice(np.flatnonzero(np.isin(labels, list(largest)))))
        elif draw.random() * self._seen[label] < np.sum(labels == label):
            place = int(draw.choice(np.flatnonzero(labels == label)))
        else:
            return
        self.origins[place], self.labels[place] = origin, label

    def state(self) -> dict[str, Any]:
        """See `Buffer.state`."""
        seen = {str(label): count for label, count in self._seen.items()}
        return {"origins": self.origins, "labels": self.labels, "seen": seen, "full": sorted(self._full)}


class Replay:
    """The buffers of all phases, which watch every phase, and the draws of the present one.

    Args:
      seed: the run's seed.
      configs: every phase's replay, None for none.
      saved: what `state` gave.
    """

    def __init__(
        self, seed: int, configs: list[ReplayConfig | None], saved: Mapping[str, Any] | None = None
    ) -> None:
        self._seed = seed
        before = dict(saved or {})
        self._position = int(before.pop("position", 0))
        self._buffers: dict[str, Buffer] = {}
        for config in configs:
            if config is not None and config.kind in _BUFFERS:
                name = _name(config)
                self._buffers[name] = _BUFFERS[config.kind](config.size, **before.get(name, {}))

    def begin_phase(self) -> None:
        """An earlier phase is streamed again from its start."""
        self._position = 0

    def saw(self, step: int, origins: Array, labels: Array) -> None:
        """Shows the buffers a batch that was just learnt from.

        Args:
          step: the step that learnt from it.
          origins: [B].
          labels: [B] class indices, or any other targets.
        """
        labelled = labels.dtype.kind in "iu" and labels.ndim == 1
        classes = labels if labelled else np.zeros(len(labels), np.int64)
        for name, buffer in self._buffers.items():
            draw = generator(self._seed, f"replay buffer {name}", step)
            for origin, label in zip(origins.tolist(), classes.tolist(), strict=True):
                buffer.add(draw, origin, label)

    def draw(self, config: ReplayConfig, step: int, state: State, phase: tuple[int, int] | None) -> Array:
        """Origins of the examples to replay beside the next batch; none while fewer are known.

        Args:
          config: the phase's replay.
          step: the step that will learn from them.
          state: what is learnt so far.
          phase: the first origin and the number of examples of the phase that is streamed again.

        Raises:
          ConfigError: "memory" is asked of a learner without growing layers.
        """
        if phase is not None:
            first, length = phase
            count = max(1, int(config.share * length))
            places = (self._position + np.arange(config.examples)) % count
            self._position = (self._position + config.examples) % count
            return np.asarray(first + places, np.int64)
        known = _of_memory(state) if config.kind == "memory" else self._buffers[_name(config)].origins
        if len(known) < config.examples:
            return np.empty(0, np.int64)
        draw = generator(self._seed, "replay", step)
        return draw.choice(np.asarray(known, np.int64), config.examples, replace=False)

    def state(self) -> dict[str, Any]:
        """Everything that advances, as plain JSON values."""
        return {"position": self._position, **{name: b.state() for name, b in self._buffers.items()}}


_BUFFERS: dict[str, Any] = {"reservoir": Reservoir, "balanced": Balanced}


def _name(config: ReplayConfig) -> str:
    return f"{config.kind} {config.size}"


def _of_memory(state: State) -> Array:
    """The origins of the live entries, each once."""
    if not state.memories:
        raise ConfigError(
            "replay.kind 'memory' asks a growing layer's entries; found a learner without any: choose another"
        )
    asked = [state.memories[_LAYER]] if _LAYER in state.memories else list(state.memories.values())
    found = [
        columns["origin"][columns["created"] > INITIAL]
        for memory in asked
        for columns in columns_of(memory, ("created", "origin"))
    ]
    origins = np.concatenate(found)
    return np.unique(origins[origins >= 0])
