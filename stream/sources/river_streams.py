"""`river:NAME`: the streams that river brings along, and those that it has downloaded before."""

from typing import Any, cast

import numpy as np

from ...errors import ConfigError, DataError, MissingDataError, not_installed
from ..config import StreamConfig
from ..schema import Array
from .registry import register
from .table import ArrayTable, Table, merge_classes

_REGRESSION = "Regression"  # of river.datasets.base


@register("river:NAME", "a stream of river's, as ImageSegments or Shuttle (extra `river`)")
def open_river(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens the only split, "train"; x are the columns that are numbers, or those named `features`."""
    if split not in (None, "train"):
        raise ConfigError(
            f"{config.source} has one split, train, not {split!r}; it is scored as it passes by"
        )
    records = _open(argument)
    rows = [(record, target) for record, target in records]
    if not rows:
        raise DataError(f"{config.source}: expected at least one example, found none")
    names = config.features or tuple(name for name, value in rows[0][0].items() if _is_number(value))
    x = np.array([[_number(record, name, config.source) for name in names] for record, _ in rows], np.float32)
    if not names:
        raise DataError(
            f"{config.source}: expected columns of numbers, found {', '.join(rows[0][0]) or 'none'}"
        )
    return ArrayTable(
        x, *_targets([target for _, target in rows], config, regression=records.task == _REGRESSION)
    )


def _open(name: str) -> Any:
    try:
        from river import datasets
        from river.datasets import base
    except ImportError as error:
        raise not_installed("river", f"for the source river:{name}", "river") from error
    known = {
        each: kind
        for each, kind in vars(datasets).items()
        if isinstance(kind, type) and issubclass(kind, base.FileDataset)
    }
    if name not in known:
        raise ConfigError(f"river:{name}: expected one of {', '.join(sorted(known))}")
    try:
        found: Any = cast(Any, known[name])()
    except TypeError as error:  # some come in several versions
        raise ConfigError(f"river:{name} comes in several versions, which cannot be named here") from error
    if not found.path.is_file():
        raise MissingDataError(
            f"river:{name}: looked for {found.path} and found nothing; download it once with "
            f"python -c 'from river import datasets; datasets.{name}().download()'"
        )
    return found


def _targets(
    targets: list[Any], config: StreamConfig, *, regression: bool
) -> tuple[Array, tuple[str, ...] | None]:
    """y, and the names of the classes; None for regression."""
    if regression:
        return np.array(targets, np.float32), merge_classes(config.classes, None)
    names = sorted({str(target) for target in targets}, key=_as_number_or_word)
    labels = {name: label for label, name in enumerate(names)}
    return np.array([labels[str(target)] for target in targets]), merge_classes(config.classes, tuple(names))


def _as_number_or_word(name: str) -> tuple[float, str]:
    return (float(name), name) if name.lstrip("-").isdecimal() else (np.inf, name)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _number(record: dict[str, Any], name: str, source: str) -> float:
    value = record.get(name)
    if not _is_number(value):
        raise DataError(f"{source}: expected a number in the column {name!r}, found {value!r}; set features")
    return float(value)  # type: ignore[arg-type]
