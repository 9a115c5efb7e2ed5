"""Where commands keep compiled programs."""

import warnings

from ..caches import cache_folder


def keep_programs() -> None:
    """Keeps compiled programs between processes: a resumed run starts without compiling."""
    import jax

    folder = cache_folder("xla")
    if folder is None:
        return
    # A cache that cannot be read or written, or an entry torn by a kill, costs a compilation, no more.
    warnings.filterwarnings("ignore", "Error .* persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
