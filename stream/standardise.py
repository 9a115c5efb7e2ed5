"""Standardising inputs with given statistics, or with those of the stream so far."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError
from .config import GivenStatistics
from .schema import Array, Field

# A spread below float32's resolution of the mean is rounding: such a feature counts as constant.
_RESOLUTION = float(np.finfo(np.float32).eps)


class Standardiser:
    """Centres and scales x; statistics are per channel for images [H, W, C], else per feature.

    Running statistics follow Chan et al.'s pairwise form of Welford's update, in float64. A feature
    that was constant so far is centred and divided by 1.

    Args:
      mode: "none", "running", or the statistics to use.
      field: shape and type of one x.

    Raises:
      ConfigError: given statistics of another size than the channels or features.

    >>> standardiser = Standardiser("running", Field((1,), "float32"))
    >>> standardiser.update(np.array([[1.0], [3.0]]))
    >>> standardiser.apply(np.array([[5.0]])).tolist()
    [[3.0]]
    """

    def __init__(self, mode: Literal["none", "running"] | GivenStatistics, field: Field) -> None:
        self.mode = mode
        self._axes = tuple(range(len(field.shape))) if len(field.shape) == 3 else (0,)
        self._shape = field.shape[-1:] if len(field.shape) == 3 else field.shape
        self.count = 0  # values seen per channel or feature
        self.mean = np.zeros(self._shape)
        self.squares = np.zeros(self._shape)  # sum of squared deviations from the mean
        if isinstance(mode, GivenStatistics):
            self._given = _broadcast(mode.mean, "mean", self._shape) * mode.scale
            self._given_std = _broadcast(mode.std, "std", self._shape) * mode.scale

    def update(self, x: Array) -> None:
        """Takes examples [n, …] into the running statistics; other modes do nothing."""
        if self.mode != "running" or len(x) == 0:
            return
        values = x.astype(np.float64)
        count = values.size // max(1, int(np.prod(self._shape)))
        with np.errstate(over="ignore"):
            mean = values.mean(axis=self._axes)
            squares = np.square(values - mean).sum(axis=self._axes)
            delta, total = mean - self.mean, self.count + count
            self.mean = self.mean + delta * (count / total)
            self.squares = self.squares + squares + delta**2 * (self.count * count / total)
        self.count = total

    def apply(self, x: Array) -> Array:
        """Standardises examples [n, …]; float32 of the same shape (mode "none": x itself)."""
        if self.mode == "none":
            return x
        mean, std = self._statistics()
        constant = std <= _RESOLUTION * np.abs(mean)
        out: Array = ((x - mean) / np.where(constant, 1.0, std)).astype(np.float32)
        return out

    def state(self) -> dict[str, Any]:
        """The running statistics as plain JSON values, exact to the last bit."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self.squares.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned."""
        self.count = int(state["count"])
        self.mean = np.asarray(state["mean"], np.float64).reshape(self._shape)
        self.squares = np.asarray(state["squares"], np.float64).reshape(self._shape)

    def _statistics(self) -> tuple[Array, Array]:
        if self.mode == "running":
            return self.mean, np.sqrt(self.squares / max(1, self.count))
        return self._given, self._given_std


def _broadcast(value: float | tuple[float, ...], name: str, shape: tuple[int, ...]) -> Array:
    given = np.asarray(value, np.float64)
    if given.shape not in ((), shape):
        raise ConfigError(
            f"standardise.{name} expects one number or {list(shape)} numbers (one per channel or feature), "
            f"found {given.size}"
        )
    return np.broadcast_to(given, shape)
