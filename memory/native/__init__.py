"""Products of retrieval by functions of Lamina's own, where those of XLA are slow on a CPU.

For few queries XLA takes three times as long for scoresᵀ · rows as reading the rows does, the function of
`products.cc` 1.3 times; for inner products with short rows that no cache holds twice as long, ours 1.3 times;
and of rows that are a part of an array XLA first makes a copy, ours read them where they lie
(`benchmarks.retrieval`); under `vmap` over rows, however, all rows are copied for each of its calls. They are
compiled by the machine's C++ compiler when first wanted and kept in the user's cache. Where there is no
compiler, XLA's products are used: slower, and the same but for rounding.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp

from ...caches import cache_folder
from ..window import Rows, Window, as_window, cut, is_part

_SOURCE = Path(__file__).with_name("products.cc")
_FLAGS = ("-O3", "-std=c++17", "-march=native", "-shared", "-fPIC", "-w")
_TARGETS = _INNER_PRODUCTS, _COMBINE = "lamina_inner_products", "lamina_combine"
_PATIENCE = 120  # seconds for the compiler, which takes 5

# Where ours are faster, as measured on two x86 cores with AVX-512.
LEAST_NUMBERS = 2**16  # of the rows, for `combine`
UNCACHED_NUMBERS = 2**25  # of the rows, for `inner_products` of all of an array; a part would be a copy
MOST_WIDTH = 1000  # numbers of a row, for `inner_products`
LEAST_BATCH = 9  # queries, for `inner_products`
MOST_QUERIES = 512
MOST_ANSWERS = 2**18  # numbers that `combine` returns; on its way it holds eight times as many
_log = logging.getLogger(__name__)


def inner_products(rows: Rows, queries: jax.Array) -> jax.Array:
    """The inner products of rows [n, D] and of a few queries [B, D], [n, B]."""
    slow = is_part(rows) or rows.size >= UNCACHED_NUMBERS
    fast = slow and rows.shape[1] <= MOST_WIDTH and LEAST_BATCH <= len(queries) <= MOST_QUERIES
    return _product(_INNER_PRODUCTS, lambda rows, queries: rows @ queries.T, rows, queries, worthwhile=fast)


def combine(scores: jax.Array, rows: Rows) -> jax.Array:
    """Rows [n, F] added up with the scores [n, B] of a few queries as their factors, [B, F]."""
    batch, width = scores.shape[1], rows.shape[1]
    fast = rows.size >= LEAST_NUMBERS and batch <= MOST_QUERIES and batch * width <= MOST_ANSWERS
    return _product(_COMBINE, lambda rows, scores: scores.T @ rows, rows, scores, worthwhile=fast)


def _product(
    target: str,
    by_xla: Callable[[jax.Array, jax.Array], jax.Array],
    rows: Rows,
    factors: jax.Array,
    *,
    worthwhile: bool,
) -> jax.Array:
    """What `by_xla` returns; by our function where that is worthwhile and there: on a CPU, in float32."""
    window = as_window(rows)
    answer = jax.eval_shape(lambda window, factors: by_xla(cut(window), factors), window, factors)

    def by_own(array: jax.Array, start: jax.Array, factors: jax.Array) -> jax.Array:
        call: Callable[..., jax.Array] = jax.ffi.ffi_call(target, answer, vmap_method="sequential")
        return call(array, start, factors)

    def otherwise(array: jax.Array, start: jax.Array, factors: jax.Array) -> jax.Array:
        return by_xla(cut(Window(array, start, window.count)), factors)

    floats = window.array.dtype == factors.dtype == jnp.float32
    own = worthwhile and floats and window.size > 0 and problem() is None
    arguments = window.array, jnp.asarray(window.start, jnp.int32), factors
    if not own:
        return otherwise(*arguments)
    out: jax.Array = jax.lax.platform_dependent(*arguments, cpu=by_own, default=otherwise)
    return out


@cache
def problem() -> str | None:
    """Why there are no functions of our own in this process, in a line; None where there are.

    Compiles them where that has not been done on this machine.
    """
    try:
        library = ctypes.CDLL(str(_library()))
    except (OSError, subprocess.SubprocessError) as error:
        reason = _reason(error)
        _log.info("%s; XLA's products are used, which take longer for few queries", reason)
        return reason
    for target in _TARGETS:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, target)), platform="cpu")
    return None


def _library() -> Path:
    """The compiled functions, which are compiled unless they lie in the cache."""
    folder = cache_folder("native")
    if folder is None:
        raise OSError("the user has no home to keep compiled functions in")
    command = [*_compiler(), *_FLAGS, "-isystem", jax.ffi.include_dir()]
    made_of = (_SOURCE.read_text(), command[:-1], version("jaxlib"), platform.machine(), _processor())
    library = folder / f"products-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}.so"
    if not library.exists():
        if shutil.which(command[0]) is None:
            raise OSError(f"there is no C++ compiler {command[0]} (install one, or name it in CXX)")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as workplace:
            made = Path(workplace, library.name)
            subprocess.run(
                [*command, str(_SOURCE), "-o", str(made)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
            )
            made.replace(library)  # of two processes that compile at once, either's will do
    return library


def _compiler() -> list[str]:
    named = os.environ.get("CXX", "").strip() or "c++"
    try:
        return shlex.split(named)
    except ValueError as error:
        raise OSError(f"CXX is not a command ({str(error).lower()}): {named}") from error


def _processor() -> str:
    """What instructions this processor has: a home may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = next((line for line in error.stderr.splitlines() if "error" in line), "it said nothing")
        return f"{error.cmd[0]} cannot compile {_SOURCE.name}: {said}"
    return f"{_SOURCE.name} cannot be compiled: {error}"
