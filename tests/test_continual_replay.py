"""Replay: what buffers keep, what is drawn, and what learning from it amounts to."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml
from lamina.continual.past import Past
from lamina.continual.phase_config import ReplayConfig
from lamina.continual.replay import Balanced, Replay, Reservoir
from lamina.continual.spans import Span
from lamina.learners import Batch, build_learner
from lamina.learners.growing_config import RBFConfig
from lamina.learners.losses import Task
from lamina.learners.parametric import MLPConfig
from lamina.memory import Store
from lamina.monitoring import read_predictions
from lamina.stream import StreamConfig, open_source
from lamina.stream.augment import augment_images
from lamina.stream.randomness import generator
from tiny_runs import STREAM, TINY, changed, command, refused, write_log


def test_a_reservoir_keeps_every_example_with_the_same_probability() -> None:
    size, length, trials = 10, 60, 3000
    kept = np.zeros(length)
    for trial in range(trials):
        reservoir, draw = Reservoir(size), generator(trial, "test")
        for origin in range(length):
            reservoir.add(draw, origin, 0)
        assert len(set(reservoir.origins)) == size
        kept[reservoir.origins] += 1
    expected = trials * size / length
    deviation = np.sqrt(expected * (1 - size / length))
    assert np.abs(kept - expected).max() < 4.5 * deviation
    assert np.sum((kept - expected) ** 2 / deviation**2) < length + 4 * np.sqrt(2 * length)


def test_a_balanced_buffer_is_balanced_and_uniform_within_a_class() -> None:
    trials, kept = 1500, np.zeros(100)
    labels = np.where(np.arange(100) < 80, 0, 1)  # 80 of one class, then 20 of another
    for trial in range(trials):
        buffer, draw = Balanced(20), generator(trial, "test")
        for origin, label in enumerate(labels.tolist()):
            buffer.add(draw, origin, label)
        assert np.bincount(buffer.labels).tolist() == [10, 10]
        assert [labels[origin] for origin in buffer.origins] == buffer.labels
        kept[buffer.origins] += 1
    for part, share in ((kept[:80], 10 / 80), (kept[80:], 10 / 20)):
        expected = trials * share
        assert np.abs(part - expected).max() < 5 * np.sqrt(expected)


def test_a_rare_class_stays_whole() -> None:
    buffer = Balanced(9)
    for origin in range(300):
        buffer.add(generator(0, "test", origin), origin, int(origin in (50, 200)))
    assert {50, 200} <= set(buffer.origins)


@pytest.mark.parametrize("kind", ["reservoir", "balanced"])
def test_buffers_go_on_from_where_they_were_saved(kind: str) -> None:
    config = ReplayConfig(kind=kind, examples=3, size=8)
    origins, labels = np.arange(40), np.arange(40) % 3
    whole, part = Replay(1, [config]), Replay(1, [None, config])
    for step in range(10):
        for replay in (whole, part):
            replay.saw(step, origins[step * 4 : step * 4 + 4], labels[step * 4 : step * 4 + 4])
        part = Replay(1, [config], json.loads(json.dumps(part.state())))
        drawn = [replay.draw(config, step, None, None).tolist() for replay in (whole, part)]
        assert drawn[0] == drawn[1]
        assert len(set(drawn[0])) == 3
    assert whole.state() == part.state()
    other = Replay(2, [config])
    other.saw(0, origins, labels)
    assert other.draw(config, 10, None, None).tolist() != whole.draw(config, 10, None, None).tolist()


def test_nothing_is_drawn_before_there_is_enough() -> None:
    config = ReplayConfig(kind="reservoir", examples=5, size=8)
    replay = Replay(0, [config])
    replay.saw(1, np.arange(4), np.zeros(4, np.int32))
    assert len(replay.draw(config, 2, None, None)) == 0
    replay.saw(2, np.arange(4, 5), np.zeros(1, np.int32))
    assert sorted(replay.draw(config, 3, None, None).tolist()) == [0, 1, 2, 3, 4]


def test_an_earlier_phase_comes_again_in_its_order_over_and_over() -> None:
    config = ReplayConfig(kind="phase", phase="one", examples=4, share=0.5)
    replay = Replay(0, [config])
    drawn = [replay.draw(config, step, None, (100, 20)).tolist() for step in range(3)]
    assert drawn == [[100, 101, 102, 103], [104, 105, 106, 107], [108, 109, 100, 101]]
    again = Replay(0, [config], replay.state())
    assert again.draw(config, 4, None, (100, 20)).tolist() == [102, 103, 104, 105]


def test_examples_of_the_past_are_those_that_came_by(tmp_path: Path) -> None:
    plain = StreamConfig(source="digits", seed=2, standardise=STREAM["standardise"], flatten=True)
    cropped = StreamConfig(source="digits", seed=4, augment="cifar", permute=3)
    past = Past([Span(0, "r", "one", plain), Span(1000, "r", "two", cropped)])
    x, y = past.example(1007)
    data = open_source(cropped).read(7, 8)
    np.testing.assert_array_equal(x, augment_images(data["x"], 4, 7)[0])
    assert y == data["y"][0]
    x, y, origins = past.read(np.array([3, 998]), lambda x: x)
    images = open_source(plain).read(0, 1000)
    expected = ((images["x"][[3, 998]] - 4.88) / 6.02).reshape(2, 64)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    np.testing.assert_array_equal(y, images["y"][[3, 998]])
    assert origins.tolist() == [3, 998]


def test_bad_examples_are_not_replayed(tmp_path: Path) -> None:
    x = np.ones((4, 3), np.float32)
    x[2, 1] = np.nan
    np.savez(tmp_path / "bad.npz", x_train=x, y_train=np.arange(4) % 2)
    stream = StreamConfig(source=f"npz:{tmp_path / 'bad.npz'}", shuffle=False)
    _, _, origins = Past([Span(10, "r", "one", stream)]).read(np.array([11, 12, 13]), lambda x: x)
    assert origins.tolist() == [11, 13]


# The weight


def _data(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(count, 4)).astype(np.float32), draw.integers(0, 3, count)


def test_a_weight_scales_what_a_growing_layer_stores() -> None:
    x, y = _data(5)
    rbf = RBFConfig(kind="rbf", blocks=1, temperature=1, value_rate=1)
    learner = build_learner(rbf, features=4, task=Task(3, True), batch_size=5, seed=0)
    batch, weights = Batch(x, y, np.arange(5)), np.array([1, 1, 1, 0.25, 2])
    values = []
    for given in (None, weights):
        state, result = learner.update(learner.init(jax.random.key(0)), batch, given)
        values.append(state.memories["readout"].database.column("values")[:5])
    np.testing.assert_allclose(values[1], values[0] * weights[:, None], rtol=1e-6)
    assert result.losses.shape == (5,)


def test_a_weight_of_two_trains_like_having_the_example_twice() -> None:
    x, y = _data(4)
    mlp = MLPConfig(kind="mlp", blocks=1, width=8, optimiser="sgd")
    learner = build_learner(mlp, features=4, task=Task(3, True), batch_size=5, seed=0)
    twice = [0, 1, 2, 3, 3]
    start = learner.init(jax.random.key(0))
    one, _ = learner.update(start, Batch(x, y, np.arange(4)), np.array([1.0, 1.0, 1.0, 2.0]))
    two, _ = learner.update(learner.init(jax.random.key(0)), Batch(x[twice], y[twice], np.arange(5)))
    for a, b in zip(jax.tree.leaves(one.parameters), jax.tree.leaves(two.parameters), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


# In runs


def run(
    path: Path, replay: dict[str, Any] | None, learner: dict[str, Any] = TINY["learner"]
) -> dict[str, Any]:
    stream = STREAM | {"limit": 48, "only_classes": [5, 6, 7]}
    if not (path / "first").exists():
        write_log(path / "first", STREAM | {"only_classes": [0, 1, 2]})
        write_log(path / "second", stream)
    phases = {
        "first": {"stream": {"only_classes": [0, 1, 2]}, "log": str(path / "first")},
        "second": {"stream": {"limit": 48, "only_classes": [5, 6, 7]}, "log": str(path / "second")},
    }
    if replay is not None:
        phases["second"]["replay"] = replay
    values = changed(TINY, {"phases": phases, "evaluation": {"examples": None}}) | {"learner": learner}
    name = f"run{len(list(path.iterdir()))}"
    (path / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    answer = command("run", path / f"{name}.yaml", "--run-dir", path / name, "--json")
    return answer.json() | {"path": path / name}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay")


@pytest.fixture(scope="module")
def forgetful(folder: Path) -> float:
    """What is left of the first phase without replay."""
    return run(folder, None)["summary"]["continual"]["accuracy"][1][0]


REPLAYS = {
    "reservoir": {"kind": "reservoir", "examples": 8, "size": 40},
    "balanced": {"kind": "balanced", "examples": 8, "size": 40},
    "memory": {"kind": "memory", "examples": 8},
    "phase": {"kind": "phase", "phase": "first", "examples": 8, "share": 0.5},
}


@pytest.mark.parametrize("kind", REPLAYS)
def test_replay_keeps_what_would_be_forgotten(kind: str, folder: Path, forgetful: float) -> None:
    found = run(folder, REPLAYS[kind])
    assert found["summary"]["continual"]["accuracy"][1][0] > forgetful + 0.2  # above 0.91, not 0.64
    assert (found["examples"], found["steps"]) == (144, 18)  # replayed ones are not counted
    predictions = read_predictions(found["path"])
    assert predictions["origin"].tolist() == list(range(144))
    assert set(predictions["label"][96:].tolist()) == {5, 6, 7}
    with Store.open(found["path"] / "memory") as store, store.generation() as generation:
        origins = generation.tables["readout"].read("origin")
        created = generation.tables["readout"].read("created")
    assert len(origins) == 96 + 6 * 16  # each replayed example is an entry more
    again = origins[created > 12].reshape(6, 16)[:, 8:]
    assert again.min() >= 0
    if kind == "phase":
        assert again.ravel().tolist() == list(range(48))
    if kind == "reservoir":
        assert again.max() >= 96  # what the second phase brought may be replayed too


def test_a_parametric_learner_replays_too(folder: Path) -> None:
    mlp = {"kind": "mlp", "blocks": 1, "width": 32, "optimiser": {"kind": "adam", "learning_rate": 0.01}}
    results = [
        run(folder, replay, mlp)["summary"]["continual"]["accuracy"][1][0]
        for replay in (None, REPLAYS["reservoir"])
    ]
    assert results[1] > results[0] + 0.05  # 0.97 against 0.87


def test_memory_replay_needs_a_memory(folder: Path, tmp_path: Path) -> None:
    stream = {"stream": {"only_classes": [0, 1, 2]}, "log": str(folder / "first")}
    phases = {"first": {**stream, "replay": REPLAYS["memory"]}}
    values = changed(TINY, {"phases": phases}) | {"learner": {"kind": "mlp"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    refused(
        command("run", tmp_path / "config.yaml", "--run-dir", tmp_path / "run", "--quiet"),
        "replay.kind 'memory'",
        "without any",
    )
