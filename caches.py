"""Where Lamina keeps what it can make again: compiled programs and functions."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """The user's folder for a kind of thing, by the XDG convention; None where the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lamina", name)
    except RuntimeError:
        return None
