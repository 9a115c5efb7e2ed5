"""What was asked of a number, and whether it is so."""

import statistics

from ..experiment import Means


def mean_of(means: Means, cell: str, figure: str) -> float | None:
    """The mean of a figure over a cell's seeds; None where the cell or the figure of a seed is missing."""
    values = [figures.get(figure) for figures in means[cell].figures] if cell in means else []
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known and len(known) == len(values) else None


def at_least(words: str, found: float, asked: float, unit: str = "") -> str:
    """
    >>> at_least("accuracy", 0.95, 0.9)
    'Asked: accuracy at least 0.9; found 0.95: met.'
    """
    return _verdict(words, "at least", found, asked, unit, met=found >= asked)


def at_most(words: str, found: float, asked: float, unit: str = "") -> str:
    """
    >>> at_most("ratio", 0.75, 0.7)
    'Asked: ratio at most 0.7; found 0.75: not met.'
    """
    return _verdict(words, "at most", found, asked, unit, met=found <= asked)


def _verdict(words: str, bound: str, found: float, asked: float, unit: str, *, met: bool) -> str:
    tail = f" {unit}" if unit else ""
    return f"Asked: {words} {bound} {asked:g}{tail}; found {found:.3g}{tail}: {'met' if met else 'not met'}."
