"""Our builder of tensorflow-datasets: it encodes the rows of an archive in a Beam pipeline."""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from .archives import Archive, Split
from .quiet import quiet_logging

with quiet_logging():
    import apache_beam as beam
    import tensorflow_datasets as tfds

_CHUNK = 256  # rows encoded by one element of the pipeline


class ImportedDataset(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc, call-arg]
    """A data set with the keys "image" or "x", and "label" or "y", in the archive's own order."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = Path(__file__).parent  # where tfds looks for citation files; there are none

    def __init__(self, archive: Archive, name: str, data_dir: Path) -> None:
        self.name = name
        self._archive = archive
        self._keys, self._connectors = _features(archive)
        super().__init__(data_dir=str(data_dir), file_format="array_record")

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Imported by Lamina from data of the user's own.",
            features=tfds.features.FeaturesDict(self._connectors),
            supervised_keys=self._keys,
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any, pipeline: Any = None) -> dict[str, Any]:
        return {name: self._generate_examples(split) for name, split in self._archive.splits.items()}

    def _generate_examples(self, split: Split) -> Any:
        starts = list(range(0, split.rows, _CHUNK))
        return beam.Create(starts) | beam.FlatMap(_encode, split, self._keys)  # type: ignore[no-untyped-call]


def prepare(archive: Archive, name: str, data_dir: Path) -> Path:
    """Writes the data set NAME below `data_dir` and returns its folder."""
    tfds.disable_progress_bar()
    with quiet_logging(), redirect_stdout(io.StringIO()):
        builder = ImportedDataset(archive, name, data_dir)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(beam_runner="FnApiRunner", try_download_gcs=False)
        )
    return Path(builder.data_dir)


def _encode(start: int, split: Split, keys: tuple[str, str]) -> Iterator[tuple[int, Any]]:
    from PIL import Image

    for row in range(start, min(start + _CHUNK, split.rows)):
        x, y = split.load(row)
        if keys[0] == "image":
            image = Image.fromarray(x[..., 0] if x.shape[-1] == 1 else x)
            yield row, {"image": image, keys[1]: y}
        else:
            yield row, {keys[0]: x, keys[1]: y}


def _features(archive: Archive) -> tuple[tuple[str, str], dict[str, Any]]:
    """Names and types of x and y; 8-bit images of 1 or 3 channels are stored as PNG."""
    x, y = archive.splits["train"].load(0)
    image = x.dtype == np.uint8 and x.ndim == 3 and x.shape[-1] in (1, 3)
    keys = ("image" if image else "x", "label" if archive.classes else "y")
    if archive.classes:
        target = tfds.features.ClassLabel(names=list(archive.classes))
    else:
        target = tfds.features.Tensor(shape=np.shape(y), dtype=np.asarray(y).dtype)
    connectors = {
        keys[0]: tfds.features.Image(shape=x.shape, encoding_format="png")
        if image
        else tfds.features.Tensor(shape=x.shape, dtype=x.dtype),
        keys[1]: target,
    }
    return keys, connectors
