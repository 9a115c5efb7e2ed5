"""Who is written about: names, the values of six attributes, and the sentences kept from training."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...errors import ConfigError
from ..config import BiographyOptions
from ..randomness import generator
from ..schema import Array
from .templates import ATTRIBUTES, TEMPLATES

_CHUNK = 4096  # names drawn at once, whatever the size of the population
_LARGEST_SHARE = 0.5  # of all names a population could have; beyond, drawing new ones takes too long


@dataclass(frozen=True)
class Population:
    """N people. The first of a larger population are those of a smaller one with the same seed."""

    names: Array  # [N, 3] int64, indices into the lists of first, middle and last names; no row twice
    values: Array  # [N, P] int64, indices of the words of every part of every attribute's value
    parts: tuple[int, ...]  # [P], the attribute that each part belongs to, ascending
    counts: tuple[int, ...]  # [P], number of words of each part
    templates: Array  # [N, 6, T] uint8, a permutation of the templates; the last ones are held out
    shares: Array | None  # [N] float64, how often each is drawn; None: all alike

    def columns(self, attribute: int) -> slice:
        """Which columns of `values` belong to an attribute."""
        return slice(self.parts.index(attribute), self.parts.index(attribute) + self.parts.count(attribute))


@lru_cache(maxsize=8)
def draw_population(options: BiographyOptions, seed: int) -> Population:
    """Draws the people of `options.population`.

    Every population draws from names of its own: those whose three indices have a sum that leaves, divided
    by the number of populations, the population's number. All use each single name equally often.

    Raises:
      ConfigError: unknown population, too few names for so many people, or too few templates.
    """
    check_options(options)
    people, purpose = options.people, options.population
    sizes = [part_counts(options, attribute) for attribute in ATTRIBUTES]
    owners = tuple(number for number, each in enumerate(sizes) for _ in each)
    counts = tuple(count for each in sizes for count in each)
    values = generator(seed, f"values {purpose}").integers(0, counts, size=(people, len(counts)))
    if options.location == "company":
        values[:, -1] = company_cities(options, seed)[_company_numbers(options, values, owners)]
    every = np.arange(options.templates_per_attribute, dtype=np.uint8)
    orders = np.broadcast_to(every, (people * len(ATTRIBUTES), len(every)))
    orders = generator(seed, f"templates {purpose}").permuted(orders, axis=1)
    shares = None
    if options.sampling == "power_law":
        weights = (1.0 + np.arange(people)) ** -options.exponent
        shares = weights / weights.sum()
    return Population(
        names=_names(options, seed),
        values=values,
        parts=owners,
        counts=counts,
        templates=orders.reshape(people, len(ATTRIBUTES), len(every)),
        shares=shares,
    )


def part_counts(options: BiographyOptions, attribute: str) -> tuple[int, ...]:
    """How many words there are for each part of an attribute's value."""
    found = getattr(options.values, attribute)
    return found if isinstance(found, tuple) else (found,)


def company_cities(options: BiographyOptions, seed: int) -> Array:
    """[companies] int64: the city of each company, the same for all populations; cities are used evenly."""
    companies = int(np.prod(part_counts(options, "company")))
    return generator(seed, "company cities").permutation(np.arange(companies) % options.values.location)


def check_options(options: BiographyOptions) -> None:
    """Refuses options that contradict one another.

    Raises:
      ConfigError: it says what was expected.
    """
    if options.population not in options.populations or len(set(options.populations)) < len(
        options.populations
    ):
        raise ConfigError(
            f"biography.population: expected one of populations, which are all different; found "
            f"{options.population!r} and {', '.join(options.populations)}"
        )
    available = int(_LARGEST_SHARE * _possible_names(options))
    if options.people > available:
        raise ConfigError(
            f"biography.people: expected at most {available:,}, half of the names that lists of "
            f"{options.names} give each of {len(options.populations)} populations; found {options.people:,}: "
            f"enlarge biography.names"
        )
    known, held = len(TEMPLATES[ATTRIBUTES[0]]), options.held_out_templates
    if options.templates_per_attribute > known or held >= options.templates_per_attribute:
        raise ConfigError(
            f"biography: expected at most {known} templates_per_attribute and fewer held_out_templates; "
            f"found {options.templates_per_attribute} and {held}"
        )


def _names(options: BiographyOptions, seed: int) -> Array:
    group, groups = options.populations.index(options.population), len(options.populations)
    draw = generator(seed, f"names {options.population}")
    found: dict[tuple[int, ...], None] = {}
    while len(found) < options.people:
        drawn = draw.integers(0, options.names, size=(_CHUNK, 3))
        drawn = drawn[drawn.sum(axis=1) % groups == group]
        found.update(dict.fromkeys(map(tuple, drawn.tolist())))
    return np.array(list(found)[: options.people], np.int64)


def _possible_names(options: BiographyOptions) -> int:
    """Number of three-part names whose indices have a sum in the population's residue class."""
    groups = len(options.populations)
    sums = np.zeros(groups, np.int64)
    sums[0] = 1
    for size in options.names:
        residues = np.bincount(np.arange(size) % groups, minlength=groups)
        sums = sum(residues[shift] * np.roll(sums, shift) for shift in range(groups))
    return int(sums[options.populations.index(options.population)])


def _company_numbers(options: BiographyOptions, values: Array, owners: tuple[int, ...]) -> Array:
    """[N], each person's company as one number."""
    company = ATTRIBUTES.index("company")
    columns = [values[:, place] for place, owner in enumerate(owners) if owner == company]
    return np.ravel_multi_index(columns, part_counts(options, "company"))
