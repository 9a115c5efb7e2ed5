"""Tracing a prediction of a run to the training examples behind it (the paper's "spotlights")."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, MissingDataError
from ..learners import initial_key
from ..memory.explain import Contribution
from ..memory.store import Store
from ..stream import Source, Standardiser, open_source
from .building import learner_of, prepare_jax
from .checkpoint import load_progress, load_state
from .config import parse_config, read_config
from .evaluation import predictions
from .new_folder import CONFIG
from .origin import MEMORY


@dataclass(frozen=True)
class Explanation:
    """One held-out or training example, what was predicted for it, and why."""

    x: np.ndarray  # as the source gives it
    label: Any  # class index, or target
    predicted: Any  # likewise
    classes: tuple[str, ...] | None
    layer: str
    contributions: list[Contribution]
    neighbours: list[tuple[np.ndarray, Any] | None]  # x and y behind each; None for initial entries

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.name(self.label),
            "predicted": self.name(self.predicted),
            "layer": self.layer,
            "contributions": [
                {**vars(each), "label": None if pair is None else self.name(pair[1])}
                for each, pair in zip(self.contributions, self.neighbours, strict=True)
            ],
        }

    def pictures(self, title: str) -> list[tuple[np.ndarray | None, str]]:
        """The example, then what is behind each contribution, with captions, for `draw_examples`."""
        drawn: list[tuple[np.ndarray | None, str]] = [(self.x, f"{title}\n{self.name(self.label)}")]
        for each, pair in zip(self.contributions, self.neighbours, strict=True):
            source = "initial" if pair is None else f"{each.origin}: {self.name(pair[1])}"
            drawn.append((None if pair is None else pair[0], f"{each.share:+.1%}\n{source}"))
        return drawn

    def name(self, y: Any) -> Any:
        """A class's name; a regression's number as it is."""
        if self.classes is not None:
            return self.classes[int(y)]
        return np.asarray(y).tolist()


def explain_example(
    directory: Path, *, split: str, index: int, layer: str = "readout", count: int = 5
) -> Explanation:
    """Explains what a run's last committed memory predicts for one example.

    Args:
      directory: the run's folder; it is only read.
      split: the part of the run's data set that the example is in.
      index: its offset there.
      layer: the growing layer whose entries are asked for; the readout's are measured along the predicted
        class.
      count: how many entries.

    Raises:
      MissingDataError: there is no run, nothing is committed, or the example is beyond the end.
      ConfigError: the run has no such growing layer.
    """
    if not (directory / CONFIG).exists():
        raise MissingDataError(f"{directory}: expected a run's folder with {CONFIG}; there is none")
    config = parse_config(read_config(directory / CONFIG))
    prepare_jax(config)
    stream = config.stream.with_seed(config.seed)
    source = open_source(stream, split=split)
    example = _example(source, index, split)
    learner = learner_of(config, source.schema)
    if layer not in learner.layers:
        raise ConfigError(
            f"{directory}: expected a growing layer among {', '.join(learner.layers) or 'none'}; "
            f"found {layer!r}"
        )
    with Store.open(directory / MEMORY) as store, store.generation() as generation:
        state, _ = load_state(generation, learner, learner.init(initial_key(config.seed)))
        reader = load_progress(generation)["reader"]
    standardiser = Standardiser(stream.standardise, source.schema.x)
    standardiser.restore(reader["standardiser"])
    x = standardiser.apply(example[0][None])
    x = x.reshape(1, -1) if stream.flatten else x
    predicted = predictions(learner.task, learner.predict(state, x))[0]
    along = int(predicted) if learner.task.classification and layer == "readout" else None
    found = learner.explain(state, x[0], layer, count=count, output=along)
    training = open_source(stream)
    neighbours = [
        None if each.origin < 0 else _example(training, each.origin, stream.split) for each in found
    ]
    return Explanation(example[0], example[1], predicted, source.schema.classes, layer, found, neighbours)


def _example(source: Source, index: int, split: str) -> tuple[np.ndarray, Any]:
    length = source.length
    if index < 0 or (length is not None and index >= length):
        raise MissingDataError(
            f"expected an example of {split!r} from 0 to {(length or 0) - 1}; found {index}"
        )
    data = source.read(index, index + 1)
    return data["x"][0], data["y"][0]
