"""The parametric baseline against a training loop written out with optax."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from lamina.learners import Batch, Learner, Task, build_learner
from lamina.learners.initial import with_initial_entries
from lamina.learners.losses import cross_entropy, squared_error
from lamina.learners.parametric import MLPConfig, ParametricSoftmaxConfig
from lamina.learners.steps import Asked, learnt_of
from lamina.memory.coefficients import block_coefficients
from lamina.memory.database import empty_database
from lamina.memory.kernels import WeightedSoftmax
from lamina.memory.retrieval import retrieve

D, B, WIDTH = 4, 3, 5
CLASSES = Task(outputs=3, classification=True)
OPTIMISERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "rmsprop": optax.rmsprop,
}
ACTIVATIONS = {
    "relu": lambda x: jnp.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "softmax": lambda x: jnp.exp(x) / jnp.sum(jnp.exp(x), axis=-1, keepdims=True),
}


def mlp(optimiser: str, activation: str = "gelu", task: Task = CLASSES, blocks: int = 2) -> Learner:
    config = MLPConfig(
        kind="mlp",
        blocks=blocks,
        width=WIDTH,
        activation=activation,
        optimiser={"kind": optimiser, "learning_rate": 0.01},
    )
    return build_learner(config, features=D, task=task, batch_size=B, seed=3)


def stream(steps: int, targets: int | None = None) -> Iterator[Batch]:
    draw = np.random.default_rng(1)
    for step in range(steps):
        y = draw.integers(0, 3, B) if targets is None else draw.normal(size=(B, targets))
        yield Batch(draw.normal(size=(B, D)), y, np.arange(step * B, step * B + B))


def plain(state: dict, x: jax.Array, activation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """e ← e + W₂·σ(W₁·norm(e)), then a dense readout of norm(e), from the parameters by name."""

    def norm(scale: jax.Array, e: jax.Array) -> jax.Array:
        return scale * e / jnp.sqrt(jnp.mean(e * e, axis=-1, keepdims=True) + 1e-6)

    for number in range(len(state["norms"])):
        hidden = norm(state["norms"][number]["scale"], x) @ state["inner"][number]["kernel"]
        x = x + activation(hidden) @ state["outer"][number]["kernel"]
    return norm(state["final_norm"]["scale"], x) @ state["readout"]["kernel"]


@pytest.mark.parametrize(
    ("optimiser", "activation"),
    [("adam", "gelu"), ("sgd", "relu"), ("adamw", "softmax"), ("rmsprop", "gelu")],
)
def test_the_baseline_is_a_plain_optax_loop(optimiser: str, activation: str) -> None:
    with jax.enable_x64(True):
        learner = mlp(optimiser, activation)
        state = learner.init(jax.random.key(0))
        parameters = jax.tree.map(jnp.array, nnx.to_pure_dict(state.parameters))
        transformation = OPTIMISERS[optimiser](0.01)
        moments = transformation.init(parameters)

        def loss(parameters: dict, batch: Batch) -> tuple[jax.Array, jax.Array]:
            logits = plain(parameters, jnp.asarray(batch.x), ACTIVATIONS[activation])
            return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(B), batch.y]), logits

        @jax.jit
        def step(parameters: dict, moments: optax.OptState, x: jax.Array, y: jax.Array) -> tuple:
            gradients, logits = jax.grad(loss, has_aux=True)(parameters, Batch(x, y, np.arange(B)))
            updates, moments = transformation.update(gradients, moments, parameters)
            return optax.apply_updates(parameters, updates), moments, logits

        for batch in stream(6):
            parameters, moments, logits = step(parameters, moments, batch.x, batch.y)
            state, result = learner.update(state, batch)
            np.testing.assert_allclose(result.outputs, logits, rtol=1e-10, atol=1e-12)
        found = jax.tree.leaves(nnx.to_pure_dict(state.parameters))
        for ours, theirs in zip(found, jax.tree.leaves(parameters), strict=True):
            assert ours.dtype == np.float64
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_step_does_not_hold_all_gradients_at_once(optimiser: str) -> None:
    """New memory of a step: its working memory, and results that take no parameter's place."""
    config = MLPConfig(kind="mlp", blocks=8, matrices=1, optimiser=optimiser)
    learner = build_learner(config, features=256, task=CLASSES, batch_size=16, seed=0)
    state = learner.init(jax.random.key(0))
    asked = Asked(jnp.zeros((16, 256)), jnp.zeros(16, int))
    others = learnt_of(state)._replace(parameters=None)
    program = learner._step.lower(True, state.parameters, state.optimiser, others, {}, asked).compile()
    found = program.memory_analysis()
    new = found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    assert new < 0.7 * sum(weights.nbytes for weights in jax.tree.leaves(state.parameters))


def test_init_starts_from_the_same_weights_again() -> None:
    learner = mlp("sgd", blocks=1)
    batch = next(stream(1))
    first = learner.init(jax.random.key(0))
    _, expected = learner.update(first, batch)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        learner.predict(first, batch.x)
    _, found = learner.update(learner.init(jax.random.key(1)), batch)
    np.testing.assert_array_equal(found.outputs, expected.outputs)


def test_regression_is_trained_too() -> None:
    learner = mlp("adam", task=Task(outputs=2, classification=False), blocks=1)
    state = learner.init(jax.random.key(0))
    [batch] = stream(1, targets=2)
    losses = []
    for _ in range(150):
        state, result = learner.update(state, batch)
        losses.append(float(np.mean(result.losses)))
    assert losses[-1] < 0.1 * losses[0]


# Losses


def test_cross_entropy_of_huge_logits_is_finite() -> None:
    logits = np.float32([[1e6, 0, -1e6], [0, 0, 0]])
    np.testing.assert_allclose(cross_entropy(logits, np.array([2, 1])), [2e6, np.log(3)], rtol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_target_may_come_as_a_vector_or_a_column(shape: tuple[int, ...]) -> None:
    targets = np.arange(4, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(squared_error(jnp.ones((4, 1)), jnp.asarray(targets)), [1, 0, 1, 4])


# Other shapes


def test_a_block_of_one_matrix_adds_its_activated_output() -> None:
    with jax.enable_x64(True):
        config = MLPConfig(kind="mlp", blocks=2, matrices=1, activation="gelu")
        learner = build_learner(config, features=D, task=CLASSES, batch_size=B, seed=3)
        state = learner.init(jax.random.key(0))
        weights = nnx.to_pure_dict(state.parameters)
        assert "outer" not in weights
        x = next(stream(1)).x
        stream_ = jnp.asarray(x)
        for number in range(2):
            normed = stream_ / jnp.sqrt(jnp.mean(stream_**2, axis=-1, keepdims=True) + 1e-6)
            stream_ = stream_ + ACTIVATIONS["gelu"](normed @ weights["inner"][number]["kernel"])
        normed = stream_ / jnp.sqrt(jnp.mean(stream_**2, axis=-1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(
            learner.predict(state, x), normed @ weights["readout"]["kernel"], rtol=1e-10
        )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_parametric_softmax_is_a_database_of_trained_entries(weighted: bool) -> None:
    """What a layer answers after training, retrieved from a database of its keys, values and weights."""
    with jax.enable_x64(True):
        config = ParametricSoftmaxConfig(
            kind="parametric_softmax", blocks=1, entries=7, temperature=1.5, weighted=weighted
        )
        learner = build_learner(config, features=D, task=CLASSES, batch_size=B, seed=3)
        state = learner.init(jax.random.key(0))
        for batch in stream(5):
            state, _ = learner.update(state, batch)
        stream_ = jnp.asarray(batch.x)
        for number, layer in nnx.to_pure_dict(state.parameters)["layers"].items():
            weights = layer["weights"] if weighted else jnp.ones(7)
            database = with_initial_entries(
                empty_database(7, D, layer["values"]["kernel"].shape[1], weighted=True, dtype=jnp.float64),
                layer["keys"]["kernel"].T,
                layer["values"]["kernel"],
                weights,
            )
            blocks = database.blocks
            queries = stream_ / jnp.sqrt(jnp.mean(stream_**2, axis=-1, keepdims=True) + 1e-6)
            coefficients = tuple(block_coefficients(block, None) for block in blocks)
            answer = retrieve(WeightedSoftmax(1.5), blocks, coefficients, queries)
            stream_ = stream_ + answer if number == 0 else answer
        np.testing.assert_allclose(learner.predict(state, batch.x), stream_, rtol=1e-10)
        if weighted:
            assert np.abs(weights - 1 / 7).max() > 1e-4


@pytest.mark.parametrize("weighted", [False, True])
def test_parametric_softmax_entries_start_at_unit_size(weighted: bool) -> None:
    config = ParametricSoftmaxConfig(
        kind="parametric_softmax", entries=4000, temperature=1, weighted=weighted
    )
    learner = build_learner(config, features=D, task=CLASSES, batch_size=B, seed=3)
    layer = nnx.to_pure_dict(learner.init(jax.random.key(0)).parameters)["layers"][0]
    share = 1 / 4000 if weighted else 1.0
    assert float(jnp.std(layer["keys"]["kernel"])) == pytest.approx(1, rel=0.05)
    assert float(jnp.std(layer["values"]["kernel"])) == pytest.approx(share, rel=0.05)
    assert layer["keys"]["kernel"].shape == (D, 4000)
    if weighted:
        np.testing.assert_allclose(layer["weights"], share)


def test_huge_logits_of_a_parametric_softmax_stay_finite() -> None:
    config = ParametricSoftmaxConfig(kind="parametric_softmax", entries=5, temperature=1e-6, weighted=True)
    learner = build_learner(config, features=D, task=CLASSES, batch_size=B, seed=3)
    state = learner.init(jax.random.key(0))
    for batch in stream(3):
        state, result = learner.update(state, batch)
        assert np.isfinite(result.outputs).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.parameters))


def test_a_width_without_a_second_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="width is that of blocks of two matrices"):
        MLPConfig(kind="mlp", matrices=1, width=8)
