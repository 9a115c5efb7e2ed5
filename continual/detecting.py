"""Drift detection: a signal that the errors before learning have changed their level."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as config

from ..errors import not_installed
from ..monitoring.predictions import read_predictions
from ..stream.schema import Array

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@config(frozen=True, config=_STRICT, kw_only=True)
class AdwinConfig:
    """ADWIN (Bifet & Gavaldà, 2007): a window that drops its old part once two parts of it differ."""

    kind: Literal["adwin"]
    # δ: the probability of a false signal at a test.
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.002
    # Examples between two tests.
    clock: Annotated[int, Field(gt=0)] = 32


@config(frozen=True, config=_STRICT, kw_only=True)
class PageHinkleyConfig:
    """The Page–Hinkley test (Page, 1954): errors' deviations from their mean, summed up, leave a band."""

    kind: Literal["page_hinkley"]
    # Deviations of this size are tolerated.
    delta: Annotated[float, Field(ge=0)] = 0.005
    # λ: how far the sum may move from its extreme.
    threshold: Annotated[float, Field(gt=0)] = 50.0
    # Whether the error has to rise, to fall, or either.
    mode: Literal["up", "down", "both"] = "up"
    # Examples before the first test.
    min_instances: Annotated[int, Field(gt=0)] = 30


DetectorConfig = Annotated[AdwinConfig | PageHinkleyConfig, Field(discriminator="kind")]


class DriftWatch:
    """Watches the errors of a run's predictions, in the order of its stream.

    Args:
      wanted: the detector; None: nothing is ever signalled.

    Raises:
      MissingDataError: the package river, whose detectors these are, is missing.
    """

    def __init__(self, wanted: AdwinConfig | PageHinkleyConfig | None) -> None:
        self._detector = None if wanted is None else _detector(wanted)

    def watch(self, labels: Array, predictions: Array, losses: Array) -> list[int]:
        """Takes further predictions [B] with what they should have been; returns as `see`."""
        return [] if self._detector is None else self.see(_errors_of(labels, predictions, losses))

    def see(self, errors: Iterable[float]) -> list[int]:
        """Takes the errors of further predictions: 0 or 1 each, or a regression's losses.

        Returns:
          The places among them at which a change was signalled.
        """
        if self._detector is None:
            return []
        found = []
        for place, error in enumerate(errors):
            self._detector.update(float(error))
            if self._detector.drift_detected:
                found.append(place)
        return found

    def catch_up(self, directory: Path) -> None:
        """Brings the detector where it was after all predictions that a run's folder holds."""
        if self._detector is not None:
            records = read_predictions(directory)
            self.watch(records["label"], records["prediction"], records["loss"])


def _errors_of(labels: Array, predictions: Array, losses: Array) -> Array:
    """What a detector watches, [B]: 1 for a wrong class; of a regression, the loss."""
    if labels.dtype.kind in "iu":
        return np.asarray(labels != predictions, np.float64)
    return np.asarray(losses, np.float64)


def _detector(wanted: AdwinConfig | PageHinkleyConfig) -> Any:
    try:
        from river import drift
    except ImportError as error:
        raise not_installed("river", f"for the detector {wanted.kind}", "river") from error
    options = {name: value for name, value in vars(wanted).items() if name != "kind"}
    kinds: dict[str, Any] = {"adwin": drift.ADWIN, "page_hinkley": drift.PageHinkley}
    return kinds[wanted.kind](**options)
