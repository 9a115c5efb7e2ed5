"""The configuration of a stream: what it holds, and how the reader prepares it."""

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_Positive = Annotated[int, Field(ge=1)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, config=_STRICT)
class GivenStatistics:
    """Statistics known beforehand: x becomes (x / scale − mean) / std."""

    mean: float | tuple[float, ...]  # one number, or one per channel (images) or feature (vectors)
    std: float | tuple[float, ...]  # likewise; 0 marks a constant feature, which is only centred
    scale: Annotated[float, Field(gt=0)] = 1.0  # units of mean and std: 255 for bytes read as 0 … 1


@dataclass(frozen=True, config=_STRICT)
class TeacherOptions:
    """The random network whose outputs `teacher_student` streams (paper F.1.2)."""

    inputs: _Positive = 100  # d_in, size of x
    width: _Positive = 100  # d_e, width of the residual stream
    layers: _Positive = 2  # L, the first projection and L − 1 residual blocks
    outputs: _Positive = 1  # d_out, size of y


_Counts = Annotated[tuple[_Positive, ...], Field(min_length=1, max_length=2)]


@dataclass(frozen=True, config=_STRICT)
class BiographyValues:
    """How many words there are for every part of an attribute's value; all combinations of parts are values.

    A part is one token. Parts are drawn independently of one another. Defaults: as many values as bioS has
    (Allen-Zhu & Li, 2024).
    """

    birth_date: tuple[_Positive, _Positive, _Positive] = (12, 28, 200)  # months, days, years
    birth_place: _Positive = 200
    university: _Counts = (15, 20)  # invented names and kinds of school, or names only
    major: _Positive = 100
    company: _Counts = (263,)  # invented names and lines of business, or names only
    location: _Positive = 133


@dataclass(frozen=True, config=_STRICT)
class BiographyOptions:
    """The people that `biography` writes about, and how (Zucchet et al., 2025)."""

    people: _Positive = 16_384  # N, individuals of the population; more of them begin with the same ones
    population: str = "pretrain"  # whose lives are told
    populations: tuple[str, ...] = ("pretrain", "finetune")  # all there are; nobody belongs to two of them
    sampling: Literal["uniform", "power_law"] = "uniform"  # whose biography comes next
    exponent: Annotated[float, Field(ge=0)] = 1.0  # a of power_law: person i from 0 comes as (i + 1)^−a
    length: _Positive = 512  # L, positions of a sequence, filled with whole biographies, then padding
    templates_per_attribute: _Positive = 25  # sentences known for an attribute, the first ones of the list
    held_out_templates: Annotated[int, Field(ge=0)] = 5  # of them, kept from training; others for each person
    # Which of a person's templates are used; None: the held-out ones in the split "test", else the others.
    templates: Literal["train", "held_out"] | None = None
    names: tuple[_Positive, _Positive, _Positive] = (400, 400, 1000)  # first, middle and last names
    values: BiographyValues = field(default_factory=BiographyValues)
    location: Literal["company", "independent"] = "company"  # the city of the company, or drawn by itself


@dataclass(frozen=True, config=_STRICT)
class DriftOptions:
    """When a stream goes over into another, and what is different there."""

    start: Annotated[int, Field(ge=0)]  # offset of the first example that may be the other's
    length: Annotated[int, Field(ge=0)] = 0  # examples over which the other's share rises; 0: at once
    source: str | None = None  # the other source; None: the same
    only_classes: tuple[int, ...] | None = None  # of the other; None: as before
    rotate: float | None = None  # likewise
    permute: _Seed | None = None  # likewise


@dataclass(frozen=True, config=_STRICT)
class StreamConfig:
    """What to stream, in which order, and in which form the learner gets it.

    >>> StreamConfig(source="digits").with_seed(7).seed
    7
    """

    # What the log holds.
    # Spec: digits, fashion_mnist, tfds:NAME[:SPLIT], npz:FILE, files:GLOB, river:NAME, teacher_student or
    # biography.
    source: str
    split: str = "train"  # the part of the data set that is streamed
    seed: _Seed | None = None  # fixes order, augmentation and synthetic data; None takes the run's seed
    shuffle: bool = True  # data of known length come in an order drawn from the seed, else as stored
    limit: _Positive | None = None  # stream only this many examples (of this split, after shuffling)
    only_classes: tuple[int, ...] | None = None  # stream only the examples with these labels
    rotate: float = 0.0  # images are turned by so many degrees
    permute: _Seed | None = None  # x's values in the one order that is drawn from this number
    label_noise: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of labels replaced (in this split only)
    drift: DriftOptions | None = None  # the stream goes over into another (in this split only)
    augment: Literal["none", "cifar"] = "none"  # "cifar": reflect-pad by 4, random crop, random flip
    folder: str | None = (
        None  # where fashion_mnist's files or prepared tfds data sets lie; None: usual places
    )
    features: tuple[str, ...] | None = None  # columns that form x (files), or the key of x (tfds)
    target: str | None = None  # column that holds y (files), or the key of y (tfds)
    classes: tuple[str, ...] | _Positive | None = None  # the labels declared, by names or by their number
    teacher: TeacherOptions = field(default_factory=TeacherOptions)  # options of teacher_student
    biography: BiographyOptions = field(default_factory=BiographyOptions)  # options of biography
    segment_length: _Positive = 1024  # examples in one segment of the log, the unit of Beam's work

    # How the reader prepares it.
    standardise: Literal["none", "running"] | GivenStatistics = "none"  # "running": of the stream so far
    flatten: bool = False  # give x as vectors [B, D]
    on_bad_input: Literal["fail", "skip"] = "fail"  # at a bad example: stop, or pass over it and count

    # How the pipeline runs.
    lead_segments: _Positive = 64  # the pipeline stays at most this many segments ahead of the reader
    drop_consumed: bool = False  # delete segments the reader has passed, so a log may outgrow the disk
    runner: str = "FnApiRunner"  # any Beam runner, by name or dotted path
    runner_options: tuple[str, ...] = ()  # its options, as Beam spells them: "--direct_num_workers=2"

    def with_seed(self, seed: int) -> "StreamConfig":
        """This config with `seed` filled in where it had none."""
        return self if self.seed is not None else replace(self, seed=seed)

    def content(self) -> dict[str, Any]:
        """The fields that decide what a log of this stream holds, as plain JSON values."""
        values: dict[str, Any] = config_to_json(self)
        return {name: values[name] for name in _content_names()}


SOURCE_OPTIONS = {"teacher_student": "teacher", "biography": "biography"}
"""The options that only one source reads, by that source."""


def config_to_json(config: StreamConfig) -> dict[str, Any]:
    """A config as plain JSON values."""
    values: dict[str, Any] = TypeAdapter(StreamConfig).dump_python(config, mode="json")
    return values


def config_from_values(values: Mapping[str, Any]) -> StreamConfig:
    """The config in what `config_to_json` gave."""
    return TypeAdapter(StreamConfig).validate_python(dict(values))


def config_from_json(values: str | bytes) -> StreamConfig:
    """The config in a JSON text."""
    return TypeAdapter(StreamConfig).validate_json(values)


def _content_names() -> list[str]:
    """The fields under "What the log holds": those up to segment_length."""
    names = [each.name for each in fields(StreamConfig)]
    return names[: names.index("segment_length") + 1]
