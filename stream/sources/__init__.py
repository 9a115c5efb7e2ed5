"""Sources: one module each, registered with one line of help.

To add one, write a module with a function decorated by `register` that returns a `Table`, and import
it here.
"""

from dataclasses import replace
from functools import lru_cache

from ..augment import check_augmentable
from ..config import StreamConfig
from ..domains import ClassRows, Drifting, NoisyLabels, Transformed
from ..schema import Source
from . import biography, digits, fashion_mnist, npz, record_files, river_streams, teacher_student, tfds
from .registry import list_sources, open_table
from .table import OrderedSource

__all__ = ["list_sources", "open_source", "shared_source"]

_MODULES = (biography, digits, fashion_mnist, npz, record_files, river_streams, teacher_student, tfds)


def open_source(config: StreamConfig, split: str | None = None) -> Source:
    """Opens the stream that a config describes, or another split of its data.

    Args:
      config: the stream; a seed of None counts as 0. `limit` holds for its own split only.
      split: another split ("test"), for evaluation, without label noise and drift; None: the config's own.

    Returns:
      The source, before augmentation (the pipeline's work).

    Raises:
      ConfigError: unknown source, split, column or option.
      MissingDataError: the data are not where they were looked for.
      DataError: the data are damaged or empty.

    >>> open_source(StreamConfig(source="digits", limit=100)).length
    100
    """
    own = split is None or split == config.split
    source = _open(config if own else replace(config, split=str(split)), split, own=own)
    if config.augment != "none":
        check_augmentable(source.schema)
    if own and config.drift is not None:
        drift = config.drift
        changes = {name: getattr(drift, name) for name in ("source", "only_classes", "rotate", "permute")}
        other = replace(config, **{name: value for name, value in changes.items() if value is not None})
        source = Drifting(source, _open(other, split, own=True), drift, config.seed or 0)
    if own and config.label_noise:
        source = NoisyLabels(source, config.label_noise, config.seed or 0)
    return source


def _open(config: StreamConfig, split: str | None, *, own: bool) -> Source:
    """The ordered rows of one domain."""
    table = open_table(config, split)
    if config.only_classes is not None:
        table = ClassRows(table, config.only_classes)
    source = OrderedSource(table, config, config.limit if own else None)
    return Transformed(source, config.rotate, config.permute) if _changes_x(config) else source


def _changes_x(config: StreamConfig) -> bool:
    return config.rotate != 0 or config.permute is not None


@lru_cache(maxsize=1)
def shared_source(config: StreamConfig) -> Source:
    """The stream of a config, kept open in this process from one window of segments to the next."""
    return open_source(config)
