"""Tokens: every text comes back, and every sequence of tokens is some text."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamina.stream import Tokenizer, documents_of, tokenizer
from lamina.stream.tokenizer import SPECIAL, vocabulary_of

WORDS = ["Ada", "was", "born", "in", "Balton", "1985"]
TOKENIZER = Tokenizer(vocabulary_of(WORDS))
known = st.lists(st.sampled_from([*WORDS, ".", "..", "", "<pad>", "<7>", "Ada."])).map(" ".join)


@given(st.one_of(st.text(), known))
def test_every_text_comes_back(text):
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode(tokens) == text
    assert all(0 <= token < len(TOKENIZER.vocabulary) for token in tokens)


@given(st.lists(st.integers(0, len(TOKENIZER.vocabulary) - 1)))
def test_every_sequence_of_tokens_is_some_text(tokens):
    text = TOKENIZER.decode(tokens)
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_known_words_are_one_token_each():
    tokens = TOKENIZER.encode("Ada was born in Balton. Ada was born.")
    assert TOKENIZER.words(tokens) == "Ada was born in Balton . Ada was born .".split()
    assert TOKENIZER.number("Ada") == len(SPECIAL)
    with pytest.raises(KeyError):
        TOKENIZER.number("<pad>")


def test_unknown_words_are_spelled_as_bytes():
    assert TOKENIZER.words(TOKENIZER.encode("é.")) == ["<word>", "<c>", "<3>", "<a>", "<9>", "."]
    assert "<pad>" not in TOKENIZER.words(TOKENIZER.encode("<pad>"))


def test_a_broken_spelling_is_shown_as_such():
    lone = TOKENIZER.encode("é")[:3]  # the first of two bytes
    assert TOKENIZER.decode(lone) == "�"


def test_padding_is_no_text():
    ada = TOKENIZER.number("Ada")
    assert TOKENIZER.decode([ada, 0, 0]) == "Ada"
    x = np.array([[ada, 1], [ada + 1, 1], [ada, 2], [0, 0]], np.int32)
    assert documents_of(x, TOKENIZER) == ["Ada was", "Ada"]
    assert documents_of(np.zeros((3, 2), np.int32), TOKENIZER) == []


@pytest.mark.parametrize("words", [("a", "b"), (*SPECIAL, "a", "a")])
def test_foreign_vocabularies_are_refused(words):
    with pytest.raises(ValueError, match="vocabulary"):
        Tokenizer(words)


def test_examples_in_docstrings():
    outcome = doctest.testmod(tokenizer)
    assert outcome.attempted > 0
    assert outcome.failed == 0
