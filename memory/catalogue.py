"""Which generation is the head and which have names: `HEAD.json`, and the folders it speaks for."""

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..durable import sync_folder, write_durably
from ..errors import ConfigError, FormatError, MissingDataError
from .draft import Draft
from .inventory import INVENTORY, Head, Inventory
from .sealed import seal, unseal

_HEAD = "HEAD.json"
_GENERATIONS = "generations"
_OURS = re.compile(r"\d{9,}|\.draft-\d+")


class Catalogue:
    """The generations of a store.

    Attributes:
      path: the store's folder.
      number: the head's number; None before the first commit.
      tags: name → generation number.

    Raises:
      MissingDataError: there is no store in the folder.
      FormatError: `HEAD.json` is damaged or of a newer format.
    """

    number: int | None
    tags: dict[str, int]

    def __init__(self, path: Path) -> None:
        self.path = path
        self.load()

    @classmethod
    def create(cls, path: Path) -> "Catalogue":
        """Makes the folders and the head of a store without generations."""
        (path / _GENERATIONS).mkdir(exist_ok=True)
        sync_folder(path.parent)
        write_durably(path / _HEAD, seal({"generation": None, "tags": {}}))
        return cls(path)

    @staticmethod
    def require_room(path: Path) -> None:
        """Checks that a store can be made in a folder.

        Raises:
          ConfigError: it holds something, other than what an interrupted making of a store leaves.
        """
        if not path.exists():
            return
        found = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else ["a file"]
        if foreign := set(found) - {".lock", _GENERATIONS}:
            raise ConfigError(
                f"{path}: expected an empty folder to make a store in, found {min(foreign)}; "
                "choose another folder"
            )

    def load(self) -> None:
        """Reads `HEAD.json` again."""
        try:
            document = unseal(self.path / _HEAD)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingDataError(
                f"{self.path} holds no memory: expected its {_HEAD}; check the path"
            ) from None
        self.number = document["generation"]
        self.tags = dict(document["tags"])

    def replace(self, number: int | None, tags: Mapping[str, int]) -> None:
        """Names another head and other tags, atomically and durably."""
        write_durably(self.path / _HEAD, seal({"generation": number, "tags": dict(tags)}))
        self.number, self.tags = number, dict(tags)

    @staticmethod
    def forget(path: Path) -> None:
        """Takes `HEAD.json` away: the folder holds no store any more and may be chosen again."""
        (path / _HEAD).unlink(missing_ok=True)

    def folder(self, number: int) -> Path:
        """The folder of a generation."""
        return self.path / _GENERATIONS / f"{number:09d}"

    def tagged(self) -> dict[str, Head]:
        """Each tag's generation, oldest first.

        Raises:
          FormatError: a tagged generation is missing or damaged.
        """
        by_age = sorted(self.tags.items(), key=lambda item: item[1])
        return {tag: self._head_of(number) for tag, number in by_age}

    def find(self, at: int | str | None) -> int:
        """The number of a generation.

        Args:
          at: None for the head, a tag, or the step of the head or of a tagged generation.

        Raises:
          MissingDataError: there is no such generation.
          FormatError: one that had to be looked at is missing or damaged.
        """
        if at is None and self.number is not None:
            return self.number
        if isinstance(at, str) and at in self.tags:
            return self.tags[at]
        tagged = self.tagged()
        known = {f"{tag} (step {head.step})": head for tag, head in tagged.items()}
        if self.number is not None:
            head = self._head_of(self.number)
            known[f"head (step {head.step})"] = head
        for head in reversed(known.values()):
            if at is not None and head.step == at:
                return head.generation
        found = "no commit" if at is None else repr(at)
        raise MissingDataError(f"{self.path}: expected one of [{', '.join(known)}], found {found}")

    def next_number(self) -> int:
        """A number above those of all generations, leftovers included."""
        names = (entry.name for entry in (self.path / _GENERATIONS).iterdir())
        return max([self.number or 0, *(int(name) for name in names if name.isdigit())]) + 1

    def draft(self, number: int, source: Path | None) -> Draft:
        """Begins a generation that shares the files of `source`."""
        return Draft(self.path / _GENERATIONS / f".draft-{number}", source)

    def prune(self) -> None:
        """Deletes what neither the head nor a tag names, interrupted drafts included.

        A generation that somebody is reading, or that the file system will not delete, stays until a
        later call.
        """
        named = {self.folder(number) for number in self.tags.values()}
        if self.number is not None:
            named.add(self.folder(self.number))
        for folder in (self.path / _GENERATIONS).iterdir():
            if folder not in named and _OURS.fullmatch(folder.name):
                with suppress(OSError):
                    _delete(folder)

    def _head_of(self, number: int) -> Head:
        try:
            return Inventory.load(self.folder(number)).head
        except FileNotFoundError:
            raise FormatError(
                f"{self.folder(number)} is named by {self.path / _HEAD} but is missing its "
                f"{INVENTORY}; untag it, or restore the store from a copy"
            ) from None


def _delete(folder: Path) -> None:
    # The exclusive lock is refused while a reader's lease (generation.Lease) holds a shared one.
    try:
        descriptor = os.open(folder / INVENTORY, os.O_RDWR)
    except FileNotFoundError:
        shutil.rmtree(folder)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)
