"""Tracing a prediction of a run to the training examples behind it (the paper's "spotlights")."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, MissingDataError
from ..learners import Learner
from ..memory.explain import Contribution
from ..stream import Source, Standardiser, open_source
from .committed import committed
from .past import Past
from .run_config import Phase, RunConfig, phases_of
from .scores import predictions
from .spans import Span, locate
from .text_names import Names


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

    def values(self, label: Any) -> dict[str, Any]:
        """Plain values for JSON; `label` is what its target is called."""
        return {
            "label": label,
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
    names: Names  # of targets, and of texts
    layer: str
    contributions: list[Contribution]
    neighbours: list["Neighbour | None"]  # the example behind each; None for initial entries
    token: int | None = None  # of a text, the one whose next word is explained

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.name(self.label),
            "predicted": self.name(self.predicted),
            "layer": self.layer,
            **({} if self.token is None else {"token": self.token, "text": self.names.text(self.x)}),
            "contributions": [
                {**vars(each), **({"label": None} if found is None else found.values(self.behind(found)))}
                for each, found in zip(self.contributions, self.neighbours, strict=True)
            ],
        }

    def pictures(self, title: str) -> list[tuple[np.ndarray | None, str]]:
        """The example, then what is behind each contribution, with captions, for `draw_examples`."""
        image = self.x if self.token is None else None
        drawn: list[tuple[np.ndarray | None, str]] = [(image, f"{title}\n{self.name(self.label)}")]
        for each, found in zip(self.contributions, self.neighbours, strict=True):
            source = "initial" if found is None else f"{found.place}: {self.behind(found)}"
            image = None if found is None or self.token is not None else found.x
            drawn.append((image, f"{each.share:+.1%}\n{source}"))
        return drawn

    def name(self, y: Any) -> Any:
        """A class's name, or a word; a regression's number as it is."""
        return self.names.target(y)

    def behind(self, neighbour: Neighbour) -> Any:
        """What the target of an example behind an entry is called; of a text, the text itself."""
        return self.text(neighbour.x) or self.name(neighbour.y)

    def text(self, x: np.ndarray) -> str | None:
        """An example's text; None if it is none."""
        return None if self.token is None else self.names.text(x)


def explain_example(
    directory: Path,
    *,
    split: str,
    index: int,
    layer: str | None = None,
    count: int = 5,
    phase: str | None = None,
    token: int | None = None,
) -> Explanation:
    """Explains what a run's last committed memory predicts for one example.

    Args:
      directory: the run's folder; it is only read.
      split: the part of a phase's data set that the example is in.
      index: its offset there.
      layer: the growing layer whose entries are asked for; the readout's are measured along the predicted
        class. None: the readout, or where that does not grow the last layer that does.
      count: how many entries.
      phase: whose data set; None: that of the phase that the run is in.
      token: of a text, the one whose next word is explained; None: the first one that a value follows.

    Raises:
      MissingDataError: there is no run, nothing is committed, or the example is beyond the end.
      ConfigError: the run has no such phase or growing layer, or the layer is not read at the token.
    """
    with committed(directory) as run:
        present = run.phase
        stream = _phase(run.config, phase or present.name).stream
        source = open_source(stream, split=split)
        example = _example(source, index, split)
        learner = run.learner(source.schema)
        if not learner.layers:
            raise ConfigError(
                f"{directory}: its learner has no growing layers, hence no entries to explain with"
            )
        layer = _layer(directory, learner, layer)
        state = run.state(learner)
    running = Standardiser(stream.standardise, source.schema.x)
    running.restore(run.saved["reader"]["standardiser"])
    x = running.apply(example[0][None])
    x = x.reshape(1, -1) if stream.flatten else x
    answered, _ = learner.answer(state, x, example[1][None])
    predicted, label = predictions(learner.task, answered)[0], example[1]
    if learner.task.language:
        token = _first_value(label) if token is None else token
        _require_token(token, label)
        predicted, label = predicted[token], label[token, 0]
    along = int(predicted) if learner.task.classification and layer == "readout" else None
    found = learner.explain(state, x[0], layer, count=count, output=along, y=example[1], token=token or 0)
    past = Past(run.progress.spans or (Span(0, run.config.name, present.name, present.stream),))
    neighbours = [None if each.origin < 0 else _neighbour(past, each.origin) for each in found]
    token = token if learner.task.language else None
    return Explanation(example[0], label, predicted, Names(source.schema), layer, found, neighbours, token)


def _phase(config: RunConfig, name: str) -> Phase:
    phases = {phase.name: phase for phase in phases_of(config)}
    if name not in phases:
        raise ConfigError(f"--phase: expected one of {', '.join(phases)}; found {name!r}")
    return phases[name]


def _layer(directory: Path, learner: Learner, layer: str | None) -> str:
    if layer is None:
        return "readout" if "readout" in learner.layers else list(learner.layers)[-1]
    if layer not in learner.layers:
        raise ConfigError(
            f"{directory}: expected a growing layer among {', '.join(learner.layers)}; found {layer!r}"
        )
    return layer


def _first_value(y: np.ndarray) -> int:
    return int(np.argmax(y[:, 1] >= 0))


def _require_token(token: int, y: np.ndarray) -> None:
    known = np.flatnonzero(y[:, 0] >= 0)
    if token not in known:
        raise ConfigError(
            f"--token: expected a token that a word follows, from 0 to {known[-1]}; found {token}"
        )


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
