"""Learning has to stay within the finite numbers, and a commit may hold no others."""

from collections.abc import Iterable

import numpy as np

from ..errors import LaminaError


class DivergedError(LaminaError, ArithmeticError):
    """Learning has left the finite numbers."""


def require_finite(step: int, what: str, arrays: Iterable[np.ndarray]) -> None:
    """Checks what a step has brought forth.

    Args:
      step: the step.
      what: the numbers' name, in the plural.
      arrays: the numbers; whole ones pass.

    Raises:
      DivergedError: one of them is NaN or infinite.

    >>> require_finite(7, "losses", [np.array([0.5, np.inf])])
    Traceback (most recent call last):
    lamina.continual.finite.DivergedError: step 7: expected finite losses; found inf: lower the learner's \
rates; the last commit is intact
    """
    for array in arrays:
        bad = ~np.isfinite(array)
        if np.any(bad):
            raise DivergedError(
                f"step {step}: expected finite {what}; found {array[bad][0]}: lower the learner's rates; "
                f"the last commit is intact"
            )
