"""The progress with which a run begins or goes on: what a commit says, in this version or an earlier one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .config import parse_config, read_config
from .new_folder import CONFIG
from .origin import Origin
from .progress import Progress
from .run_config import RunConfig, phases_of
from .spans import Span


def first_progress(config: RunConfig, saved: Mapping[str, Any] | None, origin: Origin | None) -> Progress:
    """Where a run stands when it is opened.

    Args:
      config: its configuration.
      saved: what its last commit saved, or that of the run whose memory it starts from; None: nothing.
      origin: whose memory it starts from; None: its own, or none.
    """
    before = Progress() if saved is None else saved_progress(config, saved, origin)
    if origin is None and saved is not None:
        return before
    return Progress(spans=(*before.spans, _span(config, before.origins_end)))


def saved_progress(config: RunConfig, saved: Mapping[str, Any], origin: Origin | None) -> Progress:
    """The progress that a commit holds; one without spans, of an earlier version, gets its only one.

    Args:
      config: of the run that asks.
      saved: what the commit saved.
      origin: whose commit it is; None: the asking run's.
    """
    progress = Progress.from_json(saved["run"])
    if progress.spans:
        return progress
    of = config if origin is None else parse_config(read_config(origin.directory / CONFIG))
    return replace(progress, spans=(_span(of, 0),))


def _span(config: RunConfig, start: int) -> Span:
    """The span of a run's first phase."""
    first = phases_of(config)[0]
    return Span(start, config.name, first.name, first.stream)
