"""What asking a memory costs beside the machine's floor and beside every peer on the same work.

    python -m benchmarks.retrieval [--quick] [--json FILE]

For each shape (N entries, keys of D numbers, values of F, B queries) the RBF answer Σ exp(−‖q − k‖²/2ℓ²)·v
and its gradient in the queries are computed by Lamina's `retrieve`, by plain `jnp` under `jax.grad`, and by
KeOps where it can compile (a minute per width, once). FAISS's exact flat search scores the same keys and
keeps the best 10: only a part of the work. All ways of one shape take turns, and the best of several rounds
counts, since others may load the machine.

The floor is measured in the same turns: max(bytes / streaming bandwidth, flops / best matrix-product rate)
plus exp() at its rate in the cache. Forward reads keys and values once and makes two products; backward does
so again; every score is exponentiated once.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lamina.memory import RBF, Block, Coefficients, retrieve

from ._floor import stream
from ._harness import command_line, measure_cases, side_by_side
from ._peers import Faiss, keops_answer

Way = Callable[[int], object]
Figures = dict[str, Any]

_TEMPERATURE = 10.0
_AGREEMENT = 1e-3  # of an answer's largest magnitude, in float32
_EXP_SIDE = 1 << 16  # numbers that stay in the cache while they are exponentiated
_EXP_TIMES = 64
_PRODUCT_SIDE = 1536
_PATIENCE = 10.0  # seconds for a way of a shape, so that a slow peer does not take minutes


@dataclass(frozen=True)
class Shape:
    """What is asked of how much."""

    entries: int  # N
    key_features: int  # D
    value_features: int  # F
    batch: int  # B
    rounds: int
    compiled_peers: bool = True

    @property
    def bytes(self) -> int:
        """Of keys and values, read once."""
        return 4 * self.entries * (self.key_features + self.value_features)

    @property
    def flops(self) -> int:
        """Of the two products of one direction."""
        return 2 * self.entries * self.batch * (self.key_features + self.value_features)


SHAPES = {
    "full": (
        Shape(25_000, 3072, 3072, 16, rounds=15),
        Shape(25_000, 3072, 3072, 64, rounds=9),
        Shape(100_000, 784, 784, 16, rounds=15),
        Shape(131_072, 64, 64, 1024, rounds=5),
        Shape(1_000_000, 64, 64, 64, rounds=5),
    ),
    "quick": (
        Shape(5_000, 3072, 3072, 16, rounds=15),
        Shape(5_000, 3072, 3072, 64, rounds=9),
        Shape(20_000, 784, 784, 16, rounds=15),
        Shape(16_384, 64, 64, 1024, rounds=15),
        Shape(100_000, 64, 64, 64, rounds=15),
    ),
    "tiny": (
        Shape(300, 24, 24, 4, rounds=1, compiled_peers=False),
        Shape(900, 8, 8, 64, rounds=1, compiled_peers=False),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures every shape, prints a table for each, and optionally writes JSON."""
    return measure_cases(command_line("retrieval", __doc__), SHAPES, measure, _print, arguments)


def measure(shape: Shape) -> Figures:
    """Times all ways of one shape in turn.

    Returns:
      The shape; `seconds` of every way (best round); `floor_seconds` and `ratios` to it, each for `forward`
      and `both` (forward and backward); `missing`: why a peer was left out, by name; `largest_difference`.
    """
    work = _Work(shape)
    forward, both, missing = work.ways()
    ways = {
        **{f"forward {name}": way for name, way in forward.items()},
        **{f"both {name}": way for name, way in both.items()},
        **_machine(work),
    }
    for way in ways.values():
        way(0)  # compiles
    best = {
        name: min(seconds) for name, seconds in side_by_side(ways, shape.rounds, patience=_PATIENCE).items()
    }
    floor = _floor(shape, best)
    seconds = {
        direction: {name: best[f"{direction} {name}"] for name in names}
        for direction, names in (("forward", forward), ("both", both))
    }
    return {
        "shape": asdict(shape),
        "seconds": seconds,
        "floor_seconds": floor["seconds"],
        "rates": floor["rates"],
        "ratios": {d: {n: s / floor["seconds"][d] for n, s in seconds[d].items()} for d in seconds},
        "missing": missing,
        "largest_difference": work.agree(both),
    }


class _Work:
    """The arrays of one shape, and the ways to ask them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        draw = np.random.default_rng(0)

        def normal(*size: int) -> jax.Array:
            return jnp.asarray(draw.standard_normal(size, np.float32))

        self.keys, self.values = (
            normal(shape.entries, shape.key_features),
            normal(shape.entries, shape.value_features),
        )
        self.queries = normal(shape.batch, shape.key_features)
        self.gradient = normal(shape.batch, shape.value_features)
        self.square_length = _TEMPERATURE * shape.key_features**0.5
        self._norms = jnp.sum(self.keys * self.keys, axis=1)

    def ways(self) -> tuple[dict[str, Way], dict[str, Way], dict[str, str]]:
        """Forward, forward and backward, and why some are missing."""
        none = jnp.zeros(len(self.keys), jnp.int32)
        block = Block(self.keys, self.values, None, none, none, none, self._norms, self._norms)
        entries = (block,), (Coefficients(jnp.ones(len(self.keys)), None),)

        def ours(queries: jax.Array, entries: Any) -> jax.Array:
            return retrieve(RBF(_TEMPERATURE), *entries, queries)

        def plain(queries: jax.Array, entries: Any) -> jax.Array:
            keys, values = entries
            squares = jnp.sum(queries**2, axis=1)[:, None] + jnp.sum(keys**2, axis=1) - 2 * (queries @ keys.T)
            return jnp.exp(-squares / (2 * self.square_length)) @ values

        forward, both, missing = {}, {}, {}
        for name, answer, arrays in (("lamina", ours, entries), ("jnp", plain, (self.keys, self.values))):
            forward[name], both[name] = self._compiled(answer, arrays)
        arrays = map(np.asarray, (self.keys, self.values, self.queries, self.gradient))
        try:
            if not self.shape.compiled_peers:
                raise NotImplementedError("not compiled for so little work")
            forward["keops"], both["keops"] = keops_answer(*arrays, self.square_length)
        except Exception as error:  # of many kinds: no package, no compiler, no kernel of such a width
            missing["keops"] = f"{type(error).__name__}: {error}"
        try:
            forward["faiss (search only)"] = Faiss(np.asarray(self.keys), np.asarray(self.queries)).search
        except ImportError as error:
            missing["faiss"] = f"{error}: pip install 'lamina[bench]'"
        return forward, both, missing

    def _compiled(self, answer: Callable[..., jax.Array], arrays: Any) -> tuple[Way, Way]:
        forward = jax.jit(answer)

        @jax.jit
        def both(queries: jax.Array, gradient: jax.Array, arrays: Any) -> Any:
            output, back = jax.vjp(lambda q: answer(q, arrays), queries)
            return output, back(gradient)[0]

        return (
            lambda _: jax.block_until_ready(forward(self.queries, arrays)),
            lambda _: jax.block_until_ready(both(self.queries, self.gradient, arrays)),
        )

    def agree(self, both: dict[str, Any]) -> float:
        """The largest difference from Lamina's answers and gradients, relative to their largest magnitude."""
        ours = both["lamina"](0)
        differences = [
            np.max(np.abs(np.asarray(found) - expected)) / np.max(np.abs(expected))
            for name in set(both) - {"lamina"}
            for found, expected in zip(both[name](0), map(np.asarray, ours), strict=True)
        ]
        largest = float(max(differences))
        if not largest < _AGREEMENT:
            sys.exit(f"answers differ by {largest:.1e} of their size: the ways do not do the same work")
        return largest


def _machine(work: _Work) -> dict[str, Way]:
    """What the floor is made of."""
    square = jnp.ones((_PRODUCT_SIDE, _PRODUCT_SIDE)) / _PRODUCT_SIDE
    numbers = jnp.linspace(-5, 0, _EXP_SIDE)
    product = jax.jit(jnp.matmul)

    @jax.jit
    def exponentials(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, _EXP_TIMES, lambda _, x: jnp.exp(-x), x)

    return {
        "stream": lambda _: stream((work.keys, work.values)),
        "product": lambda _: jax.block_until_ready(product(square, square)),
        "exp": lambda _: jax.block_until_ready(exponentials(numbers)),
    }


def _floor(shape: Shape, best: dict[str, float]) -> Figures:
    bandwidth = shape.bytes / best["stream"]
    flops = 2 * _PRODUCT_SIDE**3 / best["product"]
    exponentials = _EXP_SIDE * _EXP_TIMES / best["exp"]
    once = max(shape.bytes / bandwidth, shape.flops / flops)
    exp = shape.entries * shape.batch / exponentials
    return {
        "seconds": {"forward": once + exp, "both": 2 * once + exp},
        "rates": {
            "gigabytes_per_second": bandwidth / 1e9,
            "gigaflops_per_second": flops / 1e9,
            "giga_exp_per_second": exponentials / 1e9,
        },
    }


def _print(result: Figures) -> None:
    shape, rates = result["shape"], result["rates"]
    print(
        f"N = {shape['entries']:,}, D = {shape['key_features']:,}, F = {shape['value_features']:,}, "
        f"B = {shape['batch']:,}; {rates['gigabytes_per_second']:.1f} GB/s, "
        f"{rates['gigaflops_per_second']:.0f} GFlop/s, {rates['giga_exp_per_second']:.1f} G exp/s"
    )
    for direction, title in (("forward", "forward"), ("both", "forward and backward")):
        floor = result["floor_seconds"][direction]
        print(f"  {title}\n    {'floor':20} {floor * 1e3:9.1f} ms")
        for name, seconds in result["seconds"][direction].items():
            print(f"    {name:20} {seconds * 1e3:9.1f} ms  {result['ratios'][direction][name]:5.2f} × floor")
    for name, reason in result["missing"].items():
        print(f"  without {name}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
