"""The parametric baseline against a training loop written out with optax."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from lamina.learners import Batch, Learner, Task, build_learner
from lamina.learners.losses import cross_entropy, squared_error
from lamina.learners.parametric import MLPConfig

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


def test_predict_before_an_update_is_what_the_update_predicts() -> None:
    learner = mlp("adam")
    state = learner.init(jax.random.key(0))
    for batch in stream(4):
        before = learner.predict(state, batch.x)
        state, result = learner.update(state, batch)
        np.testing.assert_allclose(result.outputs, before, rtol=1e-5, atol=1e-6)
        assert result.changes == {}
    assert learner.compilations == 1
    assert state.step == 4


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
