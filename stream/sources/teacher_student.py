"""`teacher_student`: regression on the outputs of a random network (paper F.1.2), without end."""

from itertools import pairwise

import numpy as np

from ...errors import ConfigError
from ..config import StreamConfig, TeacherOptions
from ..randomness import generator
from ..schema import Array, Field, Schema
from .registry import check_split, register
from .table import Table

_CHUNK = 64  # rows multiplied at once: what fits the cache


@register("teacher_student", "synthetic regression on a random residual MLP (paper F.1.2); endless, or limit")
def open_teacher_student(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens "train" or "test": the same teacher on independent inputs."""
    if config.classes is not None:
        raise ConfigError("teacher_student is a regression and has no classes; leave classes out")
    part = check_split(config.split, ("train", "test"), "teacher_student")
    return TeacherTable(config.teacher, config.seed or 0, part)


class TeacherTable:
    """Inputs uniform on the unit sphere and the teacher's outputs, each drawn from (seed, offset).

    With h = ReLU(W₁ x), then h ← h + ReLU(W_l h) for l = 2 … L, the target is y = W_out h. Weights are
    LeCun normal: variance 1 / fan-in, no biases.
    """

    rows: int | None = None

    def __init__(self, options: TeacherOptions, seed: int, split: str) -> None:
        self.schema = Schema(Field((options.inputs,), "float32"), Field((options.outputs,), "float32"), None)
        self._seed, self._purpose = seed, f"teacher inputs {split}"
        draw = generator(seed, "teacher weights")
        sizes = [options.inputs] + [options.width] * options.layers + [options.outputs]
        self._weights = [
            draw.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in) for fan_in, fan_out in pairwise(sizes)
        ]

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        x = np.empty((len(rows), *self.schema.x.shape), np.float32)
        for place, row in enumerate(rows):
            draw = generator(self._seed, self._purpose, int(row)).standard_normal(x.shape[1])
            x[place] = draw / np.sqrt(np.sum(np.square(draw)))
        y = [self._teach(x[start : start + _CHUNK]) for start in range(0, len(x), _CHUNK)]
        targets = np.concatenate(y) if y else np.empty((0, *self.schema.y.shape))
        return x, targets.astype(np.float32), None

    def _teach(self, x: Array) -> Array:
        first, *blocks, last = self._weights
        hidden = np.maximum(_products(first, x.astype(np.float64)), 0.0)
        for block in blocks:
            hidden = hidden + np.maximum(_products(block, hidden), 0.0)
        return _products(last, hidden)


def _products(weights: Array, x: Array) -> Array:
    """x @ weights.T, whose every row has the same bits whatever rows it is computed with.

    A BLAS product does not promise that: it chooses its kernel by the number of rows.
    """
    out: Array = np.sum(x[:, None, :] * weights[None, :, :], axis=-1)
    return out
