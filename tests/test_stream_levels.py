"""The no-knowledge level: closed forms, and a slow count over the texts themselves."""

import doctest
from collections import Counter
from math import log

import numpy as np
import pytest
from biographies import facts_of, stream
from lamina.stream import no_knowledge_level, no_knowledge_levels
from lamina.stream.biography import levels
from lamina.stream.biography.population import draw_population
from lamina.stream.biography.templates import ATTRIBUTES


def entropy_of(weights):
    shares = np.asarray(list(weights), float)
    shares = shares / shares.sum()
    return -sum(share * log(share) for share in shares if share)


def test_equal_shares_give_logarithms_of_the_counts():
    found = no_knowledge_levels(stream(people=30_000, names=(64, 64, 64)))
    counts = (12 * 28 * 30, 40, 48, 24, 48, 24)
    assert list(found) == list(ATTRIBUTES)
    np.testing.assert_allclose(list(found.values()), np.log(counts), atol=2e-3)


def test_level_of_the_actual_people_is_counted_from_their_texts():
    config = stream(people=50, seed=6)
    facts = list(facts_of(config, 500).values())
    assert len(facts) == 50
    expected = {}
    for attribute in ATTRIBUTES:
        parts = zip(*(each[attribute].split() for each in facts), strict=True)
        expected[attribute] = sum(entropy_of(Counter(part).values()) for part in parts)
    found = no_knowledge_levels(config)
    assert found == pytest.approx(expected, rel=1e-12)
    assert no_knowledge_level(config) == pytest.approx(np.mean(list(expected.values())), rel=1e-12)
    assert no_knowledge_level(config) < 4.4  # less than log of the counts: few people leave values out


def test_level_counts_people_as_often_as_they_are_drawn():
    config = stream(people=3, sampling="power_law", exponent=1.0, seed=1)
    values = draw_population(config.biography, 1).values
    assert len(np.unique(values[:, 3])) == 3  # three birth places with shares 6/11, 3/11, 2/11
    assert no_knowledge_levels(config)["birth_place"] == pytest.approx(entropy_of([6, 3, 2]), rel=1e-12)
    one = no_knowledge_levels(stream(people=1))
    assert set(one.values()) == {0.0}


def test_a_city_that_the_company_gives_away_counts_half():
    config = stream(people=30_000, names=(64, 64, 64), location="company")
    plain, leaking = no_knowledge_levels(config), no_knowledge_levels(config, in_context=True)
    assert plain["location"] == pytest.approx(log(24), abs=2e-3)
    assert leaking["location"] == pytest.approx(log(24) / 2, abs=2e-3)
    assert leaking["company"] == pytest.approx((log(48) + log(2)) / 2, abs=4e-3)
    others = set(ATTRIBUTES) - {"company", "location"}
    assert {name: plain[name] for name in others} == {name: leaking[name] for name in others}
    assert no_knowledge_level(config, in_context=True) == pytest.approx(np.mean(list(leaking.values())))
    independent = stream(people=300)
    assert no_knowledge_levels(independent, in_context=True) == no_knowledge_levels(independent)


def test_examples_in_docstrings():
    outcome = doctest.testmod(levels)
    assert outcome.attempted > 0
    assert outcome.failed == 0
