"""Networks of named layers, growing and trained ones mixed."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from drawn_batches import drawn, learnt
from lamina.learners import Learner, LearnerConfig, Task, build_learner
from lamina.learners.layered import LayeredNetwork
from pydantic import TypeAdapter, ValidationError
from tiny_runs import command, refused

parse = TypeAdapter(LearnerConfig).validate_python
D, B, CLASSES = 4, 3, 3
RBF = {"kind": "rbf", "temperature": 1.0, "value_rate": 0.4, "memory": {"initial_capacity": 32}}
DENSE = {"kind": "dense"}


def learner(layers: dict[str, Any], **options: Any) -> Learner:
    config = parse({"kind": "mixed", "layers": layers, **options})
    return build_learner(config, features=D, task=Task(CLASSES, True), batch_size=B, seed=0)


stream = partial(drawn, (B, D), CLASSES, np.float32)


def test_growing_layers_alone_are_the_growing_network() -> None:
    named = learner({"first": {**RBF, "blocks": 2}, "last": RBF})
    plain = build_learner(parse({**RBF, "blocks": 2}), features=D, task=named.task, batch_size=B, seed=0)
    assert list(named.layers) == ["first0", "first1", "last"]
    assert not jax.tree.leaves(named.init(jax.random.key(0)).parameters)
    np.testing.assert_array_equal(learnt(named, stream(6))[1], learnt(plain, stream(6))[1])


def test_a_stack_of_trained_layers_is_equation_12() -> None:
    named = learner(
        {"one": {"kind": "dense", "activation": "relu"}, "two": {"kind": "mlp", "width": 5}, "out": DENSE}
    )
    state, _ = learnt(named, stream(3))  # norms have scales that are not 1 by now
    network = named.network(state)
    assert isinstance(network, LayeredNetwork)
    one, two, out = network.layers
    scales = [norm.scale[...] for norm in network.norms]
    x = stream(1, seed=1)[0].x

    def normed(stream: Any, number: int) -> Any:
        return stream / np.sqrt(np.mean(stream**2, axis=1, keepdims=True) + 1e-6) * scales[number]

    middle = x + np.maximum(normed(x, 0) @ one.inner.kernel[...], 0)
    last = middle + jax.nn.gelu(normed(middle, 1) @ two.inner.kernel[...]) @ two.outer.kernel[...]
    expected = normed(last, 2) @ out.inner.kernel[...]
    np.testing.assert_allclose(named.predict(state, x), expected, rtol=1e-4, atol=1e-5)


MIXED: dict[str, Any] = {
    "front": {"kind": "mlp", "width": 5},
    "store": {**RBF, "memory": {"initial_capacity": 32, "capacity": 8, "eviction": "oldest"}},
    "entries": {"kind": "parametric_softmax", "entries": 4, "temperature": 1.0},
    "weighted": {"kind": "softmax", "temperature": 2.0, "value_rate": 0.3, "weight_rate": 0.1},
    "out": DENSE,
}


def test_each_layer_grows_or_is_trained_as_it_says() -> None:
    mixed = learner(MIXED, optimiser={"kind": "adam", "learning_rate": 0.02})
    before = jax.tree.leaves(mixed.init(jax.random.key(0)).parameters)
    state, _ = learnt(mixed, stream(10))
    assert {name: int(memory.database.entries) for name, memory in state.memories.items()} == {
        "store": 8,
        "weighted": B + 10 * B,
    }
    after = jax.tree.leaves(state.parameters)
    assert all(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    mixed.freeze(["store", "parameters"])
    held = [np.asarray(leaf) for leaf in jax.tree.leaves(state.parameters)]
    state, result = mixed.update(state, stream(1, seed=3)[0])
    assert result.changes["store"].tolist() == [0] * 5
    assert int(state.memories["weighted"].database.entries) == B + 11 * B
    for old, new in zip(held, jax.tree.leaves(state.parameters), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [
        ({}, "at least 1 item"),
        ({"a": RBF, "out": {**DENSE, "blocks": 2}}, "the last layer, out, is the readout"),
        ({"a": {**RBF, "blocks": 2}, "a1": RBF, "out": DENSE}, "two would be 'a1': rename one"),
        ({"a": {**DENSE, "temperature": 1.0}, "out": DENSE}, "temperature"),
    ],
)
def test_layers_that_make_no_network_are_refused(layers: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        learner(layers)


def test_a_wrong_name_is_told_with_the_nearest_ones(tmp_path: Path) -> None:
    start = "run", "digits-online", "--run-dir", tmp_path / "run", "--set"
    layers = "learner={kind: mixed, layers: {front: {kind: rfb}, out: {kind: dense}}}"
    refused(command(*start, layers), "learner.layers.front.kind: unknown layer 'rfb'; did you mean rbf")
    layers = "learner={kind: mixed, layers: {front: {kind: mlp, widht: 3}, out: {kind: dense}}}"
    refused(command(*start, layers), "learner.layers.front.widht", "did you mean learner.layers.front.width")
