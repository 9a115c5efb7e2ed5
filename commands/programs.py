"""Where commands keep compiled programs."""

import os
import warnings
from pathlib import Path


def keep_programs() -> None:
    """Keeps compiled programs between processes: a resumed run starts without compiling."""
    import jax

    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lamina", "xla")
    except RuntimeError:  # a user without a home
        return
    # A cache that cannot be read or written, or an entry torn by a kill, costs a compilation, no more.
    warnings.filterwarnings("ignore", "Error .* persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
