"""The slow obvious forms of kernels and retrieval that tests compare with, in NumPy and in plain jnp."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory import neighbours, retrieval
from lamina.memory.database import EMPTY, Block, empty_block
from lamina.memory.kernels import (
    RBF,
    Cosine,
    Kernel,
    Laplace,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    RationalQuadratic,
    WeightedSoftmax,
)
from lamina.memory.plan import Plan
from lamina.memory.retrieval import retrieve
from lamina.memory.scores import Coefficients

Array = Any  # NumPy's or JAX's


@dataclass(frozen=True)
class KernelCase:
    """A kernel and its formula, written from the vectors themselves."""

    kernel: Kernel
    formula: Callable[[ModuleType, Array, Array], Array]  # (np or jnp, k [..., D], q [..., D]) → [...]

    def __str__(self) -> str:
        return type(self.kernel).__name__


def distance(xp: ModuleType, k: Array, q: Array) -> Array:
    return xp.sqrt(xp.sum((q - k) ** 2, axis=-1))


def length(k: Array, temperature: float) -> float:
    return sqrt(temperature * sqrt(k.shape[-1]))


def matern32(xp: ModuleType, u: Array) -> Array:
    return (1 + u) * xp.exp(-u)


def matern52(xp: ModuleType, u: Array) -> Array:
    return (1 + u + u**2 / 3) * xp.exp(-u)


# Adding a kernel: write its class, add it here; every contract below then holds it to the same rules.
KERNELS = [
    KernelCase(Linear(), lambda xp, k, q: xp.sum(k * q, axis=-1)),
    KernelCase(RBF(0.8), lambda xp, k, q: xp.exp(-((distance(xp, k, q) / length(k, 0.8)) ** 2) / 2)),
    KernelCase(WeightedSoftmax(0.6), lambda xp, k, q: xp.sum(k * q, axis=-1) / length(k, 0.6) ** 2),
    KernelCase(Laplace(0.8), lambda xp, k, q: xp.exp(-distance(xp, k, q) / length(k, 0.8))),
    KernelCase(Matern32(0.8), lambda xp, k, q: matern32(xp, sqrt(3) * distance(xp, k, q) / length(k, 0.8))),
    KernelCase(Matern52(0.8), lambda xp, k, q: matern52(xp, sqrt(5) * distance(xp, k, q) / length(k, 0.8))),
    KernelCase(
        RationalQuadratic(0.8, shape=1.5),
        lambda xp, k, q: (1 + (distance(xp, k, q) / length(k, 0.8)) ** 2 / 3) ** -1.5,
    ),
    KernelCase(
        Polynomial(0.7, degree=3, constant=0.5),
        lambda xp, k, q: (xp.sum(k * q, axis=-1) / length(k, 0.7) ** 2 + 0.5) ** 3,
    ),
    KernelCase(
        Cosine(),
        lambda xp, k, q: xp.sum(k * q, axis=-1) / xp.sqrt(xp.sum(k * k, axis=-1) * xp.sum(q * q, axis=-1)),
    ),
]
SUMMED = [case for case in KERNELS if not case.kernel.normalised]
NORMALISED = [case for case in KERNELS if case.kernel.normalised]


@dataclass(frozen=True)
class Memory:
    """The columns of all slots, and how they are cut into blocks."""

    sizes: tuple[int, ...]
    keys: Array  # [N, D]
    values: Array  # [N, F]
    weights: Array  # [N]
    live: np.ndarray  # [N] bool
    value_coefficients: Array  # [N]
    weight_coefficients: Array  # [N]

    def astype(self, dtype: Any) -> "Memory":
        names = ("keys", "values", "weights", "value_coefficients", "weight_coefficients")
        return replace(self, **{name: getattr(self, name).astype(dtype) for name in names})

    def blocks(self, weighted: bool) -> tuple[Block, ...]:
        """As a database has it; dead slots keep what they held, as after pruning."""
        norms = np.sum(self.keys**2, axis=1), np.sqrt(np.sum(self.values**2, axis=1))
        blocks = []
        for rows in _cuts(self.sizes):
            empty = empty_block(rows.stop - rows.start, self.keys.shape[1], 1, weighted=weighted)
            block = replace(
                empty,
                keys=jnp.asarray(self.keys[rows]),
                values=jnp.asarray(self.values[rows]),
                weights=jnp.asarray(self.weights[rows]) if weighted else None,
                created=jnp.asarray(np.where(self.live[rows], 1, EMPTY), jnp.int32),
                key_norms=jnp.asarray(norms[0][rows]),
                value_norms=jnp.asarray(norms[1][rows]),
            )
            blocks.append(block)
        return tuple(blocks)

    def coefficients(self, weighted: bool) -> tuple[Coefficients, ...]:
        """Per block; zero for dead slots, as retrieval expects them."""
        values, weights = (
            np.where(self.live, c, 0) for c in (self.value_coefficients, self.weight_coefficients)
        )
        return tuple(
            Coefficients(jnp.asarray(values[rows]), jnp.asarray(weights[rows]) if weighted else None)
            for rows in _cuts(self.sizes)
        )


def random_memory(
    sizes: Sequence[int],
    seed: int,
    *,
    features: int = 3,
    outputs: int = 2,
    dead: float = 0.0,
    ones: bool = False,
) -> Memory:
    """Float64 rows of unit size, of which a share is dead; coefficients of 1 or in [0.5, 2)."""
    draw = np.random.default_rng(seed)
    count = sum(sizes)
    coefficients = np.ones((2, count)) if ones else draw.uniform(0.5, 2, (2, count))
    return Memory(
        tuple(sizes),
        draw.normal(size=(count, features)),
        draw.normal(size=(count, outputs)),
        draw.uniform(0.1, 1, count),
        draw.uniform(size=count) >= dead,
        *coefficients,
    )


def answer(case: KernelCase, memory: Memory, queries: Array, xp: ModuleType = np) -> Array:
    """What retrieval must return, [B, F]; with `xp=jnp` it can be differentiated."""
    similarity = case.formula(xp, memory.keys[:, None], queries[None])  # [N, B]
    if case.kernel.normalised:
        logits = xp.where(memory.live[:, None], similarity, -xp.inf)
        top = xp.max(logits, axis=0, initial=-1e300)
        similarity = xp.exp(logits - top)
    scores = similarity * xp.where(memory.live, memory.value_coefficients, 0)[:, None]
    output = xp.einsum("nb,nf->bf", scores, memory.values)
    if case.kernel.normalised:
        weights = memory.weights * memory.weight_coefficients
        output = output / xp.einsum("nb,n->b", similarity, weights)[:, None]
    return output


Differentiated = tuple[list[jax.Array], list[jax.Array], list[jax.Array] | None, jax.Array]


@partial(jax.jit, static_argnums=(0, 1, 2))
def pullback(
    kernel: Kernel,
    trained: bool,
    plan: Plan | None,
    blocks: tuple[Block, ...],
    coefficients: tuple[Coefficients, ...],
    queries: jax.Array,
    cotangent: jax.Array,
) -> tuple[jax.Array, Differentiated]:
    """The output, and gradients of ⟨output, cotangent⟩ in keys, values, weights (per block) and queries."""

    def output(keys: Any, values: Any, weights: Any, queries: jax.Array) -> jax.Array:
        columns = zip(blocks, keys, values, weights or [None] * len(blocks), strict=True)
        rebuilt = tuple(replace(b, keys=k, values=v, weights=w) for b, k, v, w in columns)
        return retrieve(kernel, rebuilt, coefficients, queries, trained=trained)

    weights = [b.weights for b in blocks] if kernel.normalised else None
    with following(plan):
        y, back = jax.vjp(output, [b.keys for b in blocks], [b.values for b in blocks], weights, queries)
        return y, back(cotangent)


def run(
    case: KernelCase,
    memory: Memory,
    queries: np.ndarray,
    cotangent: np.ndarray,
    *,
    plan: Plan | None = None,
    trained: bool = True,
) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """The output and the gradients in keys, values, weights and queries, over all slots."""
    normalised = case.kernel.normalised
    y, gradients = pullback(
        case.kernel,
        trained,
        plan,
        memory.blocks(normalised),
        memory.coefficients(normalised),
        jnp.asarray(queries),
        jnp.asarray(cotangent),
    )
    *entries, by_queries = gradients
    joined = [None if g is None else np.concatenate([np.asarray(part) for part in g]) for g in entries]
    return np.asarray(y), [*joined, np.asarray(by_queries)]


@contextmanager
def following(plan: Plan | None) -> Iterator[None]:
    """What is traced herein is read by that plan, whatever would be chosen."""
    with pytest.MonkeyPatch.context() as patch:
        if plan is not None:
            for module in (retrieval, neighbours):
                patch.setattr(module, "plan_reading", lambda *shapes, **options: plan)
        yield


def finite_differences(
    function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6
) -> np.ndarray:
    """The gradient of a function of an array, by central differences."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def _cuts(sizes: Sequence[int]) -> list[slice]:
    ends = np.cumsum(sizes)
    return [slice(int(end - size), int(end)) for size, end in zip(sizes, ends, strict=True)]
