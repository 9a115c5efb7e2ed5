"""Every metric of Lamina, declared once: name, kind, unit, labels and help.

The recorder is the only module that gives these metrics values; sinks only show them. Names follow
Prometheus: the prefix `lamina_`, base units, `_total` for what only grows. All labels are bounded by
the configuration of a run (never a step, an offset or a path), so the number of series is too.
"""

from dataclasses import dataclass
from typing import Literal

LABELS = ("run", "layer", "phase", "task", "policy", "device", "tier", "kind")
"""The only labels a metric may carry, in the order in which they are declared."""

TIERS = ("device", "cold", "disk")
"""Where the rows of a memory lie, the label `tier`."""


@dataclass(frozen=True)
class Metric:
    """One declared metric."""

    name: str  # starts with `lamina_`
    kind: Literal["gauge", "counter", "histogram", "snapshot"]  # snapshot: a histogram of what is now
    unit: str  # what the number counts: "entries", "bytes", "seconds", "ratio", …
    labels: tuple[str, ...]  # a subset of `LABELS`
    help: str  # one sentence, shown by Prometheus
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets, in `unit`
    age: bool = False  # published as a time stamp, shown as the seconds since then when scraped


_RUN = ("run",)
_LAYER = ("run", "layer")
_PHASE = ("run", "phase")
_TASK = ("run", "task")
_SIZES = tuple(float(f"{digit}e{power}") for power in range(-6, 3) for digit in (1, 3))
_DISTANCES = tuple(2.0 ** (power / 2) for power in range(-4, 15))


def _gauge(name: str, unit: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, "gauge", unit, labels, text)


def _counter(name: str, unit: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, "counter", unit, labels, text)


def _seconds(part: str, text: str) -> Metric:
    name = f"lamina_{part}_seconds_total"
    return _counter(name, "seconds", _RUN, f"{text}, since this process opened the run.")


MEMORY_ENTRIES = _gauge("lamina_memory_entries", "entries", _LAYER, "Entries a growing layer holds now.")
MEMORY_CAPACITY = _gauge(
    "lamina_memory_capacity_entries", "entries", _LAYER, "Rows allocated for a layer's entries."
)
MEMORY_LIMIT = _gauge(
    "lamina_memory_limit_entries",
    "entries",
    _LAYER,
    "Most entries a layer may hold; none without a cap.",
)
MEMORY_FILL = _gauge(
    "lamina_memory_fill_ratio", "ratio", _LAYER, "Entries divided by the rows allocated for them."
)
MEMORY_BYTES = _gauge(
    "lamina_memory_bytes",
    "bytes",
    (*_LAYER, "tier"),
    "Bytes of a layer's rows: allocated on the devices, kept on disk only (cold), and in the files of the "
    "last commit (disk).",
)
MEMORY_DEVICE_BYTES = _gauge(
    "lamina_memory_device_bytes", "bytes", (*_LAYER, "device"), "Bytes of a layer's rows on each device."
)
MEMORY_GROWTH = _gauge(
    "lamina_memory_growth_entries_per_second",
    "entries per second",
    _LAYER,
    "Entries gained per second of the last recorded interval; negative where a layer shrank.",
)
MEMORY_POLICY = _gauge(
    "lamina_memory_policy_info",
    "info",
    (*_LAYER, "policy"),
    "Always 1; the policy that admits a layer's entries, and the one that evicts them.",
)
NEAREST_DISTANCE = Metric(
    "lamina_memory_nearest_key_distance",
    "histogram",
    "distance",
    _LAYER,
    "Distance of each query to its nearest key before the step, where admission measures it, since this "
    "process opened the run.",
    buckets=_DISTANCES,
)
EFFECTIVE_WEIGHT = Metric(
    "lamina_memory_effective_weight",
    "snapshot",
    "weight",
    _LAYER,
    "Entries by the size that pruning compares with epsilon: coefficient times value norm, or times weight "
    "where that is larger.",
    buckets=_SIZES,
)
MEMORY_ADMITTED = _counter(
    "lamina_memory_admitted_total", "entries", _LAYER, "Entries appended since step 0."
)
MEMORY_MERGED = _counter(
    "lamina_memory_merged_total", "entries", _LAYER, "Candidates merged into an entry since step 0."
)
MEMORY_REJECTED = _counter(
    "lamina_memory_rejected_total", "entries", _LAYER, "Candidates not admitted since step 0."
)
MEMORY_PRUNED = _counter(
    "lamina_memory_pruned_total", "entries", _LAYER, "Entries dropped as negligible since step 0."
)
MEMORY_EVICTED = _counter(
    "lamina_memory_evicted_total", "entries", _LAYER, "Entries dropped at the cap since step 0."
)

PREQUENTIAL_ACCURACY = _gauge(
    "lamina_prequential_accuracy",
    "ratio",
    _PHASE,
    "Share of the phase's examples predicted right before they were learnt from.",
)
WINDOW_ACCURACY = _gauge(
    "lamina_window_accuracy",
    "ratio",
    _PHASE,
    "Prequential accuracy over the examples of the last recorded interval.",
)
PREQUENTIAL_LOSS = _gauge(
    "lamina_prequential_loss",
    "loss",
    _PHASE,
    "Mean loss before learning over the examples of the last recorded interval.",
)
HELD_OUT_ACCURACY = _gauge(
    "lamina_held_out_accuracy", "ratio", _TASK, "Accuracy of the latest evaluation on held-out data."
)
HELD_OUT_LOSS = _gauge(
    "lamina_held_out_loss", "loss", _TASK, "Mean loss of the latest evaluation on held-out data."
)
HELD_OUT_ATTRIBUTE_LOSS = _gauge(
    "lamina_held_out_attribute_loss",
    "loss",
    _TASK,
    "Loss of a value, summed over its words, in the latest evaluation on held-out texts.",
)
FORGETTING = _gauge(
    "lamina_forgetting_max_ratio",
    "ratio",
    _TASK,
    "Best accuracy on a task after an earlier phase, less its accuracy now; no series within one phase.",
)

EXAMPLES = _counter("lamina_examples_total", "examples", _RUN, "Examples learnt from since step 0.")
STEPS = _counter("lamina_steps_total", "steps", _RUN, "Updates of the learner since step 0.")
SKIPPED_EXAMPLES = _counter(
    "lamina_skipped_examples_total", "examples", _RUN, "Bad examples left out since step 0."
)
STREAM_LENGTH = _gauge(
    "lamina_stream_examples", "examples", _RUN, "Examples of the whole stream; no series where it has no end."
)
STREAM_LAG = _gauge(
    "lamina_stream_lag_examples", "examples", _RUN, "Examples written to the stream's log and not yet read."
)
DRIFTS = _counter(
    "lamina_drifts_total", "drifts", _RUN, "Times that the drift detector gave a signal since step 0."
)
COMPILATIONS = _counter(
    "lamina_compilations_total", "compilations", _RUN, "Shapes the training step was compiled for."
)

WAIT_SECONDS = _seconds("wait", "Time spent waiting for data")
COMPUTE_SECONDS = _seconds("compute", "Time spent predicting and computing gradients")
APPEND_SECONDS = _seconds("append", "Time spent appending entries")
MAINTAIN_SECONDS = _seconds("maintain", "Time spent pruning, merging and evicting")
EVALUATE_SECONDS = _seconds("evaluate", "Time spent evaluating on held-out data")
COMMIT_SECONDS = _seconds("commit", "Time spent committing to disk")
WALL_SECONDS = _seconds("wall", "Time of the loop in all")
STEP_DURATION = Metric(
    "lamina_step_duration_seconds",
    "histogram",
    "seconds",
    _RUN,
    "Mean wall time of a step in each recorded interval, since this process opened the run.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)

LAST_STEP_TIMESTAMP = _gauge(
    "lamina_last_step_timestamp_seconds", "seconds", _RUN, "Unix time of the last recorded step."
)
LAST_COMMIT_TIMESTAMP = _gauge(
    "lamina_last_commit_timestamp_seconds", "seconds", _RUN, "Unix time of the last commit."
)
COMMIT_AGE = Metric(
    "lamina_commit_age_seconds",
    "gauge",
    "seconds",
    _RUN,
    "Time since the last commit, or since the run was opened if there was none yet.",
    age=True,
)
LAST_ERROR_TIMESTAMP = _gauge(
    "lamina_last_error_timestamp_seconds",
    "seconds",
    (*_RUN, "kind"),
    "Unix time of the last failure, and which kind it was; no series without one.",
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All declared metrics, in the order of declaration."""
