"""Texts that a run's decoder writes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..learners.generation import Generator
from ..stream import open_source
from ..stream.tokenizer import Tokenizer
from .committed import committed


@dataclass(frozen=True)
class Written:
    """A text that was begun by somebody and gone on with by a decoder."""

    prompt: str
    text: str  # what was added

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


def go_on(directory: Path, prompt: str, *, words: int, temperature: float = 0.0, seed: int = 0) -> Written:
    """Goes on with a text as a run's last committed decoder predicts it.

    Args:
      directory: the run's folder; it is only read.
      prompt: the text so far.
      words: how many words to add; the full stop is one.
      temperature: words are drawn from softmax(logits / temperature); 0: the likeliest one.
      seed: of the draws.

    Raises:
      MissingDataError: there is no run, or nothing is committed.
      ConfigError: the run learns no texts, the prompt is empty, or a layer is read only where targets say.
    """
    with committed(directory) as run:
        stream = run.phase.stream
        schema = open_source(stream).schema
        if schema.vocabulary is None:
            raise ConfigError(f"{directory}: expected a run that learns texts; found {stream.source}")
        learner = run.learner(schema)
        state = run.state(learner)
    tokenizer = Tokenizer(schema.vocabulary)
    begun = np.array([tokenizer.encode(prompt.strip())], np.int32) if prompt.strip() else np.empty((1, 0))
    written = Generator(learner)(state, begun, words, temperature=temperature, seed=seed)
    return Written(prompt, tokenizer.decode(written[0].tolist()))
