"""What an experiment consists of: cells, sizes, and what is drawn from their results."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

SIZES = ("smoke", "small", "full")
HeldOut = Literal["validation", "test"]
Measured = dict[str, Any]  # what `results.Result.figures` holds


@dataclass(frozen=True)
class Size:
    """How much of everything an experiment takes."""

    name: str  # one of SIZES
    train: int  # examples that one pass streams
    held_out: int  # most examples it is evaluated on
    seeds: int
    words: str = ""  # what is smaller than in the paper, for the page
    tried_on: int | None = None  # of the training examples a candidate sees the first so many; None: all

    def __post_init__(self) -> None:
        assert self.name in SIZES, self.name

    @property
    def of_candidates(self) -> "Size":
        """The size at which candidates are tried on validation."""
        return self if self.tried_on is None else replace(self, train=self.tried_on)


@dataclass(frozen=True)
class Paper:
    """A number of the paper, or of the authors' published logs."""

    value: float  # percent, or a loss
    deviation: float | None = None
    where: str = ""  # figure, table or section

    def __str__(self) -> str:
        return f"{self.value:g}" if self.deviation is None else f"{self.value:g} ± {self.deviation:g}"


@dataclass(frozen=True)
class Cell:
    """One line of an experiment's table."""

    name: str  # in file names
    label: str  # in tables
    settings: Mapping[str, Any]  # what `Experiment.measure` understands
    candidates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # changes; validation chooses
    paper: Paper | None = None
    group: str = ""  # the line in the figure that the cell is a point of, or the cell's family
    x: float | None = None  # where on that line
    cost: float = 1.0  # beside the experiment's other cells
    seeds: int | None = None  # None: as many as the size says

    def __post_init__(self) -> None:
        for name in (self.name, *self.candidates):
            assert re.fullmatch(r"[a-z0-9][a-z0-9.\-]*", name), name


@dataclass(frozen=True)
class Job:
    """One cell at one seed, as it is measured."""

    size: Size
    settings: Mapping[str, Any]  # of the cell, with the candidate's changes
    seed: int
    held_out: HeldOut
    work: Path  # a folder for this job alone, kept until it is measured; and so are jobs' own ways to resume
    data: str  # the data set's spec
    shared: Path  # a folder for what jobs prepare for each other


@dataclass(frozen=True)
class Figure:
    """A picture of a page: curves over the examples seen, or one point per cell."""

    kind: Literal["curves", "points"]
    title: str
    y: str = "accuracy"  # a key of the figures, or the name of a curve
    x: str = "examples seen"  # the axis' label; for points: Cell.x, or "entries"
    log_x: bool = False
    log_y: bool = False
    level: str | None = None  # a key of the figures: a number drawn as a broken line across curves
    groups: tuple[str, ...] = ()  # draw these alone; none: all


@dataclass(frozen=True)
class Column:
    """A further column of a table: the mean of a figure over the seeds that have it."""

    head: str
    figure: str | None = None  # its key in the figures; None: the head
    style: str = ".1f"  # as `format` takes it


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper."""

    name: str
    title: str
    paper: str  # where in the paper
    about: str  # what is compared, in a few sentences
    differs: str  # where our setting differs from the paper's
    sizes: Mapping[str, Size]
    cells: Callable[[Size], Sequence[Cell]]
    measure: Callable[[Job], Measured]
    metric: Literal["accuracy", "loss"] = "accuracy"
    images: bool = True  # whether it needs a data set of images
    columns: tuple[Column, ...] = ()  # further ones of the table
    figures: tuple[Figure, ...] = ()
    remarks: Callable[["Means"], list[str]] | None = None  # sentences that follow from the numbers

    def size(self, name: str) -> Size:
        return self.sizes[name]


Means = Mapping[str, "Mean"]  # by cell


@dataclass(frozen=True)
class Mean:
    """A cell's numbers over its seeds."""

    values: tuple[float, ...]
    figures: tuple[Measured, ...]
    seeds: tuple[int, ...] = ()  # of each

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds (n − 1); None for one seed."""
        if len(self.values) < 2:
            return None
        return float((sum((v - self.mean) ** 2 for v in self.values) / (len(self.values) - 1)) ** 0.5)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with changes applied, inner mappings too; a learner or optimiser of another kind replaces.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    out = dict(base)
    for name, value in changes.items():
        old = out.get(name)
        inner = isinstance(old, Mapping) and isinstance(value, Mapping)
        if inner and value.get("kind", old.get("kind")) == old.get("kind"):
            out[name] = merged(old, value)
        else:
            out[name] = value
    return out
