"""Tracing a prediction of a run to the training examples behind it (the paper's "spotlights")."""

from collections.abc import Callable
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
from .new_folder import require_run
from .origin import MEMORY
from .past import Past
from .progress import Progress
from .run_config import Phase, RunConfig, phases_of
from .spans import Span, locate


@dataclass(frozen=True)
class Neighbour:
    """The training example behind an entry."""

    x: np.ndarray  # as its stream had it
    y: Any  # class index, or target
    span: Span  # the phase's stream it came by in
    offset: int  # where in it

    @property
    def place(self) -> str:
        """Phase and offset."""
        return f"{self.span.phase} {self.offset:,}"

    def values(self, name: Callable[[Any], Any]) -> dict[str, Any]:
        """Plain values for JSON; `name` gives a target's name."""
        return {
            "label": name(self.y),
            "run": self.span.run,
            "phase": self.span.phase,
            "offset": self.offset,
            "source": self.span.stream.source,
        }


@dataclass(frozen=True)
class Explanation:
    """One held-out or training example, what was predicted for it, and why."""

    x: np.ndarray  # as the source gives it
    label: Any  # class index, or target
    predicted: Any  # likewise
    classes: tuple[str, ...] | None
    layer: str
    contributions: list[Contribution]
    neighbours: list["Neighbour | None"]  # the example behind each; None for initial entries

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.name(self.label),
            "predicted": self.name(self.predicted),
            "layer": self.layer,
            "contributions": [
                {**vars(each), **({"label": None} if found is None else found.values(self.name))}
                for each, found in zip(self.contributions, self.neighbours, strict=True)
            ],
        }

    def pictures(self, title: str) -> list[tuple[np.ndarray | None, str]]:
        """The example, then what is behind each contribution, with captions, for `draw_examples`."""
        drawn: list[tuple[np.ndarray | None, str]] = [(self.x, f"{title}\n{self.name(self.label)}")]
        for each, found in zip(self.contributions, self.neighbours, strict=True):
            source = "initial" if found is None else f"{found.place}: {self.name(found.y)}"
            drawn.append((None if found is None else found.x, f"{each.share:+.1%}\n{source}"))
        return drawn

    def name(self, y: Any) -> Any:
        """A class's name; a regression's number as it is."""
        if self.classes is not None:
            return self.classes[int(y)]
        return np.asarray(y).tolist()


def explain_example(
    directory: Path,
    *,
    split: str,
    index: int,
    layer: str = "readout",
    count: int = 5,
    phase: str | None = None,
) -> Explanation:
    """Explains what a run's last committed memory predicts for one example.

    Args:
      directory: the run's folder; it is only read.
      split: the part of a phase's data set that the example is in.
      index: its offset there.
      layer: the growing layer whose entries are asked for; the readout's are measured along the predicted
        class.
      count: how many entries.
      phase: whose data set; None: that of the phase that the run is in.

    Raises:
      MissingDataError: there is no run, nothing is committed, or the example is beyond the end.
      ConfigError: the run has no such phase or growing layer.
    """
    config = parse_config(read_config(require_run(directory)))
    prepare_jax(config)
    with Store.open(directory / MEMORY) as store, store.generation() as generation:
        saved = load_progress(generation)
        progress = Progress.from_json(saved["run"])
        present = phases_of(config)[progress.number]
        stream = _phase(config, phase or present.name).stream
        source = open_source(stream, split=split)
        example = _example(source, index, split)
        learner = learner_of(config, present, source.schema)
        if not learner.layers:
            raise ConfigError(
                f"{directory}: its learner has no growing layers, hence no entries to explain with"
            )
        if layer not in learner.layers:
            raise ConfigError(
                f"{directory}: expected a growing layer among {', '.join(learner.layers)}; found {layer!r}"
            )
        state, _ = load_state(generation, learner, learner.init(initial_key(config.seed)))
    running = Standardiser(stream.standardise, source.schema.x)
    running.restore(saved["reader"]["standardiser"])
    x = running.apply(example[0][None])
    x = x.reshape(1, -1) if stream.flatten else x
    predicted = predictions(learner.task, learner.predict(state, x))[0]
    along = int(predicted) if learner.task.classification and layer == "readout" else None
    found = learner.explain(state, x[0], layer, count=count, output=along)
    past = Past(progress.spans or (Span(0, config.name, present.name, present.stream),))
    neighbours = [None if each.origin < 0 else _neighbour(past, each.origin) for each in found]
    return Explanation(example[0], example[1], predicted, source.schema.classes, layer, found, neighbours)


def _phase(config: RunConfig, name: str) -> Phase:
    phases = {phase.name: phase for phase in phases_of(config)}
    if name not in phases:
        raise ConfigError(f"--phase: expected one of {', '.join(phases)}; found {name!r}")
    return phases[name]


def _neighbour(past: Past, origin: int) -> Neighbour:
    span, offset = locate(past.spans, origin)
    return Neighbour(*past.example(origin), span, offset)


def _example(source: Source, index: int, split: str) -> tuple[np.ndarray, Any]:
    length = source.length
    if index < 0 or (length is not None and index >= length):
        raise MissingDataError(
            f"expected an example of {split!r} from 0 to {(length or 0) - 1}; found {index}"
        )
    data = source.read(index, index + 1)
    return data["x"][0], data["y"][0]
