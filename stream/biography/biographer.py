"""Writing a biography: a sentence for every attribute of a person, as tokens."""

import numpy as np

from .population import Population
from .templates import ATTRIBUTES
from .wording import Wording


class Biographer:
    """Writes about the people of one population.

    Args:
      people: the population.
      wording: the tokens of names, values and sentences.
      held_out: how many of each person's templates are kept from training.
      training: use all but those; else those alone.
    """

    def __init__(self, people: Population, wording: Wording, held_out: int, *, training: bool) -> None:
        taught = people.templates.shape[2] - held_out
        self._templates = people.templates[:, :, :taught] if training else people.templates[:, :, taught:]
        self.choices = self._templates.shape[2]  # sentences to choose from for every attribute
        self._names = [
            [wording.names[k][index] for k, index in enumerate(row)] for row in people.names.tolist()
        ]
        columns = zip(wording.parts, people.values.T, strict=True)
        words = np.stack([np.array(tokens)[indices] for tokens, indices in columns], axis=1)
        self._values = [words[:, people.columns(number)].tolist() for number in range(len(ATTRIBUTES))]
        self._sentences = wording.sentences

    def write(self, person: int, choices: list[int], order: list[int]) -> tuple[list[int], list[int]]:
        """Writes one biography.

        Args:
          person: the person's number.
          choices: which of the sentences to choose from to take, by attribute.
          order: the attributes in the order in which they are told.

        Returns:
          Its tokens, and for each the attribute whose value it is part of (−1: none).
        """
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
