"""`biography`: texts about invented people, a fresh one every time, packed into sequences; without end."""

import numpy as np

from ...errors import ConfigError
from ..biography.population import draw_population
from ..biography.templates import ATTRIBUTES
from ..biography.wording import check_length, wording_of
from ..config import StreamConfig
from ..randomness import generator
from ..schema import Array, Field, Schema
from .registry import check_split, register
from .table import Table

_FACTS = len(ATTRIBUTES)
_DRAWS = 1 + 2 * _FACTS  # uniform numbers for a biography: person, template of every sentence, their order


@register(
    "biography", "texts about invented people, six facts on each; endless, or limit (Zucchet et al., 2025)"
)
def open_biography(argument: str, config: StreamConfig, split: str | None) -> Table:
    """Opens "train" or "test": other texts about the same people, "test" in sentences kept from training."""
    part = check_split(config.split, ("train", "test"), "biography")
    if config.classes is not None:
        raise ConfigError("biography is text and has no classes; leave classes out")
    if config.standardise != "none" or config.flatten or config.permute is not None:
        raise ConfigError("biography is text: leave standardise, flatten and permute out")
    return BiographyTable(config, part)


class BiographyTable:
    """Sequences of whole biographies, each sequence drawn from (seed, offset).

    A biography has a sentence for every attribute, in an order of its own. A sequence takes one after the
    other until the next would not fit. As all names and all values of an attribute have equally many tokens,
    this does not favour anybody; only its last place goes to a long choice of sentences less often.

    Args:
      config: the stream, of whose `biography` it is made.
      split: "train" or "test".

    Raises:
      ConfigError: options that contradict one another.
    """

    rows: int | None = None

    def __init__(self, config: StreamConfig, split: str) -> None:
        options, self._seed = config.biography, config.seed or 0
        people = draw_population(options, self._seed)
        wording = wording_of(options)
        check_length(options, wording)
        held_out = options.templates == "held_out" or (options.templates is None and split == "test")
        if held_out and not options.held_out_templates:
            raise ConfigError(
                "biography: expected held-out templates to evaluate with; found held_out_templates 0: set "
                "biography.templates to train, or hold some out"
            )
        taught = options.templates_per_attribute - options.held_out_templates
        self._templates = people.templates[:, :, taught:] if held_out else people.templates[:, :, :taught]
        self._names = [
            [wording.names[k][index] for k, index in enumerate(row)] for row in people.names.tolist()
        ]
        words = np.stack(
            [np.array(tokens)[column] for tokens, column in zip(wording.parts, people.values.T, strict=True)],
            axis=1,
        )
        columns = [people.columns(attribute) for attribute in range(len(ATTRIBUTES))]
        self._values = [words[:, each].tolist() for each in columns]
        self._sentences, self._length = wording.sentences, options.length
        self._purpose = f"biographies {options.population} {split}"
        self._people = options.people
        self._most = options.length // wording.shortest + 1  # biographies drawn for a sequence
        self._chances = None if people.shares is None else np.cumsum(people.shares)
        self.schema = Schema(
            Field((options.length, 2), "int32"),
            Field((options.length, 2), "int32"),
            None,
            vocabulary=wording.tokenizer.vocabulary,
            attributes=ATTRIBUTES,
        )

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        x = np.zeros((len(rows), self._length, 2), np.int32)
        y = np.full((len(rows), self._length, 2), -1, np.int32)
        uniform = np.array([self._draw(int(row)) for row in rows]).reshape(len(rows), self._most, _DRAWS)
        people, choices = self._people_of(uniform[:, :, 0]), self._choices_of(uniform[:, :, 1 : 1 + _FACTS])
        orders = np.argsort(uniform[:, :, 1 + _FACTS :], axis=2)
        for place in range(len(rows)):
            start = 0
            for document in range(self._most):
                person = int(people[place, document])
                tokens, owners = self._biography(
                    person, choices[place, document].tolist(), orders[place, document].tolist()
                )
                stop = start + len(tokens)
                if stop > self._length:
                    break
                x[place, start:stop, 0], x[place, start:stop, 1] = tokens, document + 1
                y[place, start : stop - 1, 0], y[place, start : stop - 1, 1] = tokens[1:], owners[1:]
                start = stop
        return x, y, None

    def _draw(self, row: int) -> Array:
        return generator(self._seed, self._purpose, row).random((self._most, _DRAWS))

    def _people_of(self, uniform: Array) -> Array:
        if self._chances is None:
            return (uniform * self._people).astype(np.int64)
        people: Array = np.searchsorted(self._chances, uniform, side="right")
        people[people == self._people] -= 1  # the shares' sum may fall short of 1 by rounding
        return people

    def _choices_of(self, uniform: Array) -> Array:
        choices: Array = (uniform * self._templates.shape[2]).astype(np.int64)
        return choices

    def _biography(self, person: int, choices: list[int], order: list[int]) -> tuple[list[int], list[int]]:
        """Its tokens, and for each the attribute whose value it is part of (−1: none)."""
        name = self._names[person]
        tokens: list[int] = []
        owners: list[int] = []
        for attribute in order:
            template = self._templates[person, attribute, choices[attribute]]
            before, between, after = self._sentences[attribute][template]
            value = self._values[attribute][person]
            tokens += (*before, *name, *between, *value, *after)
            plain = len(before) + len(name) + len(between)
            owners += [-1] * plain + [attribute] * len(value) + [-1] * len(after)
        return tokens, owners
