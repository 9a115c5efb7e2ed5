"""The training step on a memory of fixed capacity, the way growing networks are first written.

All rows of the pass are allocated at the start and stay zero until they are used: a value of zero adds
nothing, so every step computes over all of them. Keys and values stand in the tree of parameters with
gradients of zero, and an optimiser is applied to the whole tree at every step. What is predicted and stored
is what Lamina's step predicts and stores.
"""

import time
from collections.abc import Callable
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from lamina.learners.layers import rms_norm
from lamina.learners.losses import cross_entropy
from lamina.memory import RBF, Block, Coefficients, retrieve

from ._floor import stream
from ._harness import side_by_side
from ._plan import Plan

OPTIMISERS = {"sgd": optax.sgd, "adam": optax.adam}

Tree = dict[str, dict[str, jax.Array]]  # by layer, then keys [N, D] and values [N, F]
Answer = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # keys, values, queries → [B, F]


class Fixed:
    """A fixed-capacity network on its way through the pass.

    Args:
      plan: the pass.
      lean: answer queries with Lamina's `retrieve` instead of plain products and their derivatives.
      optimiser: one of OPTIMISERS.
    """

    def __init__(self, plan: Plan, *, lean: bool, optimiser: str) -> None:
        self.plan = plan
        train = OPTIMISERS[optimiser](1e-3)
        answer = _lean_answer(plan) if lean else _plain_answer(plan)
        self._step = jax.jit(_step(plan, answer, train), donate_argnums=(0, 1))
        self.tree = {layer: _zeros(plan, layer) for layer in _layers(plan)}
        self._optimiser = train.init(self.tree)
        self.entries = 0

    def learn(self, step: int) -> jax.Array:
        """One training step; the outputs [B, C] predicted before it."""
        outputs: jax.Array
        count, (x, y) = jnp.int32(self.entries), self.plan.examples_of(step)
        self.tree, self._optimiser, outputs = self._step(self.tree, self._optimiser, count, x, y)
        self.entries += self.plan.batch
        jax.block_until_ready((self.tree, outputs))
        return outputs


def measure(plan: Plan, *, lean: bool, optimiser: str) -> dict[str, Any]:
    """Times the step with few entries and with all of them.

    Returns:
      `points` (entries, slots, step and compile seconds, bandwidth in turn with the steps) and
      `database_bytes`.
    """
    fixed, points = Fixed(plan, lean=lean, optimiser=optimiser), []
    database_bytes = sum(rows.nbytes for rows in jax.tree.leaves(fixed.tree))
    ways = {"step": fixed.learn, "floor": lambda _: stream(jax.tree.leaves(fixed.tree))}
    for number in (0, -1):
        # Skipped rows stay zero: what is stored does not change what a step costs.
        fixed.entries = plan.untimed[number]
        start = time.perf_counter()
        fixed.learn(0)
        first = time.perf_counter() - start
        stream(jax.tree.leaves(fixed.tree))
        seconds = side_by_side(ways, plan.rounds)
        step, floor = (float(np.median(seconds[way])) for way in ways)
        points.append(
            {
                "entries": plan.entries[number],
                "slots": plan.fixed_rows,
                "step_seconds": step,
                "gigabytes_per_second": database_bytes / floor / 1e9,
                "compile_seconds": max(0.0, first - step),
            }
        )
    return {"points": points, "database_bytes": database_bytes}


def _step(plan: Plan, answer: Answer, train: optax.GradientTransformation) -> Callable[..., Any]:
    def loss(tree: Tree, probes: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> Any:
        stream, queries = x, {}
        for layer in _layers(plan):
            queries[layer] = rms_norm(stream)
            # The gradient with respect to the probe, zero, is each example's own at this output.
            output = answer(tree[layer]["keys"], tree[layer]["values"], queries[layer]) + probes[layer]
            stream = output if layer == "readout" else stream + output
        return jnp.sum(cross_entropy(stream, y)), (queries, stream)

    def step(tree: Tree, optimiser: Any, count: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        probes = {layer: jnp.zeros((plan.batch, rows["values"].shape[1])) for layer, rows in tree.items()}
        gradients, (queries, outputs) = jax.grad(loss, argnums=(0, 1), has_aux=True)(tree, probes, x, y)
        updates, optimiser = train.update(gradients[0], optimiser, tree)
        tree = optax.apply_updates(tree, updates)
        new = {
            layer: {"keys": queries[layer], "values": -plan.value_rate * gradient}
            for layer, gradient in gradients[1].items()
        }
        put = jax.lax.dynamic_update_slice
        tree = jax.tree.map(lambda rows, batch: put(rows, batch, (count, 0)), tree, new)
        return tree, optimiser, outputs

    return step


def _plain_answer(plan: Plan) -> Answer:
    """exp(−‖q − k‖² / (2·T·√D)) · V as one writes it."""

    def answer(keys: jax.Array, values: jax.Array, queries: jax.Array) -> jax.Array:
        keys, values = jax.lax.stop_gradient((keys, values))
        norms = jnp.sum(queries**2, axis=1)[:, None] + jnp.sum(keys**2, axis=1)
        squares = norms - 2 * (queries @ keys.T)
        return jnp.exp(-squares / (2 * plan.temperature * sqrt(plan.features))) @ values

    return answer


def _lean_answer(plan: Plan) -> Answer:
    """The same by Lamina's `retrieve`: scores entries-major, kernel values kept for the backward pass."""
    kernel, none = RBF(plan.temperature), jnp.zeros(plan.fixed_rows, jnp.int32)

    def answer(keys: jax.Array, values: jax.Array, queries: jax.Array) -> jax.Array:
        keys, values = jax.lax.stop_gradient((keys, values))
        norms = jnp.sum(keys**2, axis=1)
        block = Block(keys, values, None, none, none, none, norms, norms)
        coefficients = Coefficients(jnp.ones_like(norms), None)
        return retrieve(kernel, (block,), (coefficients,), queries)

    return answer


def _layers(plan: Plan) -> list[str]:
    return [*(f"block{number}" for number in range(plan.blocks)), "readout"]


def _zeros(plan: Plan, layer: str) -> dict[str, jax.Array]:
    value_features = plan.classes if layer == "readout" else plan.features
    widths = {"keys": plan.features, "values": value_features}
    return {column: jnp.zeros((plan.fixed_rows, width)) for column, width in widths.items()}
