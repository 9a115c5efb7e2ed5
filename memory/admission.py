"""Admission: which queries of a batch become entries, and which are merged into entries that are there.

A query is judged against the keys before its batch (scope `before`), or one after the other also against
the queries admitted earlier in the batch (scope `batch`), which near-duplicates arriving together call for.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .coefficients import CoefficientTable, block_coefficients
from .database import Database
from .kernels import Kernel
from .neighbours import correlations, most_alike
from .neighbours import nearest as nearest_keys
from .policy import MemoryConfig

LEAST_COEFFICIENT = 2.0**-10  # entries that have faded below it take up no values: they would be blown up

# (the query's number, [B'] bool the queries admitted so far) → (whether to admit it, where to merge it)
Verdict = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Decision(NamedTuple):
    """What is to become of B offered rows, before any cap."""

    admitted: jax.Array  # [B] bool: becomes an entry
    # [B] int32: the slot, or −2 − the number of the admitted row of the batch, that takes up the row's value;
    # −1: none. None where the policy never merges.
    target: jax.Array | None
    distance: jax.Array | None  # [B] to the nearest key before the batch, where the policy measures it
    offered: jax.Array | None = None  # [B] bool the rows that were judged at all; None: every row

    @classmethod
    def everything(cls, batch: int) -> "Decision":
        """Every row becomes an entry."""
        return cls(jnp.ones(batch, bool), None, None)


class _Case(NamedTuple):
    policy: MemoryConfig
    kernel: Kernel
    database: Database
    table: CoefficientTable | None
    queries: jax.Array  # [B, D]
    others: jax.Array  # [B', D] the queries of the batch that each is also judged against: all, or none
    errors: jax.Array  # [B]
    nearest: jax.Array | None  # [B] squared distances to the nearest keys where they are known already


def decide(
    policy: MemoryConfig,
    kernel: Kernel,
    database: Database,
    table: CoefficientTable | None,
    queries: jax.Array,
    errors: jax.Array,
    nearest: jax.Array | None = None,
    offered: jax.Array | None = None,
) -> Decision:
    """Judges the queries of a batch.

    Args:
      policy: the admission to apply.
      kernel: the layer's kernel.
      database: the memory before the batch.
      table: present coefficients by creation step; None: all 1.
      queries: [B, D].
      errors: [B] norms of the error signals g (gradients of each example's loss at the layer's output).
      nearest: [B] squared distances to the nearest keys where they are known already; None: to be found.
      offered: [B] bool the rows that are to be judged, the others are passed over; None: every row.
    """
    batch = queries.shape[0]
    eligible = jnp.ones(batch, bool) if offered is None else offered
    if policy.admission == "all":
        return Decision(eligible, None, None, offered)
    queries = jax.lax.stop_gradient(queries)
    others = queries if policy.admission_scope == "batch" else queries[:0]
    judged, distance = _JUDGES[policy.admission](
        _Case(policy, kernel, database, table, queries, others, errors, nearest)
    )

    def verdict(number: jax.Array, company: jax.Array) -> tuple[jax.Array, jax.Array]:
        admit, target = judged(number, company)
        return admit & eligible[number], jnp.where(eligible[number], target, -1)

    numbers = jnp.arange(batch, dtype=jnp.int32)
    if policy.admission_scope == "before":
        admitted, target = jax.vmap(lambda number: verdict(number, jnp.zeros(0, bool)))(numbers)
    else:

        def judge(company: jax.Array, number: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            admit, target = verdict(number, company)
            return company.at[number].set(admit), (admit, target)

        _, (admitted, target) = jax.lax.scan(judge, jnp.zeros(batch, bool), numbers)
    return Decision(admitted, target if policy.admission == "quantize" else None, distance, offered)


def _novelty(case: _Case) -> tuple[Verdict, jax.Array | None]:
    """Distance to the nearest key > τ (Sec. 3.3), and error > τ_e."""
    assert case.policy.novelty_threshold is not None
    threshold = jnp.asarray(case.policy.novelty_threshold, case.queries.dtype)
    if case.policy.threshold_rise:
        assert case.policy.capacity is not None
        threshold = threshold * (
            1 + case.policy.threshold_rise * case.database.entries / case.policy.capacity
        )
    before = case.nearest
    if before is None:
        before = -nearest_keys(case.database.blocks, case.queries, shards=case.database.shards).scores[:, 0]
    within = _square_distances(case.queries, case.others)

    def verdict(number: jax.Array, company: jax.Array) -> tuple[jax.Array, jax.Array]:
        distance = jnp.sqrt(jnp.minimum(before[number], _least(within[number], company)))
        if case.policy.error_weighted:
            # Nothing to be near to: novel whatever the error.
            distance = jnp.where(jnp.isinf(distance), distance, distance * case.errors[number])
        novel = distance > threshold
        if case.policy.error_threshold:
            novel = novel & (case.errors[number] > case.policy.error_threshold)
        return novel, jnp.int32(-1)

    return verdict, jnp.sqrt(before)


def _coherence(case: _Case) -> tuple[Verdict, jax.Array | None]:
    """Largest normalised kernel value ≤ μ0."""
    largest = case.policy.coherence_threshold
    assert largest is not None
    found = most_alike(case.kernel, case.database.blocks, case.queries, shards=case.database.shards)
    before = jnp.maximum(found.scores[:, 0], 0)
    within = jnp.abs(_among(case.kernel, case.others, case.queries)).T

    def verdict(number: jax.Array, company: jax.Array) -> tuple[jax.Array, jax.Array]:
        closest = jnp.max(jnp.where(company, within[number], 0), initial=0)
        return jnp.maximum(before[number], closest) <= largest, jnp.int32(-1)

    return verdict, None


def _quantize(case: _Case) -> tuple[Verdict, jax.Array | None]:
    """Distance to the nearest key ≤ ε: merge into it; else admit (quantised kernel least mean squares)."""
    assert case.policy.quantize_radius is not None
    eligible = tuple(
        block.live & (jnp.abs(block_coefficients(block, case.table).values) >= LEAST_COEFFICIENT)
        for block in case.database.blocks
    )
    found = nearest_keys(case.database.blocks, case.queries, eligible=eligible, shards=case.database.shards)
    before, slots = -found.scores[:, 0], found.slots[:, 0]
    within = _square_distances(case.queries, case.others)
    square_radius = jnp.asarray(case.policy.quantize_radius, case.queries.dtype) ** 2

    def verdict(number: jax.Array, company: jax.Array) -> tuple[jax.Array, jax.Array]:
        admitted, target = before[number] > square_radius, slots[number]
        if company.shape[0]:
            distances = jnp.where(company, within[number], jnp.inf)
            closest = jnp.argmin(distances).astype(jnp.int32)
            target = jnp.where(distances[closest] < before[number], -2 - closest, target)
            admitted = admitted & (distances[closest] > square_radius)
        return admitted, jnp.where(admitted, -1, target)

    return verdict, jnp.sqrt(before)


def _ald(case: _Case) -> tuple[Verdict, jax.Array | None]:
    """Residual of the projection on the neighbours > ν (kernel recursive least squares)."""
    least = case.policy.ald_threshold
    assert least is not None
    residual = _residual(case)

    def verdict(number: jax.Array, company: jax.Array) -> tuple[jax.Array, jax.Array]:
        return residual(number, company) > least, jnp.int32(-1)

    return verdict, None


def _surprise(case: _Case) -> tuple[Verdict, jax.Array | None]:
    """least < ½·ln σ² + ‖g‖²/(2σ²) ≤ most, with σ² = noise + residual (a Gaussian process' view)."""
    least, most = case.policy.surprise_least, case.policy.surprise_most
    assert least is not None
    assert most is not None
    residual = _residual(case)

    def verdict(number: jax.Array, company: jax.Array) -> tuple[jax.Array, jax.Array]:
        variance = case.policy.surprise_noise + residual(number, company)
        surprise = jnp.log(variance) / 2 + case.errors[number] ** 2 / (2 * variance)
        return (least < surprise) & (surprise <= most), jnp.int32(-1)

    return verdict, None


_JUDGES = {
    "novelty": _novelty,
    "coherence": _coherence,
    "quantize": _quantize,
    "ald": _ald,
    "surprise": _surprise,
}


def _residual(case: _Case) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """1 − rᵀR⁻¹r: how much of a query's normalised feature, squared, lies outside its neighbours' span.

    The neighbours are the m entries most like the query: for databases of at most m entries this is the
    projection on all of them; for larger ones it is never less than that.
    """
    kernel, queries, others = case.kernel, case.queries, case.others
    blocks, shards = case.database.blocks, case.database.shards
    found = most_alike(kernel, blocks, queries, count=case.policy.neighbours, shards=shards)
    known = found.slots >= 0
    jitter = float(np.sqrt(np.finfo(queries.dtype).eps))

    def residual(number: jax.Array, company: jax.Array) -> jax.Array:
        dictionary = jnp.concatenate([found.keys[number], others])
        member = jnp.concatenate([known[number], company])
        gram = jnp.where(member[:, None] & member, _among(kernel, dictionary, dictionary), 0)
        gram = gram + jnp.diag(jnp.where(member, jitter, 1))
        alike = jnp.where(member, _among(kernel, dictionary, queries[number][None])[:, 0], 0)
        explained = alike @ jax.scipy.linalg.solve(gram, alike, assume_a="pos")
        return jnp.clip(1 - explained, 0, 1)

    return residual


def _among(kernel: Kernel, keys: jax.Array, queries: jax.Array) -> jax.Array:
    return correlations(kernel, keys, jnp.sum(keys * keys, axis=1), queries)


def _square_distances(queries: jax.Array, others: jax.Array) -> jax.Array:
    """[B, B'] from the differences themselves, row by row: [B, B', D] would not fit."""
    distances: jax.Array = jax.lax.map(lambda query: jnp.sum((others - query) ** 2, axis=1), queries)
    return distances


def _least(distances: jax.Array, company: jax.Array) -> jax.Array:
    return jnp.min(jnp.where(company, distances, jnp.inf), initial=jnp.inf)
