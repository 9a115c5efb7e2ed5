"""The accuracy matrix of a run over phases, and what is read off it.

R[i, j] is the accuracy on phase j's own task after phase i, T the number of phases. Libraries disagree about
what "backward transfer" and "forgetting" mean: the matrix is kept, and every number says which variant it is.
"""

from collections.abc import Iterable, Sequence

Matrix = Sequence[Sequence[float | None]]


def continual_metrics(matrix: Matrix, untrained: Sequence[float | None] = ()) -> dict[str, float | None]:
    """Transfer and forgetting; None where a number is undefined or needs an accuracy that is missing.

    Args:
      matrix: R, a row of T accuracies for each of T phases (of a run under way: of those that have ended).
      untrained: b [T], the untrained model's accuracy on every task; empty if it was not measured.

    Returns:
      By name, with the last phase as T and mean over j < T unless said otherwise:
      `average_accuracy`, the mean of R[T, j] over all j;
      `bwt_gem`, the mean of R[T, j] − R[j, j] (Lopez-Paz & Ranzato, 2017);
      `bwt_triangular`, the mean of R[i, j] − R[j, j] over all i > j (Díaz-Rodríguez et al., 2018);
      `fwt_gem`, the mean of R[j − 1, j] − b_j over j > 1 (Lopez-Paz & Ranzato, 2017);
      `forgetting_max`, the mean of max over l < T of R[l, j] − R[T, j] (Chaudhry et al., 2018);
      `forgetting_first`, the mean of R[j, j] − R[T, j].

    >>> continual_metrics([[0.5, 0.25], [0.25, 1.0]], untrained=[0.0, 0.5])
    {'average_accuracy': 0.625, 'bwt_gem': -0.25, 'bwt_triangular': -0.25, 'fwt_gem': -0.25, \
'forgetting_max': 0.25, 'forgetting_first': 0.25}
    >>> continual_metrics([[0.5]])["bwt_gem"] is None
    True
    """
    count = len(matrix)
    if any(len(row) != count for row in matrix):
        raise ValueError(f"expected a square matrix; found rows of {[len(row) for row in matrix]} accuracies")
    last = matrix[-1] if count else ()
    below = [(i, j) for i in range(count) for j in range(i)]
    before = untrained if len(untrained) == count else [None] * count
    return {
        "average_accuracy": _mean(last),
        "bwt_gem": _mean(_minus(last[j], matrix[j][j]) for j in range(count - 1)),
        "bwt_triangular": _mean(_minus(matrix[i][j], matrix[j][j]) for i, j in below),
        "fwt_gem": _mean(_minus(matrix[j - 1][j], before[j]) for j in range(1, count)),
        "forgetting_max": _mean(
            _minus(_largest(row[j] for row in matrix[:-1]), last[j]) for j in range(count - 1)
        ),
        "forgetting_first": _mean(_minus(matrix[j][j], last[j]) for j in range(count - 1)),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = _all_known(values)
    return sum(known) / len(known) if known else None


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _largest(values: Iterable[float | None]) -> float | None:
    known = _all_known(values)
    return max(known) if known else None


def _all_known(values: Iterable[float | None]) -> list[float]:
    """The values, or none of them if one is missing."""
    given = list(values)
    known = [value for value in given if value is not None]
    return known if len(known) == len(given) else []
