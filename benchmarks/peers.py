"""Accuracy of one pass beside what an online learner's user would try first: river's, neighbours, ridge.

    python -m benchmarks.peers [--quick] [--json FILE]

All see the digits in the same order, equally scaled, and predict every example before they learn it (river
one at a time, the others 16). Lamina's learners have the rates of the presets. River is in the extra `river`;
without it the output says so.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from lamina.learners import Batch, LearnerConfig, Task, build_learner
from lamina.learners.references import KernelRidgeRegression, NearestNeighbours
from lamina.stream import StreamConfig, open_source
from pydantic import TypeAdapter

from ._harness import command_line, save

BATCH, CLASSES = 16, 10
MEAN, STD = 4.88, 6.02  # of the pixels
EXAMPLES = {"full": 1438, "quick": 400, "tiny": 48}
LEARNERS: dict[str, dict[str, Any]] = {
    "rbf": {"kind": "rbf", "blocks": 1, "temperature": 5, "value_rate": 1},
    "softmax": {"kind": "softmax", "blocks": 1, "temperature": 1, "value_rate": 1, "weight_rate": 0.3},
    "mlp": {"kind": "mlp", "blocks": 1, "optimiser": "adam"},
}
parse = TypeAdapter(LearnerConfig).validate_python
Predictions = Iterator[np.ndarray]  # of every batch, before it is learnt


@dataclass(frozen=True)
class Passed:
    """One learner's pass."""

    accuracy: float  # of predictions before learning
    last_accuracy: float  # of the last quarter of them
    seconds: float  # for everything, compilation included


def main(arguments: list[str] | None = None) -> int:
    """Passes the stream by every learner, prints a table, and optionally writes JSON."""
    options = command_line("peers", __doc__).parse_args(arguments)
    x, y = stream(EXAMPLES[options.size])
    results = {name: vars(passed(make, x, y)) for name, make in learners().items()}
    _print(results)
    save({"examples": len(x), "learners": results}, options.json)
    return 0


def stream(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """The first examples of the shuffled digits: [n, 64] scaled, and [n] labels."""
    source = open_source(StreamConfig(source="digits", shuffle=True).with_seed(0))
    columns = source.read(0, examples)
    x = (columns["x"].reshape(examples, -1).astype(np.float32) - MEAN) / STD
    return x, columns["y"].astype(np.int32)


def learners() -> dict[str, Callable[[np.ndarray, np.ndarray], Predictions]]:
    """By name, what predicts the batches of a stream and learns them."""
    task = Task(CLASSES, classification=True)
    ways: dict[str, Callable[[np.ndarray, np.ndarray], Predictions]] = {}
    for name, values in LEARNERS.items():
        learner = build_learner(parse(values), features=64, task=task, batch_size=BATCH, seed=0)
        ways[f"lamina {name}"] = lambda x, y, learner=learner: _in_batches(learner, x, y)
    ways["10 nearest neighbours"] = lambda x, y: _in_batches(NearestNeighbours(task), x, y)
    ways["kernel ridge, refitted every 10 steps"] = lambda x, y: _in_batches(
        KernelRidgeRegression(task), x, y
    )
    for name, model in _river().items():
        ways[f"river {name}"] = lambda x, y, model=model: _one_by_one(model, x, y)
    return ways


def passed(way: Callable[[np.ndarray, np.ndarray], Predictions], x: np.ndarray, y: np.ndarray) -> Passed:
    """Times a pass."""
    begin = time.perf_counter()
    right = np.concatenate(list(way(x, y))) == y
    seconds = time.perf_counter() - begin
    return Passed(float(right.mean()), float(right[-len(right) // 4 :].mean()), seconds)


def _in_batches(learner: Any, x: np.ndarray, y: np.ndarray) -> Predictions:
    state = learner.init(jax.random.key(0))
    for start in range(0, len(x), BATCH):
        part = slice(start, start + BATCH)
        batch = Batch(x[part], y[part], np.arange(start, start + len(x[part])))
        state, result = learner.update(state, batch)
        yield np.argmax(np.asarray(result.outputs), axis=1)


def _one_by_one(model: Any, x: np.ndarray, y: np.ndarray) -> Predictions:
    for row, label in zip(x, y, strict=True):
        features = {str(number): float(value) for number, value in enumerate(row)}
        predicted = model.predict_one(features)
        model.learn_one(features, int(label))
        yield np.array([-1 if predicted is None else predicted])


def _river() -> dict[str, Any]:
    """River's learners that need no setting; none without river."""
    try:
        from river import forest, linear_model, naive_bayes, neighbors, tree
    except ImportError:
        return {}
    return {
        "softmax regression": linear_model.SoftmaxRegression(),
        "Gaussian naive Bayes": naive_bayes.GaussianNB(),
        "5 nearest neighbours": neighbors.KNNClassifier(),
        "Hoeffding tree": tree.HoeffdingTreeClassifier(),
        "adaptive random forest": forest.ARFClassifier(seed=0),
    }


def _print(results: dict[str, dict[str, float]]) -> None:
    width = max(map(len, results))
    print(f"{'learner':<{width}}  accuracy  last quarter  seconds")
    for name, found in results.items():
        numbers = f"{found['accuracy']:8.3f}  {found['last_accuracy']:12.3f}  {found['seconds']:7.1f}"
        print(f"{name:<{width}}  {numbers}")
    if not any(name.startswith("river") for name in results):
        print("river is missing: pip install -e '.[river]'")


if __name__ == "__main__":
    sys.exit(main())
