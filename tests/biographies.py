"""Reading biographies again, from their text alone: what tests hold the generator to."""

from collections import Counter
from dataclasses import replace

import numpy as np
from lamina.stream import (
    BiographyOptions,
    BiographyValues,
    StreamConfig,
    Tokenizer,
    documents_of,
    open_source,
)
from lamina.stream.biography.templates import ATTRIBUTES, TEMPLATES

SMALL = BiographyOptions(
    people=40,
    length=160,
    templates_per_attribute=8,
    held_out_templates=2,
    names=(16, 16, 16),
    values=BiographyValues(
        birth_date=(12, 28, 30), birth_place=40, university=(6, 8), major=24, company=(6, 8), location=24
    ),
    location="independent",
)
_SENTENCES = {
    text: (attribute, number) for attribute, texts in TEMPLATES.items() for number, text in enumerate(texts)
}


def stream(seed=0, split="train", **changes):
    return StreamConfig(source="biography", seed=seed, split=split, biography=replace(SMALL, **changes))


def read_text(text):
    """The name, and (attribute, number of the template, value) of every sentence in their order."""
    assert text.endswith(".")
    found = []
    for sentence in text[:-1].split(". "):
        matches = list(_readings(sentence.split()))
        assert len(matches) == 1, f"{sentence!r} is {len(matches)} sentences"
        found += matches
    (name,) = {each[0] for each in found}
    return name, [each[1:] for each in found]


def _readings(words):
    """All ways to take a sentence apart: the three words of the name, attribute, template, value."""
    for start in range(len(words) - 3):
        for value in range(1, min(3, len(words) - start - 3) + 1):
            middle = words[start + 3 : len(words) - value]
            text = " ".join([*words[:start], "{name}", *middle, "{value}"]) + "."
            if text in _SENTENCES:
                yield " ".join(words[start : start + 3]), *_SENTENCES[text], " ".join(words[-value:])


def read_stream(config, examples, start=0):
    """What `read_text` finds in every biography of the first examples."""
    source = open_source(config)
    tokenizer = Tokenizer(source.schema.vocabulary)
    x = source.read(start, start + examples)["x"]
    return [read_text(text) for sequence in x for text in documents_of(sequence, tokenizer)]


def facts_of(config, examples=400):
    """Name → {attribute: value}, from the texts; fails where two biographies of one person disagree."""
    people = {}
    for name, sentences in read_stream(config, examples):
        facts = {attribute: value for attribute, _, value in sentences}
        assert set(facts) == set(ATTRIBUTES)
        assert people.setdefault(name, facts) == facts
    return people


def fits(counts, shares):
    """Whether counts could be draws with these shares (χ², at p = 1e-4)."""
    from scipy.stats import chisquare

    counts = np.asarray(counts)
    return chisquare(counts, np.asarray(shares) / np.sum(shares) * counts.sum()).pvalue > 1e-4


def count(values, kinds):
    counter = Counter(values)
    assert set(counter) <= set(kinds)
    return [counter[kind] for kind in kinds]
