"""The products of our own: right for every shape, the same in every place, and dispensable."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from lamina.memory import native
from lamina.memory.native import combine, inner_products, problem
from lamina.memory.orientation import ENTRIES_FIRST
from lamina.memory.plan import Plan
from lamina.memory.window import as_window
from memory_reference import KERNELS, KernelCase, random_memory, run

needs_compiler = pytest.mark.skipif(problem() is not None, reason=str(problem()))


@pytest.fixture(autouse=True)
def however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few numbers, they are worth a call."""
    for name in ("LEAST_NUMBERS", "UNCACHED_NUMBERS", "LEAST_BATCH"):
        monkeypatch.setattr(native, name, 1)


def drawn(n: int, batch: int, width: int) -> tuple[jax.Array, jax.Array]:
    draw = np.random.default_rng((n, batch, width))
    scores, rows = draw.standard_normal((n, batch), np.float32), draw.standard_normal((n, width), np.float32)
    return jnp.asarray(scores), jnp.asarray(rows)


def is_ours(product: Callable[..., jax.Array], *arguments: jax.Array) -> bool:
    return "lamina_" in jax.jit(lambda *arguments: product(*arguments)).lower(*arguments).as_text()


def exact(left: jax.Array, right: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """The product leftᵀ · right in float64, and that of the sizes of all numbers."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return left.T @ right, np.abs(left).T @ np.abs(right)


@needs_compiler
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 40])
@pytest.mark.parametrize("n", [1, 33, 257, 2049])
def test_combinations_of_every_shape(n: int, batch: int) -> None:
    """Against float64, within what float32 loses where 16 to 128 numbers are added up, then their sums."""
    for width in (1, 16, 31, 32, 50, 600):
        scores, rows = drawn(n, batch, width)
        expected, sizes = exact(scores, rows)
        block = min(max(2**14 // width, 16), 128)
        additions = min(n, block) + n / block + 8
        bound = additions * np.finfo(np.float32).eps / 2 * sizes
        assert np.all(np.abs(np.asarray(combine(scores, rows)) - expected) <= bound), width


@needs_compiler
@pytest.mark.parametrize("batch", [1, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 150])
@pytest.mark.parametrize("n", [1, 6, 259, 1030])
def test_inner_products_of_every_shape(n: int, batch: int) -> None:
    """Against float64, within what up to four sums of float32 lose that are then added up."""
    for width in (1, 15, 16, 17, 32):
        rows, queries = drawn(width, n, batch)
        expected, sizes = exact(rows, queries)
        sums = 2 if batch <= 32 else 1
        bound = (width / sums + 4) * np.finfo(np.float32).eps / 2 * sizes
        assert is_ours(inner_products, rows.T, queries.T)
        assert np.all(np.abs(np.asarray(inner_products(rows.T, queries.T)) - expected) <= bound), width


@needs_compiler
@pytest.mark.parametrize(
    ("product", "least"), [(combine, "LEAST_NUMBERS"), (inner_products, "UNCACHED_NUMBERS")]
)
def test_ours_where_it_is_worth_it(
    product: Callable[..., jax.Array], least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = drawn(24, 4, 32) if product is combine else [x.T for x in drawn(32, 24, 4)]
    rows = pair[1] if product is combine else pair[0]
    assert is_ours(product, *pair)
    with jax.enable_x64(True):
        assert not is_ours(product, *(x.astype(jnp.float64) for x in pair))
    for left, right in ((jnp.bfloat16, jnp.float32), (jnp.float32, jnp.bfloat16)):
        assert not is_ours(product, pair[0].astype(left), pair[1].astype(right))
    monkeypatch.setattr(native, least, rows.size + 1)
    assert not is_ours(product, *pair)
    monkeypatch.undo()
    for name in ("MOST_QUERIES", "LEAST_NUMBERS", "UNCACHED_NUMBERS", "LEAST_BATCH"):
        monkeypatch.setattr(native, name, 1)
    assert not is_ours(product, *pair)


@needs_compiler
@pytest.mark.parametrize(("start", "count"), [(0, 300), (0, 1), (7, 64), (299, 1), (1, 299)])
def test_parts_of_an_array_are_read_where_they_lie(start: int, count: int) -> None:
    scores, rows = drawn(300, 11, 20)
    _, queries = drawn(1, 11, 20)
    part, queries = scores[start : start + count], jnp.tile(queries, (11, 1))

    @jax.jit
    def both(rows: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        window = as_window(rows).part(start, count)
        return combine(part, window), inner_products(window, queries)

    compiled = both.lower(rows, jnp.int32(start)).compile().as_text()
    assert "dynamic-slice" not in compiled or count == len(rows)
    found, cut_out = both(rows, jnp.int32(start)), rows[start : start + count]
    for answer, expected in zip(found, (part.T @ cut_out, cut_out @ queries.T), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="no such rows"):
        jax.block_until_ready(both(rows, jnp.int32(300 - count + 1)))


@needs_compiler
def test_the_same_to_the_last_bit_whoever_shares_the_threads() -> None:
    scores, rows = drawn(5000, 16, 100)
    expected = np.asarray(combine(scores, rows))
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: np.asarray(combine(scores, rows)), range(64)):
            np.testing.assert_array_equal(found, expected)


@needs_compiler
@pytest.mark.parametrize("n", [0, 4])
def test_of_nothing(n: int) -> None:
    """No rows, or rows without numbers."""
    rows, scores = jnp.zeros((10, 0 if n else 3)), jnp.ones((n, 2))
    part = as_window(rows).part(jnp.int32(1), n)
    np.testing.assert_array_equal(combine(scores, part), np.zeros((2, rows.shape[1])))
    found = inner_products(part, jnp.ones((2, rows.shape[1])))
    np.testing.assert_array_equal(found, np.zeros((n, 2)))


@needs_compiler
def test_nan_is_not_hidden() -> None:
    scores, rows = drawn(300, 3, 20)
    found = combine(scores.at[7, 1].set(jnp.nan), rows)
    np.testing.assert_array_equal(np.isnan(found), np.broadcast_to([[False], [True], [False]], (3, 20)))


@needs_compiler
def test_inside_what_jax_makes_of_functions() -> None:
    scores, rows = drawn(96, 5, 20)
    expected = np.asarray(scores.T @ rows)
    parts = scores.reshape(3, 32, 5), rows.reshape(3, 32, 20)
    _, scanned = jax.lax.scan(lambda carry, part: (carry, combine(*part)), 0, parts)
    mesh = jax.make_mesh((4,), ("entries",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere, split = PartitionSpec(), PartitionSpec("entries")

    def of_a_device(scores: jax.Array, rows: jax.Array) -> jax.Array:
        first, last = (as_window(rows).part(jnp.int32(start), 12) for start in (0, 12))
        return jax.lax.psum(combine(scores[:12], first) + combine(scores[12:], last), "entries")

    spread = jax.shard_map(of_a_device, mesh=mesh, in_specs=(split, split), out_specs=everywhere)
    for found in (scanned.sum(axis=0), jax.vmap(combine)(*parts).sum(axis=0), jax.jit(spread)(scores, rows)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("plan", [None, Plan(ENTRIES_FIRST, 7, 4)], ids=["whole", "chunks"])
@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_retrieval_and_its_gradients(case: KernelCase, plan: Plan | None) -> None:
    memory, draw = random_memory((40, 5), 3, dead=0.2), np.random.default_rng(7)
    queries, cotangent = draw.normal(size=(6, 3)), draw.normal(size=(6, 2))
    single = run(case, memory.astype(np.float32), np.float32(queries), np.float32(cotangent), plan=plan)
    with jax.enable_x64(True):
        double = run(case, memory, queries, cotangent)
    for found, expected in zip([single[0], *single[1]], [double[0], *double[1]], strict=True):
        if expected is not None and found is not None:
            assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("no-such-compiler", "there is no C++ compiler no-such-compiler"),
        ("sh -c 'echo error: not today >&2; exit 1'", "sh cannot compile products.cc: error: not today"),
        ("'c++", "CXX is not a command (no closing quotation): 'c++"),
        ("true", "products.cc cannot be compiled: [Errno 2]"),  # says that all is well, and leaves no file
    ],
)
def test_without_a_compiler_xla_does_it(
    compiler: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    problem.cache_clear()
    try:
        with caplog.at_level("INFO"):
            scores, rows = drawn(100, 4, 20)
            assert not is_ours(combine, scores, rows)
            np.testing.assert_array_equal(combine(scores, rows), scores.T @ rows)
    finally:
        problem.cache_clear()
    [line] = {record.getMessage() for record in caplog.records if record.name == native.__name__}
    assert said in line
    assert "XLA's products are used" in line
    assert [*tmp_path.rglob("*.so")] == []


@needs_compiler
def test_processes_that_compile_at_once_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = "from lamina.memory.native import problem; print(problem())"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in processes] == ["None", "None"]
    [library] = (tmp_path / "lamina" / "native").iterdir()
    assert library.suffix == ".so"
