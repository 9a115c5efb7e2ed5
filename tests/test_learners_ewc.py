"""Elastic weight consolidation against its definition, and what it keeps in a run."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import yaml
from flax import nnx
from lamina.learners import Batch, Learner, build_learner
from lamina.learners.ewc import consolidated, elastic
from lamina.learners.layers import Recall
from lamina.learners.losses import Task
from lamina.learners.networks import ResidualMLP
from lamina.learners.parametric import MLPConfig
from tiny_runs import STREAM, TINY, command, contents, write_log

TASK = Task(3, classification=True)


def data(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(count, 4)).astype(np.float32), draw.integers(0, 3, count)


def network() -> ResidualMLP:
    return ResidualMLP(4, 3, 1, 5, "gelu", rngs=nnx.Rngs(0))


def test_importance_is_the_mean_squared_gradient_of_each_example() -> None:
    model, (x, y) = network(), data(40)  # more than are taken at once
    learner = Learner(model, TASK, optax.sgd(0.1))
    state = learner.init(jax.random.key(0))
    graph, parameters = nnx.split(model)

    def loss(parameters: object, row: int) -> jax.Array:
        outputs = nnx.merge(graph, parameters)(jnp.asarray(x[row : row + 1]), Recall({}, {}))
        return -jax.nn.log_softmax(outputs)[0, y[row]]

    one_by_one = [jax.grad(loss)(parameters, row) for row in range(40)]
    expected = jax.tree.map(lambda *gradients: sum(g**2 for g in gradients) / 40, *one_by_one)
    found = learner.squared_gradients(state, x, y)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-8)


def test_a_step_follows_the_pulled_gradient() -> None:
    optimiser = elastic(optax.sgd(0.1), strength=2.0)
    start = {"w": jnp.array([1.0, -1.0])}
    state = optimiser.init(start)
    gradient = {"w": jnp.array([0.5, 0.25])}
    updates, state = optimiser.update(gradient, state, start)
    np.testing.assert_allclose(updates["w"], -0.1 * gradient["w"])  # nothing is important yet
    state = consolidated(state, {"w": jnp.array([2.0, 0.0])}, {"w": jnp.array([3.0, 0.0])})
    state = consolidated(state, {"w": jnp.array([2.0, 1.0])}, {"w": jnp.array([1.0, 0.5])})
    moved = {"w": jnp.array([2.5, 3.0])}
    updates, _ = optimiser.update(gradient, state, moved)
    # F = (4, .5), θ − θ* = (.5, 2): g + 2·F·(θ − θ*) = (.5 + 4, .25 + 2)
    np.testing.assert_allclose(updates["w"], [-0.45, -0.225], rtol=1e-6)


def test_the_anchor_outlives_the_parameters_it_was_taken_from() -> None:
    x, y = data(8)
    config = MLPConfig(kind="mlp", blocks=1, width=5, optimiser="sgd", ewc=1.0)
    learner = build_learner(config, features=4, task=TASK, batch_size=8, seed=0)
    state = learner.init(jax.random.key(0))
    before = [np.array(leaf) for leaf in jax.tree.leaves(state.parameters)]
    for _ in range(2):
        state, _ = learner.update(state, Batch(x, y, np.arange(8)))
    for a, b in zip(before, jax.tree.leaves(state.optimiser.anchor), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_keeps_more_with_it_and_resumes_exactly(tmp_path: Path) -> None:
    phases = {}
    for name, labels in (("low", [0, 1, 2]), ("high", [5, 6, 7])):
        stream = {"only_classes": labels, "limit": 96 if name == "low" else 192}
        phases[name] = {"stream": stream, "log": str(write_log(tmp_path / name, STREAM | stream))}
    results = {}
    for strength in (0.0, 1e4):
        learner = {
            "kind": "mlp",
            "blocks": 1,
            "width": 32,
            "ewc": strength,
            "optimiser": {"kind": "adam", "learning_rate": 0.01},
        }
        values = TINY | {"phases": phases, "learner": learner}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        run = tmp_path / f"run{strength:g}"
        answer = command("run", tmp_path / "config.yaml", "--run-dir", run, "--json").json()
        matrix = answer["summary"]["continual"]["accuracy"]
        results[strength] = matrix[0][0] - matrix[1][0], matrix[1][1]
    assert results[1e4][0] < results[0.0][0] - 0.3  # 0.38 of the accuracy is forgotten, not 0.95
    assert results[1e4][1] <= results[0.0][1]  # and less is learnt
    parts = tmp_path / "parts"
    assert command("run", tmp_path / "config.yaml", "--run-dir", parts, "--steps", 11, "--quiet").code == 0
    for steps in (2, 3, 50):
        assert command("resume", parts, "--steps", steps, "--quiet").code == 0
    assert contents(parts) == contents(tmp_path / "run10000")
