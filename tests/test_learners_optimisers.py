"""Optimisers of dense layers against the paper's equations written out slowly, and inside a learner."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from lamina.continual.checkpoint import load, save
from lamina.learners import Batch, Learner, Task
from lamina.learners.delta import delta
from lamina.learners.dense import for_dense_layers
from lamina.learners.mesa import mesa, newton_schulz_inverse, scale_by_mesa
from lamina.learners.networks import ResidualMLP
from lamina.learners.optimisers import (
    OPTIMISERS,
    PLAIN,
    MesaConfig,
    Optimiser,
    OptimiserConfig,
    build_optimiser,
)
from lamina.learners.parametric import MLPConfig, ParametricSoftmaxConfig, build_parametric
from pydantic import TypeAdapter

D, F, B, STEPS = 5, 3, 6, 7
ETA, LAMBDA = 0.3, 0.05
parse = TypeAdapter(OptimiserConfig).validate_python


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def stream(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs [B, D] and output gradients [B, F] of each step."""
    draw = np.random.default_rng(seed)
    return [(draw.normal(size=(B, D)), draw.normal(size=(B, F)) / B) for _ in range(STEPS)]


def start() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(D, F))


def replay(optimiser: optax.GradientTransformation, steps: Any = None) -> list[np.ndarray]:
    """The weights [D, F] after each step."""
    weights = jnp.asarray(start())
    state, found = optimiser.init(weights), []
    for x, g in stream() if steps is None else steps:
        gradient = x.reshape(-1, D).T @ g.reshape(-1, F)
        updates, state = optimiser.update(
            jnp.asarray(gradient), state, weights, inputs=jnp.asarray(x), output_gradients=jnp.asarray(g)
        )
        weights = weights + updates
        found.append(np.asarray(weights))
    return found


def assert_close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


# Mesa


@pytest.mark.parametrize("forgetting", [0.0, 0.9, 1.0])
def test_cumulative_mesa_is_equations_119_to_121(forgetting: float) -> None:
    weights, mass, moment, expected = start().T, 0.0, np.zeros((D, D)), []  # W is [F, D] in the paper
    for x, g in stream():
        new = forgetting * mass + 1
        moment = forgetting * mass / new * moment + x.T @ x / (B * D * new)
        mass = new
        weights = weights - ETA * (g.T @ x) @ np.linalg.inv(moment + LAMBDA * np.eye(D))
        expected.append(weights.T)
    assert_close(replay(mesa(ETA, forgetting, LAMBDA)), expected)


@pytest.mark.parametrize("forgetting", [0.0, 0.9, 1.0])
def test_static_mesa_is_foof(forgetting: float) -> None:
    """E.4.1 with Φ₀ = λI."""
    weights, phi, expected = start().T, LAMBDA * np.eye(D), []
    for x, g in stream():
        phi = forgetting * phi + x.T @ x + LAMBDA * (1 - forgetting) * np.eye(D)
        weights = weights - ETA * (g.T @ x) @ np.linalg.inv(phi)
        expected.append(weights.T)
    assert_close(replay(mesa(ETA, forgetting, LAMBDA, form="static")), expected)


@pytest.mark.parametrize("forgetting", [0.8, 1.0])
def test_static_mesa_solves_the_regularised_least_squares(forgetting: float) -> None:
    """Every step's weights minimise Eq. 104 over all steps so far; the centre is a mean of past weights."""
    targets, inputs, factors = np.empty((0, F)), np.empty((0, D)), np.empty(0)
    weights, centre = start(), start()
    for (x, g), found in zip(stream(), replay(mesa(ETA, forgetting, LAMBDA, form="static")), strict=True):
        factors = np.append(factors * forgetting, np.ones(B))
        inputs, targets = np.vstack([inputs, x]), np.vstack([targets, x @ weights - ETA * g])
        centre = forgetting * centre + (1 - forgetting) * weights
        root = np.sqrt(factors)[:, None]
        rows = np.vstack([root * inputs, np.sqrt(LAMBDA) * np.eye(D)])
        weights = np.linalg.lstsq(rows, np.vstack([root * targets, np.sqrt(LAMBDA) * centre]))[0]
        assert_close(found, weights, 1e-9)


@pytest.mark.parametrize("form", ["cumulative", "static"])
def test_a_huge_regularisation_at_a_fixed_ratio_is_sgd(form: Any) -> None:
    ratio = 0.2
    errors = []
    for strength in (1e3, 1e6):
        found = replay(mesa(ratio * strength, 0.9, strength, form=form))
        errors.append(np.abs(found[-1] - replay(optax.sgd(ratio))[-1]).max())
    assert errors[1] < 1e-4
    assert errors[1] == pytest.approx(errors[0] / 1e3, rel=0.1)  # the deviation is of first order in 1/λ


def test_tokens_count_as_examples() -> None:
    """Inputs [B, T, D] are rows like any other."""
    steps = [(x.reshape(2, 3, D), g.reshape(2, 3, F)) for x, g in stream()]
    for optimiser in (mesa(ETA, 0.9, LAMBDA), delta(ETA, LAMBDA, "everything")):
        assert_close(replay(optimiser, steps), replay(optimiser))


def test_newton_schulz_converges_to_the_inverse() -> None:
    x = np.random.default_rng(2).normal(size=(20, D)) * np.geomspace(0.1, 3, D)
    matrix = jnp.asarray(x.T @ x / 20 + LAMBDA * np.eye(D))
    exact = np.linalg.inv(matrix)
    errors = [
        np.abs(newton_schulz_inverse(matrix, count) @ matrix - np.eye(D)).max() for count in range(1, 15)
    ]
    assert all(late <= early * 1.001 + 1e-12 for early, late in pairwise(errors))
    assert errors[3] > 0.1
    assert_close(newton_schulz_inverse(matrix, 30), exact)
    # Along an eigenvector of value a the residual is (1 − a/c)^(2^n).
    diagonal = jnp.diag(jnp.asarray([4.0, 1.0]))
    found = newton_schulz_inverse(diagonal, 3)
    assert_close(found, np.diag([0.25, 1 - (1 - 1 / 4.0) ** 8]))


def test_mesa_by_newton_schulz_approaches_the_exact_solve() -> None:
    exact = replay(mesa(ETA, 0.9, LAMBDA))
    found = [replay(mesa(ETA, 0.9, LAMBDA, newton_schulz=count)) for count in (2, 5, 10)]
    errors = [np.abs(f[-1] - exact[-1]).max() for f in found]
    assert errors[0] > errors[1] > 100 * errors[2]
    assert_close(replay(mesa(ETA, 0.9, LAMBDA, newton_schulz=30)), exact)


@pytest.mark.parametrize("adam", [False, True])
def test_momentum_and_adam_act_on_whitened_gradients(adam: bool) -> None:
    whiten = scale_by_mesa(0.9, LAMBDA)
    weights, state = start(), whiten.init(jnp.asarray(start()))
    first, second, expected = np.zeros((D, F)), np.zeros((D, F)), []
    for step, (x, g) in enumerate(stream(), 1):
        white, state = whiten.update(jnp.asarray(x.T @ g), state, inputs=jnp.asarray(x))
        white = np.asarray(white)
        if adam:
            first, second = 0.85 * first + 0.15 * white, 0.999 * second + 0.001 * white**2
            moved = first / (1 - 0.85**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        else:
            first = moved = 0.85 * first + white
        weights = weights - 0.01 * moved
        expected.append(weights)
    assert_close(replay(mesa(0.01, 0.9, LAMBDA, momentum=0.85, adam=adam)), expected)


# Delta


def test_delta_is_equation_122() -> None:
    schedule = optax.linear_schedule(0.2, 0.05, STEPS)
    weights, expected = start().T, []
    for step, (x, g) in enumerate(stream()):
        rate = float(schedule(jnp.int32(step)))
        weights = weights @ (np.eye(D) - LAMBDA * rate * x.T @ x) - rate * g.T @ x
        expected.append(weights.T)
    assert_close(replay(delta(schedule, LAMBDA)), expected)


def test_one_example_at_a_time_delta_is_equation_103() -> None:
    strength, size = 0.03, 0.4
    steps = [(x[:1], g[:1]) for x, g in stream()]
    weights, expected = start().T, []
    for x, g in steps:
        weights = weights + strength * np.outer(-size * g[0] - weights @ x[0], x[0])
        expected.append(weights.T)
    assert_close(replay(delta(strength * size, 1 / size), steps), expected)


def test_a_normalised_decay_forgets_by_the_direction_of_inputs_alone() -> None:
    weights, expected = start().T, []
    for x, g in stream():
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        weights = weights @ (np.eye(D) - LAMBDA * ETA * unit.T @ unit) - ETA * g.T @ x
        expected.append(weights.T)
    assert_close(replay(delta(ETA, LAMBDA, "decay")), expected)


def test_a_normalised_rule_of_full_strength_writes_what_it_is_told() -> None:
    """Eq. 103 with write strength 1/‖x‖²: the layer then answers −ε·g to that input, whatever it did."""
    size = 0.4
    steps = [(x[:1], g[:1]) for x, g in stream()]
    for (x, g), weights in zip(steps, replay(delta(size, 1 / size, "everything"), steps), strict=True):
        assert_close(x @ weights, -size * g)


@pytest.mark.parametrize("normalised", ["nothing", "decay", "everything"])
def test_an_input_of_zeros_changes_nothing(normalised: Any) -> None:
    steps = [(np.zeros((B, D)), g) for _, g in stream()]
    np.testing.assert_array_equal(replay(delta(ETA, LAMBDA, normalised), steps)[-1], start())


def test_delta_needs_the_parameters() -> None:
    optimiser = delta(ETA, LAMBDA)
    gradient = jnp.zeros((D, F))
    with pytest.raises(ValueError, match="expected parameters"):
        optimiser.update(gradient, optimiser.init(gradient), inputs=gradient, output_gradients=gradient)


# In a learner

CLASSES = Task(3, classification=True)
NETWORKS: dict[str, MLPConfig | ParametricSoftmaxConfig] = {
    "two matrices": MLPConfig(kind="mlp", blocks=2, width=4),
    "one matrix": MLPConfig(kind="mlp", blocks=2, matrices=1, activation="relu"),
    "softmax": ParametricSoftmaxConfig(
        kind="parametric_softmax", blocks=1, entries=7, temperature=1.5, weighted=True
    ),
}


def network(name: str) -> Any:
    return nnx.merge(*_split(NETWORKS[name]))


def _split(config: Any) -> tuple[Any, Any]:
    learner = build_parametric(config, features=D, task=CLASSES, seed=3)
    return learner._graph, learner._parameters


def batches(count: int = 5) -> list[Batch]:
    draw = np.random.default_rng(7)
    return [
        Batch(draw.normal(size=(B, D)), draw.integers(0, 3, B), np.arange(B) + B * step)
        for step in range(count)
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_signals_are_the_factors_of_every_weight_gradient(name: str) -> None:
    learner = Learner(network(name), CLASSES, optax.sgd(1.0))
    state = learner.init(jax.random.key(0))
    for batch in batches(2):
        before = jax.tree.map(np.asarray, nnx.to_pure_dict(state.parameters))
        state, result = learner.update(state, batch)
        after = jax.tree.map(np.asarray, nnx.to_pure_dict(state.parameters))
        kernels = [
            path for path, _ in jax.tree_util.tree_leaves_with_path(before) if path[-1].key == "kernel"
        ]
        assert len(result.dense) == len(kernels)
        changes = [_at(before, path) - _at(after, path) for path in kernels]
        products = [s.inputs.T @ s.output_gradients for s in result.dense.values()]
        for product in products:
            assert any(c.shape == product.shape and np.allclose(c, product, atol=1e-12) for c in changes)
    names = {
        "two matrices": ["block0_inner", "block0_outer", "block1_inner", "block1_outer", "readout"],
        "one matrix": ["block0", "block1", "readout"],
        "softmax": ["block0_keys", "block0_values", "readout_keys", "readout_values"],
    }
    assert sorted(result.dense) == names[name]


def _at(tree: Any, path: Any) -> Any:
    for key in path:
        tree = tree[key.key]
    return tree


def test_a_learner_trains_dense_layers_by_mesa_and_scales_by_adam() -> None:
    model = network("two matrices")
    learner = Learner(model, CLASSES, for_dense_layers(model, mesa(0.1, 0.9, 0.05), optax.adam(0.02)))
    state = learner.init(jax.random.key(0))
    weights = jax.tree.map(jnp.array, nnx.to_pure_dict(state.parameters))
    scales = {"norms": weights.pop("norms"), "final_norm": weights.pop("final_norm")}
    adam = optax.adam(0.02)
    moments = adam.init(scales)
    mass, seconds = 0.0, jax.tree.map(lambda w: np.zeros((w.shape[0], w.shape[0])), weights)

    def forward(weights: Any, scales: Any, x: jax.Array) -> tuple[jax.Array, Any]:
        def norm(scale: jax.Array, e: jax.Array) -> jax.Array:
            return scale * e / jnp.sqrt(jnp.mean(e * e, axis=-1, keepdims=True) + 1e-6)

        given: Any = {"inner": {}, "outer": {}}
        for n in range(2):
            given["inner"][n] = {"kernel": norm(scales["norms"][n]["scale"], x)}
            hidden = jax.nn.gelu(given["inner"][n]["kernel"] @ weights["inner"][n]["kernel"])
            given["outer"][n] = {"kernel": hidden}
            x = x + hidden @ weights["outer"][n]["kernel"]
        given["readout"] = {"kernel": norm(scales["final_norm"]["scale"], x)}
        return given["readout"]["kernel"] @ weights["readout"]["kernel"], given

    def loss(weights: Any, scales: Any, batch: Batch) -> tuple[jax.Array, Any]:
        logits, given = forward(weights, scales, jnp.asarray(batch.x))
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(B), batch.y]), (logits, given)

    for batch in batches():
        gradients, (logits, given) = jax.grad(loss, argnums=(0, 1), has_aux=True)(weights, scales, batch)
        mass, old = 0.9 * mass + 1, mass
        seconds = jax.tree.map(
            lambda s, x, old=old, mass=mass: 0.9 * old / mass * s + x.T @ x / (x.size * mass), seconds, given
        )
        weights = jax.tree.map(
            lambda w, g, s: w - 0.1 * np.linalg.inv(s + 0.05 * np.eye(len(s))) @ g,
            weights,
            gradients[0],
            seconds,
        )
        updates, moments = adam.update(gradients[1], moments, scales)
        scales = optax.apply_updates(scales, updates)
        state, result = learner.update(state, batch)
        assert_close(result.outputs, logits)
    assert_close(learner.predict(state, batch.x), forward(weights, scales, jnp.asarray(batch.x))[0])


# Configurations

PARAMETERS = {"kernel": np.random.default_rng(3).normal(size=(D, F)), "scale": np.ones(4)}
CONFIGURED: list[tuple[Any, optax.GradientTransformation]] = [
    ("sgd", optax.sgd(1e-3)),
    ({"kind": "sgd", "learning_rate": 0.1, "momentum": 0.8}, optax.sgd(0.1, 0.8)),
    ({"kind": "sgd", "momentum": 0.8, "nesterov": True}, optax.sgd(1e-3, 0.8, nesterov=True)),
    (
        {"kind": "sgd", "learning_rate": 0.1, "weight_decay": 0.3},
        optax.chain(optax.add_decayed_weights(0.3), optax.sgd(0.1)),
    ),
    ("rmsprop", optax.rmsprop(1e-3)),
    (
        {"kind": "rmsprop", "learning_rate": 0.1, "smoothing": 0.5, "momentum": 0.3},
        optax.rmsprop(0.1, 0.5, momentum=0.3),
    ),
    ("adam", optax.adam(1e-3)),
    ({"kind": "adam", "learning_rate": 0.1, "b1": 0.5, "b2": 0.6}, optax.adam(0.1, 0.5, 0.6)),
    ("adamw", optax.adamw(1e-3)),
    (
        {"kind": "adamw", "learning_rate": 0.1, "b1": 0.5, "b2": 0.6, "weight_decay": 0.3},
        optax.adamw(0.1, 0.5, 0.6, weight_decay=0.3),
    ),
    ("muon", optax.contrib.muon(1e-3)),
    (
        {"kind": "muon", "learning_rate": 0.1, "momentum": 0.5, "iterations": 3, "weight_decay": 0.2},
        optax.contrib.muon(0.1, beta=0.5, ns_steps=3, weight_decay=0.2),
    ),
]


@pytest.mark.parametrize(("values", "expected"), CONFIGURED, ids=[str(v) for v, _ in CONFIGURED])
def test_a_plain_optimiser_is_optax_own(values: Any, expected: optax.GradientTransformation) -> None:
    found = build_optimiser(parse(values), nnx.Module())
    results = []
    for optimiser in (found, expected):
        parameters = jax.tree.map(jnp.asarray, PARAMETERS)
        state, draw = optimiser.init(parameters), np.random.default_rng(0)
        for _ in range(4):
            gradients = {name: jnp.asarray(draw.normal(size=p.shape)) for name, p in PARAMETERS.items()}
            updates, state = optimiser.update(gradients, state, parameters)
            parameters = optax.apply_updates(parameters, updates)
        results.append(parameters)
    jax.tree.map(np.testing.assert_array_equal, *results)


STEPWISE = {"kind": "steps", "values": [0.1, 0.5], "boundaries": [2]}
LAYERWISE: list[tuple[Any, optax.GradientTransformation, optax.GradientTransformation]] = [
    ("mesa", mesa(1e-3, 0.99, 0.01), optax.adam(1e-3)),
    (
        {"kind": "mesa", "learning_rate": 0.1, "forgetting": 0.5, "regularisation": 0.3, "others": "sgd"},
        mesa(0.1, 0.5, 0.3),
        optax.sgd(1e-3),
    ),
    (
        {"kind": "mesa", "form": "static", "newton_schulz": 4, "on_top": "momentum"},
        mesa(1e-3, 0.99, 0.01, form="static", newton_schulz=4, momentum=0.9),
        optax.adam(1e-3),
    ),
    (
        {
            "kind": "mesa",
            "on_top": "adam",
            "momentum": 0.85,
            "others": {"kind": "adam", "learning_rate": 0.1},
        },
        mesa(1e-3, 0.99, 0.01, momentum=0.85, adam=True),
        optax.adam(0.1),
    ),
    ("delta", delta(1e-3, 1e-5), optax.adam(1e-3)),
    (
        {
            "kind": "delta",
            "learning_rate": 0.1,
            "decay": 0.2,
            "normalised": "decay",
            "others": {"kind": "sgd", "learning_rate": 0.5},
        },
        delta(0.1, 0.2, "decay"),
        optax.sgd(0.5),
    ),
    (
        {"kind": "delta", "learning_rate": STEPWISE, "others": {"kind": "sgd", "learning_rate": STEPWISE}},
        delta(lambda count: jnp.where(count >= 2, 0.5, 0.1), 1e-5),
        optax.sgd(lambda count: jnp.where(count >= 2, 0.5, 0.1)),
    ),
    (
        {"kind": "mesa", "learning_rate": STEPWISE},
        mesa(lambda count: jnp.where(count >= 2, 0.5, 0.1), 0.99, 0.01),
        optax.adam(1e-3),
    ),
]


@pytest.mark.parametrize(("values", "dense", "others"), LAYERWISE, ids=[str(v) for v, _, _ in LAYERWISE])
def test_a_layerwise_optimiser_has_its_options(values: Any, dense: Any, others: Any) -> None:
    model = network("two matrices")
    states = []
    for optimiser in (build_optimiser(parse(values), model), for_dense_layers(model, dense, others)):
        learner = Learner(model, CLASSES, optimiser)
        state = learner.init(jax.random.key(0))
        for batch in batches(3):
            state, _ = learner.update(state, batch)
        states.append(state.parameters)
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_every_optimiser_has_a_line_and_a_configuration() -> None:
    kinds = {type(parse(name)).__name__.removesuffix("Config").lower() for name in OPTIMISERS}
    assert kinds == set(OPTIMISERS)
    assert {type(parse(name)).__name__ for name in OPTIMISERS} == {
        kind.__name__ for kind in Optimiser.__args__
    }
    assert [name for name in OPTIMISERS if "dense layers" not in OPTIMISERS[name]] == list(PLAIN)


@pytest.mark.parametrize("values", ["muon", "delta", {"kind": "mesa", "on_top": "adam", "newton_schulz": 5}])
def test_saved_and_loaded_at_every_step_equals_never_stopping(values: Any, tmp_path: Path) -> None:
    model = network("two matrices")
    learner = Learner(model, CLASSES, build_optimiser(parse(values), model))
    expected, state = (learner.init(jax.random.key(0)) for _ in range(2))
    for step, batch in enumerate(batches(4)):
        expected, outcome = learner.update(expected, batch)
        state, result = learner.update(state, batch)
        np.testing.assert_array_equal(result.outputs, outcome.outputs)
        save(state, tmp_path / str(step))
        state = load(tmp_path / str(step), learner)
    leaves = [jax.tree.leaves((s.parameters, s.optimiser)) for s in (state, expected)]
    assert len(leaves[0]) > 10
    for found, want in zip(*leaves, strict=True):
        np.testing.assert_array_equal(found, want)


def test_all_optimisers_learn() -> None:
    rates = {
        "sgd": 0.3,
        "rmsprop": 0.01,
        "adam": 0.02,
        "adamw": 0.02,
        "muon": 0.02,
        "mesa": 0.2,
        "delta": 0.3,
    }
    for name, rate in rates.items():
        config = MLPConfig(kind="mlp", width=8, optimiser={"kind": name, "learning_rate": rate})
        learner = build_parametric(config, features=D, task=CLASSES, seed=0)
        state, losses = learner.init(jax.random.key(0)), []
        batch = batches(1)[0]
        for _ in range(40):
            state, result = learner.update(state, batch)
            losses.append(float(np.mean(result.losses)))
        assert losses[-1] < 0.2 * losses[0], name
        assert learner.compilations == 1


def test_mesa_is_configured_by_its_own_class() -> None:
    assert MesaConfig(kind="mesa").others.kind == "adam"
    model = ResidualMLP(D, 3, 0, None, "gelu", rngs=nnx.Rngs(0))
    state = build_optimiser(MesaConfig(kind="mesa"), model).init(nnx.state(model))
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(state.inner_states["dense"]))
    assert shapes == [(), (D, D)]
