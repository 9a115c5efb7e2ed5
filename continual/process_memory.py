"""The resident memory of this process."""

import ctypes
import resource


def peak_rss_bytes() -> int:
    """The largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def release_free_memory() -> None:
    """Gives what was freed back to the operating system, where the C library can (glibc).

    After compilations and evaluations glibc holds on to hundreds of megabytes (measured: 190 beside a
    database of 350), which would look like memory of the databases.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
