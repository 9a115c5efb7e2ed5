"""How a database is bounded: the names of all policies and their configuration."""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as config

Admission = Literal["all", "novelty", "coherence", "quantize", "ald", "surprise"]
Scope = Literal["before", "batch"]
Eviction = Literal["none", "oldest", "smallest", "random", "reservoir", "merge_nearest"]

ADMISSIONS: dict[str, str] = {
    "all": "every query becomes an entry",
    "novelty": "a query becomes an entry if its nearest key is farther than novelty_threshold (τ)",
    "coherence": "... if its largest normalised kernel value is at most coherence_threshold (μ0)",
    "quantize": "... unless a key lies within quantize_radius (ε): that entry takes up the value instead",
    "ald": "... if combining its neighbours leaves more than ald_threshold (ν) of it unexplained",
    "surprise": "... if its surprise, under the view of a Gaussian process, lies between two bounds",
}
EVICTIONS: dict[str, str] = {
    "none": "at the cap nothing more is admitted",
    "oldest": "at the cap the entries of the earliest steps give way (sliding window)",
    "smallest": "at the cap the entries of least effective value (and weight) give way",
    "random": "at the cap entries drawn at random give way",
    "reservoir": "at the cap entries are kept such that they are a uniform sample of all admitted so far",
    "merge_nearest": "at the cap the pair is folded into one entry that changes the function least",
}

# Options that mean something under one choice only, and whether that choice needs them.
_OPTIONS: dict[str, tuple[str, str, bool]] = {
    "novelty_threshold": ("admission", "novelty", True),
    "error_threshold": ("admission", "novelty", False),
    "error_weighted": ("admission", "novelty", False),
    "threshold_rise": ("admission", "novelty", False),
    "coherence_threshold": ("admission", "coherence", True),
    "quantize_radius": ("admission", "quantize", True),
    "ald_threshold": ("admission", "ald", True),
    "surprise_least": ("admission", "surprise", True),
    "surprise_most": ("admission", "surprise", True),
    "surprise_noise": ("admission", "surprise", False),
    "merge_candidates": ("eviction", "merge_nearest", False),
}


@config(frozen=True, config=ConfigDict(extra="forbid"))
class MemoryConfig:
    """How a growing layer's database is bounded."""

    # Most entries at any moment, initial ones included; None: no cap.
    capacity: Annotated[int, Field(gt=0)] | None = None
    # Most bytes of a layer's entries in memory; older ones are kept on disk and read from there. None: all in
    # memory.
    budget_bytes: Annotated[int, Field(gt=0)] | None = None
    # Slots allocated at the start; further blocks follow as entries arrive.
    initial_capacity: Annotated[int, Field(gt=0)] = 1024
    # Which queries become entries.
    admission: Admission = "all"
    # Against what a query is judged: the keys before the batch, or also those admitted earlier in the batch.
    admission_scope: Scope = "before"
    # τ: Euclidean distance to the nearest key above which a query is novel (admission: novelty).
    novelty_threshold: Annotated[float, Field(ge=0)] | None = None
    # τ_e: norm of the error signal ‖g‖ above which a novel query is admitted (novelty; Platt's RAN).
    error_threshold: Annotated[float, Field(ge=0)] = 0.0
    # Whether the distance is multiplied by ‖g‖ before it is compared with τ (novelty).
    error_weighted: bool = False
    # How much τ rises with fullness: τ·(1 + rise·entries/capacity) (novelty; needs a capacity).
    threshold_rise: Annotated[float, Field(ge=0)] = 0.0
    # μ0: largest |φ(k, q)| / √(φ(k, k)·φ(q, q)) at which a query is admitted (coherence).
    coherence_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    # ε: Euclidean distance to the nearest key within which a query is merged into it (quantize).
    quantize_radius: Annotated[float, Field(ge=0)] | None = None
    # ν: part of a query's normalised feature, squared, beyond its neighbours' span, above which it is
    # admitted (ald: approximate linear dependence).
    ald_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    # Surprise above which a query is not redundant, and up to which it is not an outlier (surprise).
    surprise_least: float | None = None
    surprise_most: float | None = None
    # Variance of noise that the surprise takes for granted (surprise).
    surprise_noise: Annotated[float, Field(gt=0)] = 0.01
    # Neighbours that ald and surprise look at; exact for databases of at most so many entries.
    neighbours: Annotated[int, Field(gt=0)] = 32
    # Which entries give way at the cap.
    eviction: Eviction = "none"
    # Entries of least worth tried as the first of a pair; exact if there are no more (merge_nearest).
    merge_candidates: Annotated[int, Field(gt=0)] = 64
    # ε: entries whose effective value norm and weight stay below it from now on are removed; 0: never.
    prune_epsilon: Annotated[float, Field(ge=0)] = 0.0
    # Steps between two prunings.
    prune_every: Annotated[int, Field(gt=0)] = 100
    # Steps between two foldings of entries with equal keys into one; None: never.
    fold_every: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "MemoryConfig":
        for option, (field, choice, needed) in _OPTIONS.items():
            chosen, given = getattr(self, field) == choice, getattr(self, option) != _DEFAULTS[option]
            if (given and not chosen) or (needed and chosen and not given):
                need = "set both or neither" if needed else f"leave {option} out, or set {field}"
                raise ValueError(f"{field} {choice!r} and {option} belong together: {need}")
        if self.admission == "all" and self.admission_scope != "before":
            raise ValueError(
                "admission_scope 'batch' judges queries, and admission 'all' does not: set admission"
            )
        if self.neighbours != _DEFAULTS["neighbours"] and self.admission not in ("ald", "surprise"):
            raise ValueError("neighbours are looked at by admission 'ald' and 'surprise': set admission")
        if self.threshold_rise and self.capacity is None:
            raise ValueError("threshold_rise follows the fullness of a cap: set capacity too")
        if self.eviction != "none" and self.capacity is None:
            raise ValueError(f"eviction '{self.eviction}' acts at a cap: set capacity too")
        least, most = self.surprise_least, self.surprise_most
        if least is not None and most is not None and not least < most:
            raise ValueError(f"surprise_least must lie below surprise_most; found {least} and {most}")
        return self


_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(MemoryConfig)}
