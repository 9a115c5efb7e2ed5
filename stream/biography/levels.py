"""The loss that is left to somebody who knows how often values occur and nothing about any person."""

import numpy as np

from ..config import StreamConfig
from ..schema import Array
from .population import Population, draw_population
from .templates import ATTRIBUTES


def no_knowledge_level(stream: StreamConfig, *, in_context: bool = False) -> float:
    """The mean over attributes of `no_knowledge_levels`; with `in_context`, where the plateau lies.

    Args:
      stream: a stream of `biography`.
      in_context: count what earlier sentences of a biography give away.

    Returns:
      Nats per value.
    """
    return float(np.mean(list(no_knowledge_levels(stream, in_context=in_context).values())))


def no_knowledge_levels(stream: StreamConfig, *, in_context: bool = False) -> dict[str, float]:
    """The entropy of each attribute's values among the people as they are drawn.

    Parts of a value are drawn independently of one another, so the entropies of a value's parts are summed.
    (The entropy of whole values would be lower where there are few people: to know which dates occur at all
    is already to know something about somebody.)

    Args:
      stream: a stream of `biography`.
      in_context: count what earlier sentences of a biography give away. Where the location is the company's
        city, it is known after the company, and a company after its city is one of the few there; each comes
        first in half of the biographies.

    Returns:
      Attribute → nats per value: for parts with frequencies p, the sum of −Σ p log p.

    Raises:
      ConfigError: options that contradict one another.
    """
    people = draw_population(stream.biography, stream.seed or 0)
    levels = {
        name: sum(entropy(people.values[:, [column]], people.shares) for column in _columns(people, number))
        for number, name in enumerate(ATTRIBUTES)
    }
    if in_context and stream.biography.location == "company":
        company = people.values[:, _columns(people, ATTRIBUTES.index("company"))]
        city = people.values[:, _columns(people, ATTRIBUTES.index("location"))]
        both = entropy(np.hstack([company, city]), people.shares)
        levels["company"] = (levels["company"] + both - entropy(city, people.shares)) / 2
        levels["location"] = (levels["location"] + both - entropy(company, people.shares)) / 2
    return levels


def entropy(values: Array, shares: Array | None) -> float:
    """−Σ p log p of the rows that occur.

    Args:
      values: [N, k] integers, a row per person.
      shares: [N], how often each person is drawn; None: all alike.

    >>> float(entropy(np.array([[1], [1], [2], [3]]), None) / np.log(2))
    1.5
    """
    _, places = np.unique(values, axis=0, return_inverse=True)
    weights = np.full(len(values), 1 / len(values)) if shares is None else shares
    frequencies = np.bincount(places.reshape(-1), weights=weights)
    known = frequencies[frequencies > 0]
    return float(-(known * np.log(known)).sum())


def _columns(people: Population, attribute: int) -> list[int]:
    return list(range(people.values.shape[1]))[people.columns(attribute)]
