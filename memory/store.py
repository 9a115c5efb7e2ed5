"""The zarr store: a folder of generations, of which `HEAD.json` names the current one.

Commit N+1 builds a complete tree beside generation N, sharing unchanged files by hard links; makes
files, then folders, then the inventory durable; replaces `HEAD.json` atomically; and only then deletes
generations without a tag. Whatever moment a kill or a power loss hits, `HEAD.json` names a whole one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..durable import FolderLock, storage_errors
from ..errors import (
    ConfigError,
    DataError,
    FormatError,
    LaminaError,
    MissingDataError,
    StorageError,
)
from .catalogue import Catalogue
from .commit import write_branch, write_generation
from .generation import Generation
from .inventory import INVENTORY, Head, TableCounts
from .layout import valid_name
from .linked import ChunksChange, ChunksUpdate
from .table import Table
from .table_writer import TableChange, TableState, TableUpdate

__all__ = ["ChunksChange", "Generation", "Head", "Store", "Table", "TableChange", "TableCounts"]


class Store:
    """Tables of numbers and blobs of bytes that change in atomic, durable commits.

    One process at a time writes a store; any number read it meanwhile, each keeping the generation it
    looks at. Make one with `create`, `open` or `branch`, and close it (or use it in a `with`).

    Example:
      >>> import tempfile, numpy as np
      >>> store = Store.create(Path(tempfile.mkdtemp(), "memory"))
      >>> rows = {"keys": np.ones((3, 2), np.float32)}
      >>> _ = store.commit(step=1, tables={"layer": TableChange(rows)}, blobs={}, meta={})
      >>> store.commit(step=2, tables={"layer": TableChange(rows)}, blobs={}, meta={}).tables["layer"]
      TableCounts(rows=6, alive=6)
      >>> store.generation().tables["layer"].read("keys", 5)
      array([[1., 1.]], dtype=float32)
      >>> store.close()
    """

    def __init__(self, catalogue: Catalogue, lock: FolderLock | None) -> None:
        self._catalogue = catalogue
        self._lock = lock
        self._states: dict[str, TableState] = {}
        self._view: Generation | None = None
        self._show_head()
        if lock is not None:
            catalogue.prune()

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self._catalogue.path

    @property
    def head(self) -> Head | None:
        """The last committed generation; None before the first commit."""
        return None if self._view is None else self._view.head

    @classmethod
    def create(cls, path: Path) -> "Store":
        """Makes an empty store and takes its write lock.

        Args:
          path: a folder that is empty or does not exist yet (its parents are made).

        Returns:
          The store, writable, with `head` None.

        Raises:
          ConfigError: the folder holds something.
          BusyError: another process is making a store there.
          StorageError: the file system refused.
        """
        path = Path(path)
        Catalogue.require_room(path)
        with _storage_errors(path), ExitStack() as undo:
            path.mkdir(parents=True, exist_ok=True)
            lock = undo.enter_context(FolderLock(path))
            Catalogue.require_room(path)
            undo.callback(Catalogue.forget, path)
            store = cls(Catalogue.create(path), lock)
            undo.pop_all()
            return store

    @classmethod
    def open(cls, path: Path, *, writable: bool = False, check: bool = True) -> "Store":
        """Opens a store at its head.

        Args:
          path: the store's folder.
          writable: take the write lock and remove what interrupted commits left.
          check: compare the head's files with its inventory (names and sizes; `verify` does more).
            Without it a damaged head can still be looked into, and its tags be branched from.

        Returns:
          The store.

        Raises:
          MissingDataError: there is no store.
          FormatError: it is damaged, or written by a newer version.
          BusyError: it is to be written, and another process writes it.
          StorageError: it is to be written, and the file system refused.
        """
        path = Path(path)
        catalogue = Catalogue(path)
        with ExitStack() as undo:
            lock = undo.enter_context(FolderLock(path)) if writable else None
            catalogue.load()  # what it says under the lock is what counts
            store = undo.enter_context(cls(catalogue, lock))
            if check and store._view is not None:
                _refuse(store.path, store._view.problems())
            undo.pop_all()
            return store

    def commit(
        self,
        *,
        step: int,
        tables: Mapping[str, TableChange | ChunksChange],
        blobs: Mapping[str, bytes],
        meta: Mapping[str, Any],
        tag: str | None = None,
    ) -> Head:
        """Makes a new generation the head, atomically and durably.

        Args:
          step: the training step reached.
          tables: table name → its change; tables not named stay as they are, new ones are added.
          blobs: all blobs of the new generation, by name.
          meta: a JSON object.
          tag: a name that keeps this generation until `untag`.

        Returns:
          The new head.

        Raises:
          DataError: a change that does not fit its table, or `meta` that is no JSON.
          ConfigError: the store is open for reading only, a bad name, or a tag that is in use.
          StorageError: the file system refused; head and tables are as before, and a later commit
            of the same changes works.
        """
        self._require_writable()
        self._check_names(tables, blobs, tag)
        content = _as_json(meta)
        updates = {name: _plan(name, self._state(name), change) for name, change in tables.items()}
        with self._all_or_nothing():
            number = self._catalogue.next_number()
            counts = {} if self._view is None else dict(self._view.head.tables)
            counts |= {name: u.after.counts for name, u in updates.items()}
            head = Head(number, int(step), content, counts)
            write_generation(self._catalogue, self._view, head, updates, blobs)
            named = {} if tag is None else {tag: number}
            self._catalogue.replace(number, self._catalogue.tags | named)
            self._show_head()
        self._states |= {name: update.after for name, update in updates.items()}
        self._catalogue.prune()
        return head

    def generation(self, at: int | str | None = None) -> Generation:
        """Opens a committed state for reading; it stays on disk until the view is closed.

        Args:
          at: None for the head, a tag, or the step of the head or of a tagged generation.

        Returns:
          The view. Its files are not checked here beyond what reading them does; see `verify`.

        Raises:
          MissingDataError: there is no such generation.
          FormatError: its inventory is damaged.
        """
        folder = self._catalogue.folder(self._catalogue.find(at))
        try:
            return Generation(folder)
        except FileNotFoundError:
            raise MissingDataError(
                f"{folder} was deleted since this store was opened; open the store again"
            ) from None

    def tags(self) -> dict[str, Head]:
        """The named generations, oldest first."""
        return self._catalogue.tagged()

    def untag(self, name: str) -> None:
        """Takes a name away; a generation without a name that is not the head is deleted.

        Raises:
          MissingDataError: there is no such tag.
          ConfigError: the store is open for reading only.
          StorageError: the file system refused; the tag is still there.
        """
        self._require_writable()
        tags = dict(self._catalogue.tags)
        if tags.pop(name, None) is None:
            raise MissingDataError(
                f"{self.path}: expected a tag of {sorted(self._catalogue.tags)}, found {name!r}"
            )
        with self._all_or_nothing():
            self._catalogue.replace(self._catalogue.number, tags)
        self._catalogue.prune()

    def branch(self, target: Path, at: int | str | None = None) -> "Store":
        """Makes a new store that begins with one of this store's generations.

        The two share bytes (hard links) but nothing else: neither ever changes the other.

        Args:
          target: a folder that is empty or does not exist yet; on another file system the bytes are
            copied.
          at: which generation; see `generation`.

        Returns:
          The new store, writable, without tags.

        Raises:
          MissingDataError: there is no such generation.
          FormatError: its files are damaged.
          ConfigError: the target holds something.
          StorageError: the file system refused.
        """
        with self.generation(at) as source:
            _refuse(source.path, source.problems())
            with ExitStack() as undo:
                store = undo.enter_context(Store.create(target))
                undo.callback(Catalogue.forget, store.path)
                store._begin_with(source)
                undo.pop_all()
                return store

    def verify(self, at: int | str | None = None, *, deep: bool = False) -> list[str]:
        """Compares a generation's files with its inventory.

        Args:
          at: which generation; see `generation`.
          deep: read every chunk and blob and check its CRC; else names, sizes and shapes only.

        Returns:
          The problems, one line each; none for a store without commits.
        """
        if at is None and self.head is None:
            return []
        try:
            with self.generation(at) as generation:
                return generation.problems(deep=deep)
        except FormatError as error:
            return [str(error)]

    def close(self) -> None:
        """Releases the write lock and the head; closing twice is harmless."""
        if self._view is not None:
            self._view.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_with(self, source: Generation) -> None:
        with self._all_or_nothing():
            self._catalogue.replace(write_branch(self._catalogue, source), {})
            self._show_head()

    def _show_head(self) -> None:
        """Opens the generation that the catalogue names as the head, and so keeps it on disk."""
        while (number := self._catalogue.number) is not None:
            try:
                view = Generation(self._catalogue.folder(number))
                break
            except FileNotFoundError:  # a writer may have moved on since the catalogue was read
                self._catalogue.load()
                if self._catalogue.number == number:
                    raise FormatError(
                        f"{self._catalogue.folder(number)} is the head of the store but is missing "
                        f"its {INVENTORY}; restore the store from a copy"
                    ) from None
        else:
            return
        if self._view is not None:
            self._view.close()
        self._view = view

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        before = (self._catalogue.number, self._catalogue.tags)
        with _storage_errors(self.path):
            try:
                yield
            except BaseException:
                self._recover(before)
                raise

    def _recover(self, before: tuple[int | None, dict[str, int]]) -> None:
        """Goes on from what the disk says after a failed change."""
        self._catalogue.load()
        if (self._catalogue.number, self._catalogue.tags) == before:
            self._catalogue.prune()
        else:
            # The failure came after the new head was in place but before that was durable: it
            # stands, and the old generation stays until a later change is durable.
            self._states.clear()
            self._show_head()

    def _state(self, name: str) -> TableState | None:
        view = self._view
        if name not in self._states and view is not None and name in view.tables:
            layout = view.inventory.layouts[name]
            self._states[name] = TableState.load(name, layout, view.tables[name])
        return self._states.get(name)

    def _require_writable(self) -> None:
        if self._lock is None:
            raise ConfigError(f"{self.path} is open for reading; open it with writable=True")

    def _check_names(self, tables: Iterable[str], blobs: Iterable[str], tag: str | None) -> None:
        for name in (*tables, *blobs):
            if not valid_name(name):
                raise ConfigError(
                    f"expected table and blob names of letters, digits, '_', '-' and '.', found {name!r}"
                )
        if tag is not None and (not tag or tag in self._catalogue.tags):
            raise ConfigError(
                f"{self.path}: expected a new tag, found {tag!r} (in use: "
                f"{sorted(self._catalogue.tags)}); untag it first or choose another"
            )


def _plan(
    name: str, state: TableState | None, change: TableChange | ChunksChange
) -> TableUpdate | ChunksUpdate:
    if isinstance(change, ChunksChange):
        return ChunksUpdate.plan(name, state, change)
    return TableUpdate.plan(name, state, change)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        with storage_errors(path):
            yield
    except OSError as error:
        if isinstance(error, LaminaError):
            raise
        raise StorageError(f"cannot write {path}: {error}; what was committed before is intact") from error


def _refuse(path: Path, problems: list[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise FormatError(f"{problems[0]}{more}; restore {path} from a copy")


def _as_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(json.dumps(dict(meta))))
    except (TypeError, ValueError) as error:
        raise DataError(f"expected meta that is JSON, found {error}") from None
