"""Other libraries that `benchmarks.retrieval` compares with; both are in the extra `bench`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

_FOUND = 10  # nearest keys that FAISS returns


class Faiss:
    """Exact flat search: scores of all keys, and the best few."""

    def __init__(self, keys: Array, queries: Array) -> None:
        import faiss

        self._index = faiss.IndexFlatL2(keys.shape[1])
        self._index.add(keys)
        self._queries = queries

    def search(self, number: int) -> Any:
        return self._index.search(self._queries, min(_FOUND, self._index.ntotal))


def keops_answer(
    keys: Array, values: Array, queries: Array, gradient: Array, square_length: float
) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    """RBF reduction by KeOps, and that with its gradient in the queries.

    KeOps makes a C++ loop of a formula, which its NumPy front end compiles when first called.

    Args:
      keys: [N, D].
      values: [N, F].
      queries: [B, D].
      gradient: [B, F] of a loss in the answers.
      square_length: ℓ².

    Returns:
      Two functions: the answers [B, F], and answers with gradients [B, D].

    Raises:
      Exception: it is not installed, or cannot compile here.
    """
    import pykeops
    from pykeops.numpy import Genred

    pykeops.set_verbose(False)
    features, outputs = keys.shape[1], values.shape[1]
    formula = "Exp(-SqDist(q, k) * s) * v"
    shapes = [f"q = Vi({features})", f"k = Vj({features})", f"v = Vj({outputs})", "s = Pm(1)"]
    answer = Genred(formula, shapes, reduction_op="Sum", axis=1)
    back = Genred(f"Grad({formula}, q, g)", [*shapes, f"g = Vi({outputs})"], reduction_op="Sum", axis=1)
    scale = np.array([1 / (2 * square_length)], np.float32)
    arrays = (queries, keys, values, scale)
    answer(*arrays, backend="CPU")  # compiles, or says why not
    return (
        lambda _: answer(*arrays, backend="CPU"),
        lambda _: (answer(*arrays, backend="CPU"), back(*arrays, gradient, backend="CPU")),
    )
