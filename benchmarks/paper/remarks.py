"""Sentences that follow from an experiment's numbers."""

from collections.abc import Collection

from .experiment import Means


def leads(
    means: Means, ours: Collection[str], theirs: Collection[str], our_kind: str, their_kind: str
) -> list[str]:
    """Which of two families is ahead in accuracy, and by how much."""
    first, second = _best(means, ours), _best(means, theirs)
    if first is None or second is None:
        return []
    gap = means[first].mean - means[second].mean
    ahead = "is ahead of" if gap > 0 else "is behind" if gap < 0 else "equals"
    return [
        f"The best {our_kind} (`{first}`, {means[first].mean:.1f} %) {ahead} the best {their_kind} "
        f"(`{second}`, {means[second].mean:.1f} %) by {abs(gap):.1f} points."
    ]


def _best(means: Means, names: Collection[str]) -> str | None:
    found = [name for name in names if name in means]
    return max(found, key=lambda name: means[name].mean) if found else None
