"""scoresᵀ · rows on a CPU by a function of Lamina's own: the one product of retrieval that XLA is slow at.

For few queries and wide rows XLA takes three times as long as reading the rows does, the function of
`combine.cc` 1.3 times (`benchmarks.retrieval`). It is compiled by the machine's C++ compiler when first
wanted and kept in the user's cache. Where there is no compiler, XLA's product is used: slower, and the same
but for rounding.
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

_TARGET = "lamina_combine"
_SOURCE = Path(__file__).with_name("combine.cc")
_FLAGS = ("-O3", "-std=c++17", "-march=native", "-shared", "-fPIC", "-w")
LEAST_NUMBERS = 2**16  # of the rows: with fewer, neither product takes longer than what is around it
_PATIENCE = 120  # seconds for the compiler, which takes 4
_log = logging.getLogger(__name__)


def combine(scores: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows added up with scores as their factors, scoresᵀ · rows.

    Args:
      scores: [n, B], for few queries B.
      rows: [n, F].

    Returns:
      [B, F]. On a CPU in float32 every sum is added up in an order that depends on n alone.
    """

    def by_xla(scores: jax.Array, rows: jax.Array) -> jax.Array:
        return scores.T @ rows

    def by_own(scores: jax.Array, rows: jax.Array) -> jax.Array:
        out = jax.eval_shape(by_xla, scores, rows)
        call: Callable[..., jax.Array] = jax.ffi.ffi_call(_TARGET, out, vmap_method="sequential")
        return call(scores, rows)

    worthwhile = rows.size >= LEAST_NUMBERS and scores.dtype == rows.dtype == jnp.float32
    if not (worthwhile and problem() is None):
        return by_xla(scores, rows)
    out: jax.Array = jax.lax.platform_dependent(scores, rows, cpu=by_own, default=by_xla)
    return out


@cache
def problem() -> str | None:
    """Why there is no function of our own in this process, in a line; None where there is one.

    Compiles it where that has not been done on this machine.
    """
    try:
        function = getattr(ctypes.CDLL(str(_library())), _TARGET)
    except (OSError, subprocess.SubprocessError) as error:
        reason = _reason(error)
        _log.info("%s; XLA's products are used, which take longer for few queries", reason)
        return reason
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(function), platform="cpu")
    return None


def _library() -> Path:
    """The compiled function, which is compiled unless it lies in the cache."""
    folder = cache_folder("native")
    if folder is None:
        raise OSError("the user has no home to keep a compiled function in")
    command = [*shlex.split(os.environ.get("CXX", "c++")), *_FLAGS, "-isystem", jax.ffi.include_dir()]
    made_of = (_SOURCE.read_text(), command[:-1], version("jaxlib"), platform.machine(), _processor())
    library = folder / f"combine-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}.so"
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
