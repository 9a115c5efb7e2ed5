"""Vision Transformers: their arithmetic, and feed-forward parts that grow."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from drawn_batches import drawn, learnt
from lamina.errors import ConfigError
from lamina.learners import Learner, LearnerConfig, Task, build_learner
from lamina.learners.layers import Recall
from lamina.learners.vit import Patches, VisionTransformer
from pydantic import TypeAdapter, ValidationError

parse = TypeAdapter(LearnerConfig).validate_python
B, CLASSES, WIDTH, TOKENS = 3, 3, 8, 5
SMALL = {"kind": "vit", "image": (4, 4, 1), "patch": 2, "width": WIDTH, "heads": 2}
SOFTMAX = {
    "kind": "softmax",
    "temperature": 1.0,
    "value_rate": 0.5,
    "weight_rate": 0.3,
    "memory": {"initial_capacity": 128},
}


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def learner(**options: Any) -> Learner:
    config = parse({**SMALL, "ffn": {"kind": "mlp", "width": 12}, **options})
    return build_learner(config, features=16, task=Task(CLASSES, True), batch_size=B, seed=0)


stream = partial(drawn, (B, 4, 4, 1), CLASSES, np.float32)


def test_patches_are_squares_of_the_image() -> None:
    image = np.arange(6 * 4 * 2).reshape(1, 6, 4, 2)
    patches = Patches(6, 4, 2, 2)
    expected = [
        image[0, row : row + 2, column : column + 2].reshape(-1) for row in (0, 2, 4) for column in (0, 2)
    ]
    assert (patches.count, patches.features) == (6, 8)
    np.testing.assert_array_equal(patches.cut(jax.numpy.asarray(image))[0], expected)
    np.testing.assert_array_equal(patches.cut(jax.numpy.asarray(image.reshape(1, -1)))[0], expected)


def normed(x: np.ndarray, norm: Any) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
    return np.asarray(scaled * norm.scale[...] + norm.bias[...])


def attended(x: np.ndarray, attention: Any) -> np.ndarray:
    """Softmax attention of every token to all, head by head."""
    heads = [
        np.einsum("btd,dhe->bhte", x, map_.kernel[...]) + np.asarray(map_.bias[...])[None, :, None]
        for map_ in (attention.query, attention.key, attention.value)
    ]
    queries, keys, values = heads
    scores = np.exp(np.einsum("bhte,bhse->bhts", queries, keys) / np.sqrt(queries.shape[-1]))
    mixed = np.einsum("bhts,bhse->bthe", scores / scores.sum(axis=-1, keepdims=True), values)
    return np.einsum("bthe,hed->btd", mixed, attention.out.kernel[...]) + np.asarray(attention.out.bias[...])


@pytest.mark.usefixtures("float64")
def test_the_network_is_what_the_paper_describes() -> None:
    """Against the arithmetic in NumPy, in which every token goes through every block (F.11)."""
    vit = learner()
    state, _ = learnt(vit, stream(3))
    network = vit.network(state)
    assert isinstance(network, VisionTransformer)
    x = stream(1, seed=1)[0].x.astype(np.float64)
    embedded = np.asarray(Patches(4, 4, 1, 2).cut(jax.numpy.asarray(x))) @ network.embedding.kernel[...]
    first = np.broadcast_to(network.class_token[...], (B, 1, WIDTH))
    tokens = np.concatenate([first, embedded + network.embedding.bias[...]], axis=1)
    tokens = tokens + network.positions[...]
    for block in network.blocks:
        tokens = tokens + attended(normed(tokens, block.before), block.attention)
        hidden = normed(tokens, block.between) @ np.asarray(block.part.inner.kernel[...])
        tokens = tokens + np.asarray(jax.nn.gelu(hidden)) @ np.asarray(block.part.outer.kernel[...])
    expected = normed(tokens[:, 0], network.last_norm) @ np.asarray(network.readout.kernel[...])
    np.testing.assert_allclose(vit.predict(state, x), expected, rtol=1e-9, atol=1e-10)


def test_growing_parts_store_the_tokens_that_matter_and_all_else_is_trained() -> None:
    vit = learner(ffn=SOFTMAX, optimiser={"kind": "adam", "learning_rate": 0.01})
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(vit.init(jax.random.key(0)).parameters)]
    state, _ = learnt(vit, stream(4))
    assert list(state.memories) == ["block0", "block1"]
    for name, tokens in (("block0", TOKENS), ("block1", 1)):  # of the last block only the class token is read
        database = state.memories[name].database
        origins = database.column("origin")[database.column("created") > 0]
        assert origins.tolist() == np.repeat(np.arange(4 * B), tokens).tolist()
        values = database.column("values")[database.column("created") > 0]
        assert (np.abs(values).max(axis=1) > 0).all()
    after = jax.tree.leaves(state.parameters)
    moved = [not np.array_equal(old, new) for old, new in zip(before, after, strict=True)]
    assert sum(moved) >= len(moved) - 2  # keys' biases cancel in a softmax


@pytest.mark.usefixtures("float64")
def test_a_growing_part_stores_the_gradient_at_its_own_output() -> None:
    """Against finite differences of the loss in what is added to the part's answer."""
    rbf = {"kind": "rbf", "temperature": 1.0, "value_rate": 0.5, "memory": {"initial_capacity": 128}}
    vit = learner(layers={"block0": rbf})
    state, _ = learnt(vit, stream(2))
    [batch] = stream(1, seed=2)
    network, task = vit.network(state), vit.task
    memory = state.memories["block0"]
    databases, tables = {"block0": memory.database}, {"block0": None}
    zeros = np.zeros((B * TOKENS, WIDTH))

    def losses(probe: np.ndarray) -> np.ndarray:
        names = {"block1_inner": (B, 1, 12), "block1_outer": (B, 1, WIDTH), "readout": (B, CLASSES)}
        probes = {name: jax.numpy.zeros(shape) for name, shape in names.items()}
        recall = Recall(databases, tables, {**probes, "block0": jax.numpy.asarray(probe)})
        outputs = network(jax.numpy.asarray(batch.x, float), recall)
        return np.asarray(task.loss(outputs, jax.numpy.asarray(batch.y)))

    slopes = []
    for row, column in ((0, 1), (4, 3), (11, 7)):
        step = zeros.copy()
        step[row, column] = 1e-5
        example = row // TOKENS
        slopes.append(((row, column), (losses(step) - losses(-step))[example] / 2e-5))
    count = int(memory.database.entries)
    state, _ = vit.update(state, batch)
    values = state.memories["block0"].database.column("values")[count:]
    for (row, column), slope in slopes:
        np.testing.assert_allclose(values[row, column], -0.5 * slope, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"layers": {"block7": SOFTMAX}}, "expected names among block0, block1; found 'block7'"),
        ({"ffn": {**SOFTMAX, "blocks": 2}}, "leave out its blocks"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        learner(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"image": (5, 4, 1)}, r"images of 16 numbers; found \[5, 4, 1\]"),
        ({"patch": 3}, "expected a divisor of 4 and 4 pixels; found 3"),
    ],
)
def test_images_of_another_shape_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        learner(**options)


def test_the_shape_of_square_images_is_known() -> None:
    config = parse({"kind": "vit"})
    assert config.patches(3072) == Patches(32, 32, 3, 4)
    assert config.patches(784) == Patches(28, 28, 1, 4)
    with pytest.raises(ConfigError, match="found none, and they are not square: set it"):
        config.patches(50)
