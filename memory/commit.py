"""Writing a whole generation: what a commit or a branch puts on disk before the head names it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .catalogue import Catalogue
from .generation import Generation
from .inventory import Head, Inventory
from .linked import ChunksUpdate
from .table_writer import TableUpdate


def write_generation(
    catalogue: Catalogue,
    view: Generation | None,
    head: Head,
    updates: Mapping[str, TableUpdate | ChunksUpdate],
    blobs: Mapping[str, bytes],
) -> None:
    """Writes and publishes a generation, without naming it the head.

    Args:
      catalogue: where it belongs.
      view: the generation before, whose files are shared; None: there is none.
      head: numbers, meta and row counts of the new one.
      updates: the tables that change; all others are shared whole.
      blobs: all its blobs.

    Raises:
      OSError: the file system refused; what was written is a leftover that `prune` removes.
    """
    layouts = {} if view is None else dict(view.inventory.layouts)
    source = None if view is None else view.path
    with catalogue.draft(head.generation, source) as draft:
        if view is not None:
            for name in set(layouts) - set(updates):
                draft.share_table(view.inventory, name)
        for name, update in updates.items():
            update.write(draft)
            layouts[name] = update.after.layout
        inventory = Inventory(head, layouts, draft.write_blobs(blobs))
        draft.publish(inventory, catalogue.folder(head.generation))


def write_branch(catalogue: Catalogue, source: Generation) -> int:
    """Writes and publishes a generation equal to another store's, without naming it the head.

    Args:
      catalogue: where it belongs.
      source: the generation whose files are shared.

    Returns:
      Its number.

    Raises:
      OSError: the file system refused.
    """
    number = catalogue.next_number()
    inventory = replace(source.inventory, head=replace(source.head, generation=number))
    with catalogue.draft(number, source.path) as draft:
        for name in source.tables:
            draft.share_table(inventory, name)
        draft.share(Path("blobs"), source.blobs)
        draft.publish(inventory, catalogue.folder(number))
    return number
