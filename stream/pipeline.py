"""The Beam pipeline: one element is one segment's number, one step reads, transforms and writes it.

Nothing is grouped or ordered in the engine: a segment's place is its name and its bytes depend on
nothing else, so any runner, any number of workers and any retry give the same log.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import errors
from ..errors import ConfigError, DataError, LaminaError
from .augment import augment_images
from .config import StreamConfig, config_from_json, config_to_json
from .log import Log, open_log
from .quiet import quiet_logging
from .schema import Source
from .sources import shared_source

with quiet_logging():
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import create_runner

_RAISED = re.compile(r"(?:lamina\.errors\.(\w+): )(.+)")
_SUFFIX = re.compile(r" \[while running '.*", re.DOTALL)


class WriteSegment(beam.DoFn):
    """Writes the segment whose number it is given.

    Args:
      path: the log's folder.
      config: the stream's config as JSON: small, and the same on every worker.
    """

    def __init__(self, path: str, config: str) -> None:
        self._path = path
        self._config = config

    def setup(self) -> None:
        """Opens log and source once per worker."""
        self._log = open_log(Path(self._path))
        self._source = shared_source(config_from_json(self._config))

    def process(self, segment: int) -> Iterator[int]:
        """Writes one segment and passes its number on."""
        write_segment(self._log, self._source, str(self._log.content["augment"]), segment)
        yield segment


def write_segment(log: Log, source: Source, augment: str, segment: int) -> None:
    """Reads, transforms and stores one segment."""
    start, stop = log.span(segment)
    arrays = source.read(start, stop)
    if len(arrays["x"]) != stop - start:
        raise DataError(
            f"the stream ended at example {start + len(arrays['x'])}, expected {stop}: the data shrank while "
            f"they were read; build the log again"
        )
    if augment == "cifar":
        arrays["x"] = augment_images(arrays["x"], log.seed, start)
    log.write_segment(segment, arrays)


def run_window(log: Log, config: StreamConfig, segments: list[int]) -> None:
    """Runs the pipeline over some segments and waits for its end.

    Raises:
      ConfigError: unknown runner or option.
      LaminaError: whatever a worker met, as it was raised there.
    """
    write = WriteSegment(str(log.path), json.dumps(config_to_json(config)))
    options = pipeline_options(config.runner_options)
    with quiet_logging():
        runner = _create_runner(config.runner)
        try:
            with beam.Pipeline(runner=runner, options=options) as pipeline:
                _ = pipeline | beam.Create(segments) | beam.ParDo(write)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise known_failure(error) from error


def pipeline_options(flags: tuple[str, ...]) -> Any:
    """Beam's options from flags such as "--direct_num_workers=2".

    Raises:
      ConfigError: a flag that no runner knows, or the running mode that corrupts memory.
    """
    if any("multi_threading" in flag for flag in flags):
        raise ConfigError(
            "direct_running_mode=multi_threading corrupts memory in Beam; use multi_processing or one worker"
        )
    options = PipelineOptions(list(flags))
    known: dict[str, Any] = {}
    for kind in PipelineOptions.__subclasses__():
        known |= options.view_as(kind).get_all_options()
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if not flag.startswith("--") or not {name, name.removeprefix("no_")} & known.keys():
            raise ConfigError(f"unknown runner option {flag!r}; Beam's options are written --name=value")
    return options


def known_failure(error: Exception) -> LaminaError:
    """The failure of ours inside whatever a runner made of it, else a DataError of one line."""
    text = _SUFFIX.sub("", str(error))
    if isinstance(error, LaminaError):
        return type(error)(text)
    if found := _RAISED.findall(text):
        name, message = found[-1]
        kind = getattr(errors, name)
        return kind(message)  # type: ignore[no-any-return]
    last = text.strip().splitlines()[-1] if text.strip() else ""
    return DataError(f"the stream's pipeline failed: {type(error).__name__}: {last}")


def _create_runner(name: str) -> Any:
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError(
            f"unknown Beam runner {name!r}; expected FnApiRunner or the name or dotted path of another"
        ) from error
