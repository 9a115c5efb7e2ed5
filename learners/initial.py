"""The entries of a normalised kernel's initial function: a softmax denominator must never vanish."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from ..errors import ConfigError
from ..memory.database import INITIAL, Database, Rows, empty_database, write
from ..memory.sharding import ONE_DEVICE, Shards
from .layers import GrowingSpec

INITIALISERS: dict[str, str] = {
    "unit": "random keys and values of unit root mean square, weight 1/n (paper F.3)",
    "centred": "as unit, with values that sum to zero: what they would say outlasts thousands of steps",
    "zero": "keys and values of zeros, weight 1/n (the text of paper F.4)",
}


def initial_database(spec: GrowingSpec, key: jax.Array, shards: Shards = ONE_DEVICE) -> Database:
    """The database of a layer before its first example.

    Args:
      spec: the layer.
      key: the random key of `unit` entries.
      shards: the devices to spread the rows over.

    Raises:
      ConfigError: the layer's cap is below its number of initial entries.
    """
    dtype = jnp.result_type(float)
    slots = max(spec.memory.initial_capacity, spec.initial_entries)
    if spec.memory.capacity is not None:
        if spec.memory.capacity < spec.initial_entries:
            raise ConfigError(
                f"memory.capacity: expected room for the {spec.initial_entries} initial entries; found "
                f"{spec.memory.capacity}: raise it, or lower initial_entries"
            )
        slots = min(slots, spec.memory.capacity)
    database = empty_database(
        slots,
        spec.key_features,
        spec.value_features,
        weighted=spec.kernel.normalised,
        dtype=dtype,
        shards=shards,
    )
    if spec.initial_entries == 0:
        return database
    return with_initial_entries(database, *_entries(spec, key, dtype))


def with_initial_entries(
    database: Database, keys: jax.Array, values: jax.Array, weights: jax.Array | None
) -> Database:
    """Writes an initial function (creation step 0) into an empty database, which is consumed.

    Args:
      database: without entries, with room for n.
      keys: [n, D].
      values: [n, F].
      weights: [n] for normalised kernels, else None.
    """
    count = keys.shape[0]
    rows = Rows(keys, values, weights, jnp.full(count, -1, jnp.int32))
    database = write(database, jnp.arange(count, dtype=jnp.int32), rows, jnp.int32(INITIAL))
    return replace(database, entries=jnp.int32(count))


def _entries(spec: GrowingSpec, key: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array, jax.Array]:
    count = spec.initial_entries
    shapes = (count, spec.key_features), (count, spec.value_features)
    if spec.initial == "zero":
        keys, values = (jnp.zeros(shape, dtype) for shape in shapes)
    else:
        keys, values = (
            _unit_rows(k, shape, dtype) for k, shape in zip(jax.random.split(key), shapes, strict=True)
        )
        if spec.initial == "centred":
            values = values - jnp.mean(values, axis=0)
    weight = 1 / count if spec.initial_weight is None else spec.initial_weight
    return keys, values, jnp.full(count, weight, dtype)


def _unit_rows(key: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
    rows = jax.random.normal(key, shape, dtype)
    return rows * jax.lax.rsqrt(jnp.mean(rows * rows, axis=1, keepdims=True))
