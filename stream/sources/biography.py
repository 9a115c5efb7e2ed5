"""`biography`: texts about invented people, a fresh one every time, packed into sequences; without end."""

import numpy as np

from ...errors import ConfigError
from ..biography.biographer import Biographer
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
        people, wording = draw_population(options, self._seed), wording_of(options)
        check_length(options, wording)
        wanted = options.templates or ("held_out" if split == "test" else "train")
        if wanted == "held_out" and not options.held_out_templates:
            raise ConfigError(
                "biography: expected held-out templates to evaluate with; found held_out_templates 0: set "
                "biography.templates to train, or hold some out"
            )
        held_out = options.held_out_templates
        self._biographer = Biographer(people, wording, held_out, training=wanted == "train")
        self._purpose = f"biographies {options.population} {split}"
        self._people, self._length = options.people, options.length
        self._most = options.length // wording.shortest + 1  # biographies drawn for a sequence
        self._chances = None if people.shares is None else np.cumsum(people.shares)
        field = Field((options.length, 2), "int32")
        words = wording.tokenizer.vocabulary
        self.schema = Schema(field, field, None, vocabulary=words, attributes=ATTRIBUTES)

    def take(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """See `Table.take`."""
        x = np.zeros((len(rows), self._length, 2), np.int32)
        y = np.full((len(rows), self._length, 2), -1, np.int32)
        uniform = np.array([self._draw(int(row)) for row in rows]).reshape(len(rows), self._most, _DRAWS)
        people = self._people_of(uniform[:, :, 0]).tolist()
        choices = (uniform[:, :, 1 : 1 + _FACTS] * self._biographer.choices).astype(np.int64).tolist()
        orders = np.argsort(uniform[:, :, 1 + _FACTS :], axis=2).tolist()
        for place in range(len(rows)):
            self._pack(x[place], y[place], people[place], choices[place], orders[place])
        return x, y, None

    def _pack(
        self, x: Array, y: Array, people: list[int], choices: list[list[int]], orders: list[list[int]]
    ) -> None:
        """Writes biographies into x and y [L, 2] as long as they fit."""
        start = 0
        for document, drawn in enumerate(zip(people, choices, orders, strict=True), start=1):
            tokens, owners = self._biographer.write(*drawn)
            stop = start + len(tokens)
            if stop > self._length:
                return
            x[start:stop, 0], x[start:stop, 1] = tokens, document
            y[start : stop - 1, 0], y[start : stop - 1, 1] = tokens[1:], owners[1:]
            start = stop

    def _draw(self, row: int) -> Array:
        return generator(self._seed, self._purpose, row).random((self._most, _DRAWS))

    def _people_of(self, uniform: Array) -> Array:
        if self._chances is None:
            return (uniform * self._people).astype(np.int64)
        people: Array = np.searchsorted(self._chances, uniform, side="right")
        people[people == self._people] -= 1  # the shares' sum may fall short of 1 by rounding
        return people
