"""Rows spread over devices: slot i of a block lies on device i mod n, at place i div n.

Consecutive entries go to different devices, so appending keeps the shards balanced. A block's arrays hold the
rows of device 0, then those of device 1, …; what is computed per device runs under `shard_map`, with the
collectives written out.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import ConfigError

AXIS = "entries"


@dataclass(frozen=True)
class Shards:
    """The devices that hold a database's rows.

    >>> ONE_DEVICE.count
    1
    """

    mesh: Mesh | None = None  # one axis, AXIS; None: the default device alone

    @classmethod
    def over(cls, count: int) -> "Shards":
        """The first `count` devices.

        Raises:
          ConfigError: there are not so many devices.
        """
        devices = jax.devices()
        if count > len(devices):
            raise ConfigError(
                f"expected {count} devices to spread the entries over; found {len(devices)} of kind "
                f"{devices[0].platform}: lower devices (on a CPU they are made at the start of the process)"
            )
        if count == 1:
            return ONE_DEVICE
        return cls(jax.make_mesh((count,), (AXIS,), (jax.sharding.AxisType.Auto,), devices=devices[:count]))

    @property
    def count(self) -> int:
        """Number of devices, n."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def sharding(self) -> NamedSharding | None:
        """How an array of rows is placed; None: on the default device."""
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec(AXIS))

    def rounded(self, slots: int) -> int:
        """The least number of slots ≥ `slots` that divides evenly over the devices."""
        return -(-slots // self.count) * self.count

    def place(self, rows: np.ndarray) -> jax.Array:
        """Puts a block's rows [slots, …], in the order of slots, on the devices."""
        spread = rows.reshape(-1, self.count, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)
        # A copy: the array is going to be donated, and must not be the caller's.
        return jnp.array(spread) if self.mesh is None else jax.device_put(spread, self.sharding)

    def fetch(self, rows: jax.Array) -> np.ndarray:
        """A block's rows [slots, …] on the host, in the order of slots."""
        found = np.asarray(rows)
        return found.reshape(self.count, -1, *found.shape[1:]).swapaxes(0, 1).reshape(found.shape)

    def in_slot_order(self, column: jax.Array) -> jax.Array:
        """One number per slot, [slots], reordered to the order of slots."""
        return column if self.mesh is None else column.reshape(self.count, -1).T.reshape(-1)

    def from_slot_order(self, column: jax.Array) -> jax.Array:
        """The inverse of `in_slot_order`."""
        return column if self.mesh is None else column.reshape(-1, self.count).T.reshape(-1)

    def local_places(self, slots: jax.Array, size: int) -> jax.Array:
        """On a device: where slots [B] of a block of `size` slots lie there; out of range if elsewhere."""
        place = slots // self.count
        inside = (slots >= 0) & (slots < size)
        if self.mesh is not None:
            inside = inside & (slots % self.count == jax.lax.axis_index(AXIS))
        return jnp.where(inside, place, size)

    def slots_of(self, places: jax.Array) -> jax.Array:
        """On a device: the slots, within a block, of its places there."""
        return places if self.mesh is None else places * self.count + jax.lax.axis_index(AXIS)

    def spread(self, function: Callable[..., Any], rows: Any, whole: Any, results: Any) -> Any:
        """Runs `function(rows, whole)` on every device.

        Args:
          function: takes the device's part of `rows` and all of `whole`.
          rows: arrays of rows.
          whole: arrays that every device gets.
          results: for each result, whether it is rows (True) or the same on all devices (False).
        """
        if self.mesh is None:
            return function(rows, whole)
        specs = jax.tree.map(lambda is_rows: PartitionSpec(AXIS) if is_rows else PartitionSpec(), results)
        run = jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=(PartitionSpec(AXIS), PartitionSpec()),
            out_specs=specs,
            check_vma=False,
        )
        return run(rows, whole)

    def total(self, part: Any) -> Any:
        """On a device: the sum over all devices, in one collective."""
        return part if self.mesh is None else jax.lax.psum(part, AXIS)

    def least(self, part: jax.Array) -> jax.Array:
        """On a device: the minimum over all devices."""
        return part if self.mesh is None else jax.lax.pmin(part, AXIS)

    def gathered(self, part: jax.Array) -> jax.Array:
        """On a device: all devices' parts, [n, …], in one collective."""
        return part[None] if self.mesh is None else jax.lax.all_gather(part, AXIS)


ONE_DEVICE = Shards()


def request_devices(count: int) -> None:
    """Asks for `count` devices of a CPU, which works until JAX is first used in the process.

    Where it is too late, or on another kind of device, `Shards.over` says what there is.
    """
    if count > 1:
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", count)
