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


def paired(means: Means, changed: str, base: str) -> list[str]:
    """What a change gains over the seeds that both cells have.

    >>> from .experiment import Mean
    >>> before, after = Mean((50.0, 52.0), (), (0, 1)), Mean((54.0,), (), (1,))
    >>> paired({"rbf": before, "rbf-falling": after}, "rbf-falling", "rbf")
    ['`rbf-falling` gains +2.0 points on `rbf` (seed 1).']
    """
    if changed not in means or base not in means:
        return []
    ours, theirs = (dict(zip(means[n].seeds, means[n].values, strict=True)) for n in (changed, base))
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return []
    gain = sum(ours[seed] - theirs[seed] for seed in both) / len(both)
    seeds = f"seed{'s' if len(both) > 1 else ''} {', '.join(map(str, both))}"
    return [f"`{changed}` gains {gain:+.1f} points on `{base}` ({seeds})."]


def _best(means: Means, names: Collection[str]) -> str | None:
    found = [name for name in names if name in means]
    return max(found, key=lambda name: means[name].mean) if found else None
