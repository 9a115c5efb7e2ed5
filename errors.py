"""The exceptions that Lamina raises on purpose.

Each derives from a builtin, so callers need not know Lamina to catch it, and from `LaminaError`, by
which the command line tells an expected failure (one line, exit code 1 or 2) from a fault of its own.
A message says what was expected, what was found and what to do, in one line.
"""


class LaminaError(Exception):
    """Any failure that Lamina foresees; the command line exits with `exit_code`."""

    exit_code = 1


class ConfigError(LaminaError, ValueError):
    """A configuration, option or argument that the user can correct."""

    exit_code = 2


class MissingDataError(LaminaError, FileNotFoundError):
    """Data, a run or a memory that is not where it was looked for."""

    exit_code = 2

    def __str__(self) -> str:
        return Exception.__str__(self)


def not_installed(package: str, purpose: str, extra: str) -> MissingDataError:
    """The error of an optional package that is missing.

    >>> str(not_installed("matplotlib", "to draw with", "plots"))
    "expected matplotlib to draw with; it is not installed: pip install 'lamina[plots]'"
    """
    return MissingDataError(
        f"expected {package} {purpose}; it is not installed: pip install 'lamina[{extra}]'"
    )


class BusyError(LaminaError, RuntimeError):
    """A run directory, port or other resource that somebody else holds."""

    exit_code = 2


class DataError(LaminaError, ValueError):
    """Input whose content is wrong: truncated, foreign, not finite, of another shape or range."""


class FormatError(LaminaError, ValueError):
    """A file of ours that is damaged or was written by a newer version."""


class StorageError(LaminaError, OSError):
    """The file system refused: full, read-only, or failing."""

    def __str__(self) -> str:
        return Exception.__str__(self)
