"""What a generation must consist of: its numbers, and every file's name and size."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .layout import Layout
from .sealed import FORMAT_VERSION, unseal

INVENTORY = "generation.json"
"""The file of a generation that holds its inventory."""


@dataclass(frozen=True)
class TableCounts:
    """Rows of a table, and how many of them are alive."""

    rows: int
    alive: int


@dataclass(frozen=True)
class Head:
    """What a generation says of itself.

    Attributes:
      generation: its number, growing with every commit.
      step: the training step it holds.
      meta: the JSON object given to its commit.
      tables: table name → row counts.
      format_version: of the files.
    """

    generation: int
    step: int
    meta: dict[str, Any]
    tables: Mapping[str, TableCounts]
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Inventory:
    """All that a generation must consist of: `generation.json`.

    Attributes:
      head: numbers, meta and row counts.
      layouts: table name → columns and chunk geometry.
      blobs: blob name → (bytes, CRC-32).
    """

    head: Head
    layouts: Mapping[str, Layout]
    blobs: Mapping[str, tuple[int, int]]

    def document(self) -> dict[str, Any]:
        """The inventory as JSON, to be sealed."""
        tables = {
            name: {"rows": c.rows, "alive": c.alive, **self.layouts[name].record()}
            for name, c in self.head.tables.items()
        }
        return {
            "generation": self.head.generation,
            "step": self.head.step,
            "tables": tables,
            "blobs": {name: list(facts) for name, facts in self.blobs.items()},
            "meta": self.head.meta,
        }

    @classmethod
    def load(cls, folder: Path) -> "Inventory":
        """Reads a generation's inventory.

        Raises:
          FormatError: it is damaged, or of a newer format.
          FileNotFoundError: the generation is gone.
        """
        document = unseal(folder / INVENTORY)
        tables = document["tables"]
        counts = {name: TableCounts(t["rows"], t["alive"]) for name, t in tables.items()}
        version, meta = document["format_version"], document["meta"]
        return cls(
            Head(document["generation"], document["step"], meta, counts, version),
            {name: Layout.from_record(t) for name, t in tables.items()},
            {name: (size, crc) for name, (size, crc) in document["blobs"].items()},
        )

    def column_files(self) -> Iterator[tuple[str, str, Path, Iterator[tuple[str, int]]]]:
        """Each column as (table, column, folder below the generation, its chunk files and sizes)."""
        for table, layout in self.layouts.items():
            for column in layout.columns:
                files = layout.files(column, self.head.tables[table].rows)
                yield table, column, Path("tables", table, column), files
