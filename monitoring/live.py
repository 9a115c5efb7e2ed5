"""The latest of everything that a run measured, as samples for the sinks."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import metrics
from .metrics import Metric
from .rows import LAYER_COUNTS, STEP_PARTS, EvaluationRow, LayerRow, Row, StepRow, plain
from .sink import Distribution, Sample

Value = float | Distribution | None
Values = Iterator[tuple[Metric, tuple[str, ...], Value]]


@dataclass(frozen=True)
class Facts:
    """What does not change while a run is open; shown beside its figures."""

    stream_examples: int | None = None  # of the whole stream; None: without an end, or not known
    limits: Mapping[str, int] = field(default_factory=dict)  # by layer: most entries, where capped
    policies: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by layer: admission, eviction
    devices: tuple[str, ...] = ("0",)  # over which each layer's rows are spread evenly


class Live:
    """The latest of everything, and the sums since this process opened the run.

    Args:
      run: the run's name, the label `run` of every sample.
      opened: Unix time in seconds.
      facts: what does not change.
      evaluations: rows of kind "evaluation" recorded before this process opened the run.
    """

    def __init__(self, run: str, opened: float, facts: Facts, evaluations: Iterable[Row] = ()) -> None:
        self.run = run
        self.opened = opened
        self.last_commit: float | None = None
        self.disk_bytes: Mapping[str, int] = {}
        self.last_error: tuple[str, float] | None = None
        self.lag: int | None = None
        self._facts = facts
        self._held_out = _HeldOut(evaluations)
        self._step: StepRow | None = None
        self._growth: dict[str, float] = {}
        self._last_step_time = opened
        self._seconds = dict.fromkeys((*STEP_PARTS, "wall"), 0.0)
        self._durations = _Counts(metrics.STEP_DURATION)
        self._distances: dict[str, _Counts] = {}
        self._weights: dict[str, _Counts] = {}

    def take_step(self, row: StepRow, now: float, lag: int | None) -> None:
        """An interval of steps, and how many examples wait in the stream's log after it."""
        before = self._step
        steps = row.step - (before.step if before else 0)
        if before is not None and steps > 0:  # the first row's interval may begin before a resume
            self._durations.add_one(row.wall_seconds / steps)
        if before is not None and row.wall_seconds > 0:
            self._growth = {
                name: (layer.entries - before.layers[name].entries) / row.wall_seconds
                for name, layer in row.layers.items()
                if name in before.layers
            }
        for part in self._seconds:
            self._seconds[part] += getattr(row, f"{part}_seconds")
        self._step, self._last_step_time, self.lag = row, now, lag

    def take_evaluation(self, row: EvaluationRow) -> None:
        """An evaluation."""
        self._held_out.take(row.row())

    def take_distances(self, layer: str, distances: ArrayLike) -> None:
        """Distances of queries to their nearest keys."""
        self._distances.setdefault(layer, _Counts(metrics.NEAREST_DISTANCE)).add(distances)

    def take_weights(self, layer: str, weights: Iterable[ArrayLike]) -> None:
        """The effective weights of all entries that a layer holds now, some at a time."""
        counts = self._weights[layer] = _Counts(metrics.EFFECTIVE_WEIGHT)
        for some in weights:
            counts.add(some)

    def snapshot(self) -> "Live":
        """A copy that what comes later leaves as it is: only who reads has to wait for its series."""
        taken = copy(self)
        taken._held_out = self._held_out.copy()
        taken._seconds = dict(self._seconds)
        taken._durations = self._durations.copy()
        taken._distances = {layer: counts.copy() for layer, counts in self._distances.items()}
        taken._weights = {layer: counts.copy() for layer, counts in self._weights.items()}
        return taken

    def samples(self) -> Iterator[Sample]:
        """Yields every series that has a value now; null values have no series."""
        for metric, labels, value in self._values():
            if (shown := value if isinstance(value, Distribution) else plain(value)) is not None:
                yield Sample(metric, (self.run, *labels), shown)

    def _values(self) -> Values:
        yield metrics.COMMIT_AGE, (), self.last_commit or self.opened
        yield metrics.LAST_COMMIT_TIMESTAMP, (), self.last_commit
        yield metrics.STREAM_LENGTH, (), self._facts.stream_examples
        yield metrics.STREAM_LAG, (), self.lag
        if self.last_error is not None:
            yield metrics.LAST_ERROR_TIMESTAMP, (self.last_error[0],), self.last_error[1]
        yield from self._held_out.values()
        yield from self._layer_facts()
        if self._step is not None:
            yield from self._step_values(self._step)
            for layer, row in self._step.layers.items():
                yield from self._layer_values(layer, row)

    def _layer_facts(self) -> Values:
        for layer, limit in self._facts.limits.items():
            yield metrics.MEMORY_LIMIT, (layer,), limit
        for layer, (admission, eviction) in self._facts.policies.items():
            yield metrics.MEMORY_POLICY, (layer, f"admission {admission}"), 1
            yield metrics.MEMORY_POLICY, (layer, f"eviction {eviction}"), 1
        for layer, size in self.disk_bytes.items():
            yield metrics.MEMORY_BYTES, (layer, "disk"), size
        for layer, distances in self._distances.items():
            yield metrics.NEAREST_DISTANCE, (layer,), distances.distribution()
        for layer, weights in self._weights.items():
            yield metrics.EFFECTIVE_WEIGHT, (layer,), weights.distribution()

    def _step_values(self, row: StepRow) -> Values:
        yield metrics.PREQUENTIAL_ACCURACY, (row.phase,), row.prequential_accuracy
        yield metrics.WINDOW_ACCURACY, (row.phase,), row.window_accuracy
        yield metrics.PREQUENTIAL_LOSS, (row.phase,), row.loss
        yield metrics.EXAMPLES, (), row.examples
        yield metrics.STEPS, (), row.step
        yield metrics.SKIPPED_EXAMPLES, (), row.skipped_examples
        yield metrics.COMPILATIONS, (), row.compilations
        yield metrics.DRIFTS, (), row.drifts
        yield metrics.LAST_STEP_TIMESTAMP, (), self._last_step_time
        for part, metric in _SECONDS.items():
            yield metric, (), self._seconds[part]
        yield metrics.STEP_DURATION, (), self._durations.distribution()

    def _layer_values(self, layer: str, row: LayerRow) -> Values:
        yield metrics.MEMORY_ENTRIES, (layer,), row.entries
        yield metrics.MEMORY_CAPACITY, (layer,), row.capacity
        yield metrics.MEMORY_FILL, (layer,), row.entries / row.capacity if row.capacity else None
        yield metrics.MEMORY_BYTES, (layer, "device"), row.bytes
        yield metrics.MEMORY_BYTES, (layer, "cold"), row.cold_bytes
        for device in self._facts.devices:
            yield metrics.MEMORY_DEVICE_BYTES, (layer, device), row.bytes / len(self._facts.devices)
        yield metrics.MEMORY_GROWTH, (layer,), self._growth.get(layer)
        for name in LAYER_COUNTS:
            yield _COUNTS[name], (layer,), getattr(row, name)


class _HeldOut:
    """The latest evaluation of each task, and how its accuracy stood at the end of each phase."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._latest: dict[str, Row] = {}
        self._by_phase: dict[str, dict[str, float | None]] = {}
        for row in rows:
            self.take(row)

    def take(self, row: Row) -> None:
        self._latest[row["task"]] = row
        self._by_phase.setdefault(row["task"], {})[row["phase"]] = row["accuracy"]

    def copy(self) -> "_HeldOut":
        taken = copy(self)
        taken._latest = dict(self._latest)
        taken._by_phase = {task: dict(phases) for task, phases in self._by_phase.items()}
        return taken

    def values(self) -> Values:
        for task, row in self._latest.items():
            yield metrics.HELD_OUT_ACCURACY, (task,), row["accuracy"]
            yield metrics.HELD_OUT_LOSS, (task,), row["loss"]
            yield metrics.HELD_OUT_ATTRIBUTE_LOSS, (task,), row.get("attribute_loss")
            yield metrics.FORGETTING, (task,), self._forgetting(task)

    def _forgetting(self, task: str) -> float | None:
        now = self._latest[task]
        earlier = [a for phase, a in self._by_phase[task].items() if phase != now["phase"] and a is not None]
        return max(earlier) - now["accuracy"] if earlier and now["accuracy"] is not None else None


class _Counts:
    """Observations counted in a metric's buckets."""

    def __init__(self, metric: Metric) -> None:
        self._bounds = metric.buckets
        self._counts: NDArray[np.int64] = np.zeros(len(metric.buckets) + 1, np.int64)
        self._total = 0.0

    def add(self, values: ArrayLike) -> None:
        array = np.asarray(values, np.float64).ravel()
        places = np.searchsorted(self._bounds, array)  # a value at a bound belongs below it
        self._counts += np.bincount(places, minlength=len(self._counts))
        self._total += float(array.sum())

    def add_one(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def copy(self) -> "_Counts":
        taken = copy(self)
        taken._counts = self._counts.copy()
        return taken

    def distribution(self) -> Distribution:
        return Distribution(tuple(self._counts.tolist()), self._total)


_SECONDS = {
    "wait": metrics.WAIT_SECONDS,
    "compute": metrics.COMPUTE_SECONDS,
    "append": metrics.APPEND_SECONDS,
    "maintain": metrics.MAINTAIN_SECONDS,
    "evaluate": metrics.EVALUATE_SECONDS,
    "commit": metrics.COMMIT_SECONDS,
    "wall": metrics.WALL_SECONDS,
}
_COUNTS = {
    "admitted": metrics.MEMORY_ADMITTED,
    "merged": metrics.MEMORY_MERGED,
    "rejected": metrics.MEMORY_REJECTED,
    "pruned": metrics.MEMORY_PRUNED,
    "evicted": metrics.MEMORY_EVICTED,
}
