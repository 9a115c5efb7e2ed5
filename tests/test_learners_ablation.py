"""Softmax layers whose exponential is made linear after training."""

from typing import Any

import jax
import numpy as np
import pytest
from lamina.errors import ConfigError
from lamina.learners import Batch, Learner, LearnerConfig, State, Task, build_learner
from lamina.learners.ablation import linearised
from pydantic import TypeAdapter

parse = TypeAdapter(LearnerConfig).validate_python
D, B, CLASSES = 4, 3, 3
SOFTMAX = {"kind": "softmax", "temperature": 1.5, "value_rate": 0.8, "weight_rate": 0.3, "initial_entries": 2}


def learnt(**options: Any) -> tuple[Learner, State]:
    config = parse({**SOFTMAX, **options})
    learner = build_learner(config, features=D, task=Task(CLASSES, True), batch_size=B, seed=0)
    state, draw = learner.init(jax.random.key(0)), np.random.default_rng(0)
    for step in range(12):
        batch = Batch(draw.normal(size=(B, D)), draw.integers(0, CLASSES, B), np.arange(B) + B * step)
        state, _ = learner.update(state, batch)
    return learner, state


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)


@pytest.mark.parametrize("memory", [{"initial_capacity": 4}, {"initial_capacity": 4, "budget_bytes": 4096}])
@pytest.mark.parametrize("fading", [{}, {"momentum": 0.7, "decay": 0.1}])
def test_every_exponential_is_replaced_by_its_expansion(
    memory: dict[str, Any], fading: dict[str, Any]
) -> None:
    """Against the sums over entries, in a network of two layers."""
    with jax.enable_x64(True):
        learner, state = learnt(blocks=1, memory=memory, **fading)
        x = np.random.default_rng(1).normal(size=(7, D))
        stream = x
        for name in ("block0", "readout"):
            keys, values, weights = entries(state, name)
            factors = 1 + unit(stream) @ keys.T / (1.5 * np.sqrt(D))
            answer = factors @ values / (factors @ weights)[:, None]
            stream = stream + answer if name == "block0" else answer
        fixed, parameters = linearised(learner, state)
        np.testing.assert_allclose(fixed.predict(parameters, x), stream, rtol=1e-8, atol=1e-10)
        assert np.abs(stream - learner.predict(state, x)).max() > 1e-3


def entries(state: State, layer: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, effective values and effective weights of all entries, on disk or not."""
    memory = state.memories[layer]
    columns = [{n: memory.database.column(n) for n in ("keys", "values", "weights", "created")}]
    if memory.cold is not None:
        assert memory.cold.entries
        columns += [chunk.read(memory.cold.layout, list(columns[0])) for chunk in memory.cold.chunks]
    keys, values, weights, created = (np.concatenate([c[n] for c in columns]) for n in columns[0])
    live = created >= 0
    keys, values, weights, created = keys[live], values[live], weights[live], created[live]
    if memory.clocks is not None:
        of_values, of_weights = (
            np.append(clock.initial, clock.coefficients)[created]
            for clock in (memory.clocks.values, memory.clocks.weights)
        )
        values, weights = values * of_values[:, None], weights * of_weights
    return keys, values, weights


def test_at_a_high_temperature_nothing_is_lost() -> None:
    learner, state = learnt(blocks=0, temperature=1e4)
    x = np.random.default_rng(1).normal(size=(5, D)).astype(np.float32)
    fixed, parameters = linearised(learner, state)
    np.testing.assert_allclose(fixed.predict(parameters, x), learner.predict(state, x), rtol=1e-3, atol=1e-4)


def test_only_softmax_layers_have_an_exponential_to_replace() -> None:
    rbf = parse({"kind": "rbf", "temperature": 1.0, "value_rate": 0.1})
    learner = build_learner(rbf, features=D, task=Task(CLASSES, True), batch_size=B, seed=0)
    with pytest.raises(ConfigError, match=r"expected softmax layers, .* found RBF in block0"):
        linearised(learner, learner.init(jax.random.key(0)))
    mlp = build_learner(parse({"kind": "mlp"}), features=D, task=Task(CLASSES, True), batch_size=B, seed=0)
    with pytest.raises(ConfigError, match="found no growing layer"):
        linearised(mlp, mlp.init(jax.random.key(0)))
