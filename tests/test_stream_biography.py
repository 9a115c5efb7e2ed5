"""Biographies: unique people, facts that the text gives back, shares as declared, packing without cuts."""

import hashlib
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from biographies import SMALL, count, facts_of, fits, read_stream, read_text, stream
from lamina.cli import main
from lamina.errors import ConfigError
from lamina.stream import (
    BiographyOptions,
    BiographyValues,
    StreamConfig,
    Tokenizer,
    build_log,
    documents_of,
    open_source,
)
from lamina.stream.biography.population import company_cities, draw_population
from lamina.stream.biography.templates import ATTRIBUTES, TEMPLATES
from lamina.stream.biography.wording import wording_of
from lamina.stream.biography.words import _ENDINGS, _LISTS, words_of


def names_of(population):
    return set(map(tuple, population.names.tolist()))


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_names_are_unique_and_populations_disjoint(seed):
    groups = ("pretrain", "finetune", "later")
    options = replace(SMALL, populations=groups, people=500, names=(16, 15, 17))
    people = {name: draw_population(replace(options, population=name), seed) for name in groups}
    assert all(len(names_of(each)) == 500 for each in people.values())
    for one, other in combinations(groups, 2):
        assert not names_of(people[one]) & names_of(people[other])
    for each in people.values():
        assert [len(np.unique(each.names[:, k])) for k in range(3)] == [16, 15, 17]


def test_a_larger_population_begins_with_the_smaller_one():
    few, many = (draw_population(replace(SMALL, people=n), 5) for n in (100, 900))
    for name in ("names", "values", "templates"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[:100])
    assert not np.array_equal(few.values, draw_population(replace(SMALL, people=100), 6).values)


def test_nearly_all_names_can_be_used_up():
    options = replace(SMALL, names=(2, 3, 4), people=6, populations=("a", "b"), population="b")
    assert len(names_of(draw_population(options, 0))) == 6
    with pytest.raises(ConfigError, match="expected at most 6"):
        draw_population(replace(options, people=7), 0)


def test_text_tells_every_fact_where_it_is_marked():
    config = stream(seed=3)
    source = open_source(config)
    tokenizer = Tokenizer(source.schema.vocabulary)
    assert source.schema.attributes == ATTRIBUTES
    arrays = source.read(0, 60)
    documents = 0
    for x, y in zip(arrays["x"], arrays["y"], strict=True):
        for number, text in enumerate(documents_of(x, tokenizer), start=1):
            (places,) = np.nonzero(x[:, 1] == number)
            assert list(places) == list(range(places[0], places[-1] + 1))
            tokens, following, owners = x[places, 0], y[places, 0], y[places, 1]
            np.testing.assert_array_equal(following, [*tokens[1:], -1])
            _, sentences = read_text(text)
            marked = {
                ATTRIBUTES[owner]: tokenizer.decode(following[owners == owner].tolist()) for owner in range(6)
            }
            assert marked == {attribute: value for attribute, _, value in sentences}
            for owner in range(6):
                (where,) = np.nonzero(owners == owner)
                assert where[-1] - where[0] == len(where) - 1
            documents += 1
        padding = x[:, 1] == 0
        assert not x[padding].any()
        assert (y[padding] == -1).all()
    assert documents >= 120


def test_facts_are_those_of_the_population_in_every_split():
    options = replace(SMALL, people=30)
    people = draw_population(options, 7)
    words = wording_of(options).tokenizer.words
    expected = {}
    for person in range(30):
        tokens = [wording_of(options).names[k][people.names[person, k]] for k in range(3)]
        parts = [wording_of(options).parts[k][index] for k, index in enumerate(people.values[person])]
        values = [" ".join(words(parts[people.columns(a)])) for a in range(6)]
        expected[" ".join(words(tokens))] = dict(zip(ATTRIBUTES, values, strict=True))
    assert facts_of(stream(seed=7, people=30), 200) == expected
    assert facts_of(stream(seed=7, people=30, split="test"), 200) == expected


def test_held_out_templates_are_never_seen_in_training():
    def used(split):
        found = {}
        for name, sentences in read_stream(stream(people=8, split=split), 600):
            for attribute, template, _ in sentences:
                found.setdefault((name, attribute), set()).add(template)
        return found

    train, test = used("train"), used("test")
    assert train.keys() == test.keys()
    assert len(train) == 8 * 6
    for key, templates in train.items():
        assert len(templates) == 6
        assert len(test[key]) == 2
        assert templates | test[key] == set(range(8))
    assert len({frozenset(each) for each in test.values()}) > 12  # every person has a split of their own


def test_templates_of_the_other_split_can_be_asked_for():
    asked = stream(templates="held_out")
    assert {len(s) for _, s in read_stream(asked, 3)} == {6}
    held = {(n, a, t) for n, s in read_stream(stream(split="test"), 500) for a, t, _ in s}
    found = {(n, a, t) for n, s in read_stream(asked, 500) for a, t, _ in s}
    assert found == held
    with pytest.raises(ConfigError, match="held_out_templates 0"):
        open_source(stream(held_out_templates=0, split="test"))
    assert {len(s) for _, s in read_stream(stream(held_out_templates=0, split="test", templates="train"), 3)}


def test_values_are_spread_evenly_over_the_declared_ones():
    people = draw_population(replace(SMALL, people=10_000, names=(64, 64, 64)), 1)
    assert people.counts == (12, 28, 30, 40, 6, 8, 24, 6, 8, 24)
    for column, size in zip(people.values.T, people.counts, strict=True):
        assert fits(np.bincount(column, minlength=size), np.ones(size))
    pairs = np.ravel_multi_index((people.values[:, 4], people.values[:, 5]), (6, 8))
    assert fits(np.bincount(pairs, minlength=48), np.ones(48))
    held = people.templates[:, :, -2:].reshape(-1)
    assert fits(np.bincount(held, minlength=8), np.ones(8))


def test_biographies_are_drawn_evenly():
    """One biography a sequence: then the choice of sentences does not depend on their length either."""
    found = read_stream(stream(people=10, length=72, seed=2), 6000)
    assert len(found) == 6000
    names = sorted({name for name, _ in found})
    assert len(names) == 10
    assert fits(count([name for name, _ in found], names), np.ones(10))
    orders = ["-".join(attribute for attribute, _, _ in sentences) for _, sentences in found]
    assert fits(count(orders, ["-".join(each) for each in permutations(ATTRIBUTES)]), np.ones(720))
    own = [t for name, s in found for attribute, t, _ in s if (name, attribute) == (names[0], "major")]
    assert fits(count(own, sorted(set(own))), np.ones(6))


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.5])
def test_power_law_has_the_declared_exponent(exponent):
    config = stream(people=20, sampling="power_law", exponent=exponent, seed=4)
    people = draw_population(config.biography, 4)
    options = config.biography
    known = [
        " ".join(wording_of(options).tokenizer.words(wording_of(options).names[k][row[k]] for k in range(3)))
        for row in people.names.tolist()
    ]
    counts = count([name for name, _ in read_stream(config, 4000)], known)
    shares = (1.0 + np.arange(20)) ** -exponent
    assert fits(counts, shares)
    slope = np.polyfit(np.log1p(np.arange(20)), np.log(counts), 1, w=np.sqrt(counts))[0]
    assert abs(slope + exponent) < 0.06
    np.testing.assert_allclose(people.shares, shares / shares.sum(), rtol=1e-12)


def test_sequences_hold_as_many_whole_biographies_as_fit():
    source, longest = open_source(stream(length=300)), wording_of(SMALL).longest
    x = source.read(0, 200)["x"]
    numbers = x[:, :, 1]
    assert (numbers.max(axis=1) >= 300 // longest).all()
    assert (300 - (numbers > 0).sum(axis=1) < longest).all()
    for row in numbers:
        used = row[row > 0]
        np.testing.assert_array_equal(np.unique(used), np.arange(1, used.max() + 1))
        assert (np.diff(used) >= 0).all()
        assert (row[len(used) :] == 0).all()


def test_any_slices_give_the_same_stream():
    whole = open_source(stream(seed=9)).read(0, 50)
    for cuts in ((0, 1, 2, 50), (0, 49, 50), (0, 7, 7, 30, 50)):
        other = open_source(stream(seed=9))
        parts = [other.read(a, b) for a, b in pairwise(cuts)]
        for name in ("x", "y", "problems"):
            np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), whole[name], strict=True)
    for seed, split in ((8, "train"), (9, "test")):
        assert not np.array_equal(open_source(stream(seed=seed, split=split)).read(0, 50)["x"], whole["x"])


def test_logs_are_the_same_for_any_number_of_workers(tmp_path):
    config = replace(stream(), limit=40, segment_length=8)
    several = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    digests = []
    for name, options in (("one", ()), ("two", several)):
        build_log(replace(config, runner_options=options), tmp_path / name)
        files = sorted(tmp_path.glob(f"{name}/segment-*"))
        assert len(files) == 5
        digests.append([hashlib.sha256(file.read_bytes()).digest() for file in files])
    assert digests[0] == digests[1]


def test_no_biography_comes_twice():
    texts = [str(each) for each in read_stream(stream(people=3, templates_per_attribute=25), 700)]
    assert len(set(texts)) > 0.999 * len(texts)


def test_location_is_the_company_s_city_everywhere():
    changes = {"location": "company", "people": 400}
    city = {}
    for population in ("pretrain", "finetune"):
        for facts in facts_of(stream(population=population, **changes), 900).values():
            assert city.setdefault(facts["company"], facts["location"]) == facts["location"]
    assert len(city) == 48
    cities = company_cities(replace(SMALL, location="company"), 0)
    assert set(np.bincount(cities)) == {2}  # 48 companies in 24 cities
    independent = facts_of(stream(people=400), 900).values()
    assert len({(facts["company"], facts["location"]) for facts in independent}) > 200


def test_reference_values_are_as_many_as_in_the_literature():
    options = BiographyOptions()
    assert (options.templates_per_attribute, options.held_out_templates) == (25, 5)
    assert options.location == "company"
    people = draw_population(replace(options, people=10), 0)
    sizes = [int(np.prod(people.counts[people.columns(a)])) for a in range(6)]
    assert sizes == [200 * 12 * 28, 200, 300, 100, 263, 133]


def test_sentences_are_ours_in_number_and_form():
    assert tuple(TEMPLATES) == ATTRIBUTES
    texts = [text for each in TEMPLATES.values() for text in each]
    assert {len(each) for each in TEMPLATES.values()} == {25}
    assert len(set(texts)) == 150
    for text in texts:
        assert (text.count("{name}"), text.count("{value}"), text.count(".")) == (1, 1, 1)
        assert text.index("{name}") < text.index("{value}")
        assert text.endswith("{value}.")
    assert wording_of(SMALL).longest <= 72


def test_no_word_has_two_meanings():
    lists = [words_of(kind, 4800, "x") for kind in _ENDINGS] + list(_LISTS.values())
    words = [word for each in lists for word in each]
    assert len(set(words)) == len(words)
    plain = {word for each in TEMPLATES.values() for text in each for word in text.rstrip(".").split()}
    assert not plain & set(words)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"population": "nobody"}, "nobody"),
        ({"populations": ("pretrain", "pretrain")}, "all different"),
        ({"people": 5000}, "enlarge biography.names"),
        ({"templates_per_attribute": 26}, "at most 25"),
        ({"held_out_templates": 8}, "fewer held_out_templates"),
        ({"length": 60}, "at least"),
        ({"names": (5000, 16, 16)}, "4800 words of the kind 'first name'"),
        ({"values": BiographyValues(birth_date=(13, 28, 30))}, "12 words of the kind 'month'"),
        ({"values": BiographyValues(major=500)}, "words of the kind 'field'"),
    ],
)
def test_contradictory_options_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        open_source(stream(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"standardise": "running"},
        {"flatten": True},
        {"permute": 1},
        {"rotate": 10.0},
        {"only_classes": (1,)},
        {"classes": 3},
        {"label_noise": 0.1},
        {"augment": "cifar"},
        {"split": "validation"},
    ],
)
def test_what_makes_no_sense_on_text_is_refused(changes):
    with pytest.raises(ConfigError):
        open_source(replace(stream(), **changes))


def test_a_stream_may_drift_to_other_people():
    from lamina.stream import DriftOptions

    with pytest.raises(ConfigError, match="drift"):
        open_source(replace(stream(), drift=DriftOptions(start=5, source="digits")))


def test_schema_survives_the_header(tmp_path):
    config = replace(stream(), limit=8)
    log = build_log(config, tmp_path / "log")
    assert log.schema == open_source(config).schema
    assert log.schema.vocabulary[0] == "<pad>"


def test_show_prints_the_texts(tmp_path, capsys):
    build_log(replace(stream(), limit=3), tmp_path / "log")
    assert main(["stream", "show", str(tmp_path / "log")]) == 0
    lines = capsys.readouterr().out.splitlines()
    texts = [line.strip() for line in lines if line.startswith("  ")]
    assert len([line for line in lines if line.startswith("example ")]) == 3
    assert len(texts) >= 6
    assert all(len(read_text(text)[1]) == 6 for text in texts)
    assert main(["stream", "show", str(tmp_path / "log"), "--json"]) == 0
    assert '"text"' in capsys.readouterr().out


def test_listed(capsys):
    assert main(["list", "sources"]) == 0
    assert "biography" in capsys.readouterr().out


def test_config_reads_plain_values():
    from pydantic import TypeAdapter, ValidationError

    parse = TypeAdapter(StreamConfig).validate_python
    config = parse({"source": "biography", "biography": {"people": 5, "values": {"university": [3]}}})
    assert config.biography.values.university == (3,)
    for wrong in ({"people": 0}, {"exponent": -1}, {"persons": 3}, {"values": {"birth_date": [12]}}):
        with pytest.raises(ValidationError):
            parse({"source": "biography", "biography": wrong})
