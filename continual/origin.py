"""A persisted memory that a new run starts from."""

from dataclasses import dataclass
from pathlib import Path

from ..memory.store import Store

MEMORY = "memory"  # a run's store, in its folder


@dataclass(frozen=True)
class Origin:
    """A persisted memory to start a run from: `RUN` or `RUN@STEP`."""

    directory: Path  # the run that holds it
    at: int | str | None = None  # a step or a tag; None: its last commit

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """
        >>> Origin.parse("runs/digits@180").at
        180
        """
        directory, separator, at = text.rpartition("@")
        if not separator or "/" in at:  # an @ in a folder's name
            directory, at = text, ""
        return cls(Path(directory), int(at) if at.isdecimal() else at or None)

    def branch(self, path: Path) -> Store:
        """Makes a store that begins with this memory; the two share bytes, and neither changes the other.

        Raises:
          MissingDataError: there is no such memory.
          FormatError: it is damaged.
          StorageError: the file system refused.
        """
        with Store.open(self.directory / MEMORY) as parent:
            return parent.branch(path, self.at)
