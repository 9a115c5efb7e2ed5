"""Names, values and sentences as tokens of one vocabulary, the same for all populations."""

from dataclasses import dataclass

from ...errors import ConfigError
from ..config import BiographyOptions
from ..tokenizer import Tokenizer, vocabulary_of
from .population import part_counts
from .templates import ATTRIBUTES, TEMPLATES
from .words import words_of

_NAME_KINDS = ("first name", "middle name", "last name")
_PART_KINDS = {
    "birth_date": ("month", "day", "year"),
    "birth_place": ("place",),
    "university": ("university", "school"),
    "major": ("field",),
    "company": ("company", "trade"),
    "location": ("city",),
}
_PLACES = ("{name}", "{value}")

Sentence = tuple[list[int], list[int], list[int]]  # tokens before the name, between name and value, after


@dataclass(frozen=True)
class Wording:
    """The tokens of everything that a biography consists of."""

    tokenizer: Tokenizer
    names: tuple[tuple[int, ...], ...]  # [3][…], the tokens of first, middle and last names
    parts: tuple[tuple[int, ...], ...]  # [P][…], the tokens of every part of a value
    sentences: tuple[tuple[Sentence, ...], ...]  # [6][T]
    shortest: int  # tokens of the shortest biography
    longest: int  # and of the longest


def wording_of(options: BiographyOptions) -> Wording:
    """Draws up vocabulary and tokens; they depend on the sizes of lists and on the number of templates only.

    Raises:
      ConfigError: a list is asked for more words than there are.
    """
    names = [
        words_of(kind, count, "biography.names")
        for kind, count in zip(_NAME_KINDS, options.names, strict=True)
    ]
    parts = [
        words_of(kind, count, f"biography.values.{attribute}")
        for attribute in ATTRIBUTES
        for kind, count in zip(_PART_KINDS[attribute], part_counts(options, attribute), strict=False)
    ]
    texts = [TEMPLATES[attribute][: options.templates_per_attribute] for attribute in ATTRIBUTES]
    words = [word for each in texts for text in each for word in text.rstrip(".").split()]
    plain = [word for word in words if word not in _PLACES]
    vocabulary = vocabulary_of([*plain, *(word for each in (*names, *parts) for word in each)])
    tokenizer = Tokenizer(vocabulary)
    sentences = tuple(tuple(_sentence(tokenizer, text) for text in each) for each in texts)
    values = [len(part_counts(options, attribute)) for attribute in ATTRIBUTES]
    lengths = [
        [len(names) + value + sum(map(len, sentence)) for sentence in each]
        for value, each in zip(values, sentences, strict=True)
    ]
    return Wording(
        tokenizer,
        _tokens(tokenizer, names),
        _tokens(tokenizer, parts),
        sentences,
        shortest=sum(min(each) for each in lengths),
        longest=sum(max(each) for each in lengths),
    )


def check_length(options: BiographyOptions, wording: Wording) -> None:
    """Refuses sequences that some biography would not fit into.

    Raises:
      ConfigError: it names the least length.
    """
    if options.length < wording.longest:
        raise ConfigError(
            f"biography.length: expected at least {wording.longest} positions, the longest biography; found "
            f"{options.length}"
        )


def _sentence(tokenizer: Tokenizer, text: str) -> Sentence:
    before, _, rest = text.partition("{name}")
    between, _, _ = rest.partition("{value}")
    first, second = (tokenizer.encode(words) if (words := part.strip()) else [] for part in (before, between))
    return first, second, [tokenizer.stop]


def _tokens(tokenizer: Tokenizer, lists: list[tuple[str, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tokenizer.number(word) for word in words) for words in lists)
