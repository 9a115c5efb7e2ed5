"""References that grow no layers: nearest neighbours and kernel ridge regression over all examples (F.10).

Both have a learner's interface, so that they can be run on the same stream. Their outputs are scores, of
which the largest is the predicted class, or regression targets; losses are squared errors, against one-hot
labels for classes. Before the first example every output is zero.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from ..errors import ConfigError
from .losses import Task, squared_error
from .state import Examples, Result

_FIRST_ROWS = 256  # of a table of examples; it doubles when it is full
_MEDIAN_EXAMPLES = 2048  # whose distances the median heuristic looks at (F.10.1)


@dataclass(frozen=True)
class Seen:
    """All examples so far. Adding to it consumes it."""

    step: int  # updates done
    count: int  # N
    x: np.ndarray  # [capacity, D], the first N rows are used
    y: np.ndarray  # [capacity, C] one-hot labels or targets

    def added(self, x: np.ndarray, y: np.ndarray) -> "Seen":
        """One step later, with B more examples."""
        count = self.count + len(x)
        tables = []
        for table, rows in ((self.x, x), (self.y, y)):
            if count > len(table):
                size = max(count, 2 * len(table), _FIRST_ROWS)
                table = np.concatenate([table, np.empty((size - len(table), rows.shape[1]), table.dtype)])
            table[self.count : count] = rows
            tables.append(table)
        return Seen(self.step + 1, count, *tables)


@dataclass(frozen=True)
class NearestNeighbours:
    """k nearest neighbours: the mean of their labels, plain or weighted by similarity (F.10.2).

    Raises:
      ConfigError: `neighbours` is below 1.
    """

    task: Task
    neighbours: int = 10  # k
    similarity: Literal["euclidean", "dot"] = "euclidean"  # −‖x − xᵢ‖², or ⟨x, xᵢ⟩
    weighted: bool = False  # by 1/(distance + 1e-5), or by a softmax over the neighbours' inner products

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise ConfigError(f"neighbours: expected 1 or more; found {self.neighbours}")

    def init(self, key: jax.Array | None = None) -> Seen:
        """No example yet; nothing is random."""
        return _nothing(self.task)

    def predict(self, state: Seen, x: np.ndarray) -> np.ndarray:
        """Scores [n, C] of examples x [n, …]."""
        rows = _rows(x)
        if state.count == 0:
            return np.zeros((len(rows), self.task.outputs), rows.dtype)
        known, labels = state.x[: state.count], state.y[: state.count]
        scores = rows @ known.T
        if self.similarity == "euclidean":
            scores = -euclidean_distances(rows, known)
        count = min(self.neighbours, state.count)
        nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        weights = self._weights(np.take_along_axis(scores, nearest, axis=1))
        shares = weights / weights.sum(axis=1, keepdims=True)
        answer: np.ndarray = np.einsum("nk,nkc->nc", shares, labels[nearest])
        return answer

    def update(self, state: Seen, batch: Examples) -> tuple[Seen, Result]:
        """Predicts the batch, then keeps it. The state is consumed."""
        outputs = self.predict(state, batch.x)
        return _learn(self.task, state, batch, outputs)

    def _weights(self, scores: np.ndarray) -> np.ndarray:
        """[n, k] of neighbours with these scores."""
        if not self.weighted:
            return np.ones_like(scores)
        if self.similarity == "euclidean":
            return 1 / (1e-5 - scores)
        weights: np.ndarray = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights


@dataclass(frozen=True)
class Regression:
    """A sum of kernels at examples."""

    x: np.ndarray  # [N, D]
    coefficients: np.ndarray  # [N, C]
    gamma: float

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        answer: np.ndarray = rbf_kernel(rows, self.x, self.gamma) @ self.coefficients
        return answer


@dataclass(frozen=True)
class Ridge:
    """The examples so far, and the regression that updates predict with."""

    seen: Seen
    fitted: Regression | None  # to the examples at the last refit
    fresh: bool  # whether it is fitted to all of them


@dataclass(frozen=True)
class KernelRidgeRegression:
    """Kernel ridge regression on targets or one-hot labels with the kernel exp(−γ·‖x − x'‖²) (F.10.1).

    γ is `bandwidth` over the median squared distance between examples. A fit solves a system of all examples,
    so that updates predict with one that is up to `refit_every` steps old; `predict` fits to all. A fit to N
    examples holds one matrix [N, N].

    Raises:
      ConfigError: a setting is out of range, or in a fit the regularisation is too small for the dtype.
    """

    task: Task
    bandwidth: float = 1.0  # γ's multiple of the inverse median
    regularisation: float = 0.1  # λ
    refit_every: int = 10  # steps

    def __post_init__(self) -> None:
        for name in ("bandwidth", "regularisation", "refit_every"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected a number above 0; found {getattr(self, name)}")

    def init(self, key: jax.Array | None = None) -> Ridge:
        """No example yet; nothing is random."""
        return Ridge(_nothing(self.task), None, True)

    def predict(self, state: Ridge, x: np.ndarray) -> np.ndarray:
        """Scores [n, C] of examples x [n, …], by the regression on all examples so far."""
        return self._answer(state.fitted if state.fresh else self._fit(state.seen), x)

    def update(self, state: Ridge, batch: Examples) -> tuple[Ridge, Result]:
        """Predicts the batch, then keeps it. The state is consumed."""
        outputs = self._answer(state.fitted, batch.x)
        seen, result = _learn(self.task, state.seen, batch, outputs)
        if seen.step % self.refit_every and state.fitted is not None:
            return replace(state, seen=seen, fresh=False), result
        return Ridge(seen, self._fit(seen), True), result

    def _answer(self, fitted: Regression | None, x: np.ndarray) -> np.ndarray:
        rows = _rows(x)
        return np.zeros((len(rows), self.task.outputs), rows.dtype) if fitted is None else fitted(rows)

    def _fit(self, seen: Seen) -> Regression:
        x, y = seen.x[: seen.count], seen.y[: seen.count]
        # Evenly spread over the stream: as good a sample as a random one, and the same at every fit.
        sample = x[np.linspace(0, len(x) - 1, min(len(x), _MEDIAN_EXAMPLES)).astype(int)]
        pairs = euclidean_distances(sample, squared=True)[np.triu_indices(len(sample), 1)]
        median = float(np.median(pairs)) if len(pairs) else 1.0
        gamma = self.bandwidth / (median or 1.0)
        system = rbf_kernel(x, gamma=gamma)
        system.flat[:: len(x) + 1] += self.regularisation
        # Symmetric, and transposed as LAPACK lays it out, so that it is factored where it lies: [N, N] once.
        try:
            factor = cho_factor(system.T, overwrite_a=True)
        except np.linalg.LinAlgError:
            raise ConfigError(
                f"regularisation: expected a number large enough for {len(x):,} examples, of which some are "
                f"alike, in {x.dtype}; found {self.regularisation:g}; give a larger one"
            ) from None
        return Regression(x, cho_solve(factor, y), gamma)


def _nothing(task: Task) -> Seen:
    dtype = jnp.result_type(float)
    return Seen(0, 0, np.empty((0, 0), dtype), np.empty((0, task.outputs), dtype))


def _learn(task: Task, state: Seen, batch: Examples, outputs: np.ndarray) -> tuple[Seen, Result]:
    rows = _rows(batch.x)
    targets = _targets(task, np.asarray(batch.y), rows.dtype)
    losses = squared_error(jnp.asarray(outputs), jnp.asarray(targets))
    if state.count == 0:
        state = replace(state, x=np.empty((0, rows.shape[1]), rows.dtype))
    return state.added(rows, targets), Result(jnp.asarray(outputs), losses, {}, {}, {}, 0.0, {})


def _targets(task: Task, y: np.ndarray, dtype: Any) -> np.ndarray:
    """[B, C]."""
    return np.eye(task.outputs, dtype=dtype)[y] if task.classification else y.reshape(len(y), -1)


def _rows(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, jnp.result_type(float)).reshape(len(x), -1)
