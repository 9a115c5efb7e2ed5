"""`tfds:NAME[:SPLIT]`: data sets that tensorflow-datasets has prepared, without TensorFlow or network."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, DataError, MissingDataError
from ..checks import BAD_SHAPE
from ..config import StreamConfig
from ..quiet import quiet_logging
from ..schema import Array, Field, Schema
from .registry import register
from .table import Table, merge_classes

_VERSION = re.compile(r"\d+\.\d+\.\d+")


@register(
    "tfds:NAME[:SPLIT]", "a data set prepared by tensorflow-datasets as array_record (lamina stream import)"
)
def open_tfds(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens a prepared data set below `config.folder`, $TFDS_DATA_DIR or ~/tensorflow_datasets."""
    name, _, own = argument.partition(":")
    folder = find_prepared(name, data_folder(config.folder))
    return TfdsTable(folder, split or own or config.split, config)


def data_folder(folder: str | None) -> Path:
    """Where prepared data sets lie, by tensorflow-datasets' own rules."""
    chosen = folder or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(chosen).expanduser()


def find_prepared(name: str, data_dir: Path) -> Path:
    """The folder of the newest prepared version of NAME, NAME/CONFIG or NAME/VERSION.

    Raises:
      MissingDataError: there is none. Nothing is imported and no network is tried before this is known.
      ConfigError: it is prepared in a format that needs TensorFlow.
    """
    base = data_dir / name
    found = [info.parent for info in (*base.glob("dataset_info.json"), *base.glob("*/dataset_info.json"))]
    if not found:
        raise MissingDataError(
            f"tfds: looked for a prepared data set {name} in {data_dir} and found none; prepare it from an "
            f"archive or a folder of images with lamina stream import, or set folder"
        )
    newest = max(found, key=_version)
    try:
        info = json.loads((newest / "dataset_info.json").read_text())
        file_format = info.get("fileFormat", "tfrecord")
    except (ValueError, AttributeError) as error:
        raise DataError(f"{newest}/dataset_info.json is damaged; prepare the data set again") from error
    if file_format != "array_record":
        raise ConfigError(
            f"{newest} is prepared as {file_format}, which needs TensorFlow; prepare it as array_record"
        )
    return newest


class TfdsTable:
    """One split of a prepared data set.

    Args:
      folder: holds dataset_info.json.
      split: a split of the data set, or a slice of one ("train[:10%]").
      config: whose `features` and `target` name the keys of x and y where the data set does not.

    Raises:
      ConfigError: no such split or key.
    """

    def __init__(self, folder: Path, split: str, config: StreamConfig) -> None:
        with quiet_logging():
            import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(str(folder))
        self._keys = _choose_keys(builder.info, config)
        try:
            self._data = builder.as_data_source(split)
        except (ValueError, KeyError) as error:
            raise ConfigError(
                f"{folder} has the splits {', '.join(builder.info.splits)}, not {split!r}"
            ) from error
        self.rows: int | None = len(self._data)
        names = getattr(builder.info.features[self._keys[1]], "names", None)
        self.schema = self._infer_schema(merge_classes(config.classes, tuple(names) if names else None))

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        x = np.zeros((len(rows), *self.schema.x.shape), self.schema.x.dtype)
        y = np.zeros((len(rows), *self.schema.y.shape), self.schema.y.dtype)
        problems = np.zeros(len(rows), np.uint8)
        records = self._data.__getitems__([int(row) for row in rows])
        for place, record in enumerate(records):
            value, target = np.asarray(record[self._keys[0]]), np.asarray(record[self._keys[1]])
            if value.shape != x.shape[1:] or target.size != y[place].size:
                problems[place] = BAD_SHAPE
                continue
            x[place], y[place] = value, target.reshape(y.shape[1:])
        return x, y, problems

    def _infer_schema(self, classes: tuple[str, ...] | None) -> Schema:
        if not self.rows:
            return Schema(Field((0,), "float32"), Field((1,), "float32"), classes)
        with quiet_logging():  # the first image decoded is when it says that OpenCV is missing
            first: dict[str, Any] = self._data[0]
        x, y = (np.asarray(first[key]) for key in self._keys)
        dtype = "float32" if x.dtype.kind == "f" else x.dtype.name
        target = Field((y.size,), "float32") if classes is None else Field((), "int32")
        return Schema(Field(x.shape, dtype), target, classes)


def _choose_keys(info: Any, config: StreamConfig) -> tuple[str, str]:
    """The keys of x and y: as configured, else as the data set is meant to be supervised."""
    x, y = info.supervised_keys or (None, None)
    x = config.features[0] if config.features and len(config.features) == 1 else x
    y = config.target or y
    if x not in info.features or y not in info.features:
        raise ConfigError(
            f"tfds:{info.name} has the keys {', '.join(info.features)}; name x by features: [KEY] and y by "
            f"target: KEY"
        )
    return str(x), str(y)


def _version(folder: Path) -> tuple[int, ...]:
    match = _VERSION.fullmatch(folder.name)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
