"""Who may import whom: the table in docs/architecture.md, read from the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lamina
import pytest

ROOT = Path(lamina.__file__).resolve().parent
GROUND = {"errors", "durable", "caches"}
ROOMS = {"stream", "memory", "learners", "monitoring", "continual"}
ALLOWED = {
    "errors": set[str](),
    "durable": {"errors"},
    "caches": set[str](),
    "stream": GROUND,
    "memory": GROUND,
    "learners": GROUND | {"memory"},
    "monitoring": GROUND | {"memory"},
    "continual": GROUND | ROOMS,
}
TOP = {"cli", "commands", "__main__", "__init__"}  # may import everything
# What monitoring may see of memory/, and what it may not do with a store.
VIEWS = {("memory", "store", "Store"), ("memory", "generation", "Generation"), ("memory", "table", "Table")}
WRITING = {"create", "commit", "branch", "untag"}

FOLDERS = [*sorted(ROOMS), "commands"]
MODULES = sorted(
    [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
)


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of ours that a file imports anywhere in it, as parts below the package's root."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                assert name.name.split(".")[0] != "lamina", f"{path}: imports inside the package are relative"
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] != "lamina" or node.level, (
                f"{path}: use relative imports"
            )
            if node.level:
                base = package[: len(package) - node.level + 1]
                target = (*base, *(node.module or "").split(".")) if node.module else base
                yield from ((*target, name.name) for name in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(path)
    if room in TOP:
        return
    found = {target[0] for target in imports(path)} - {room}
    assert found <= ALLOWED[room], f"{path} may import {sorted(ALLOWED[room])}; it imports {sorted(found)}"


def test_monitoring_only_reads_the_memory() -> None:
    for path in MODULES:
        if room_of(path) != "monitoring":
            continue
        used = {target for target in imports(path) if target[0] == "memory"}
        assert used <= VIEWS, f"{path} imports {used - VIEWS}"
        if used:
            tree = list(ast.walk(ast.parse(path.read_text())))
            assert not any(isinstance(n, ast.keyword) and n.arg == "writable" for n in tree), path
            assert not WRITING & {n.attr for n in tree if isinstance(n, ast.Attribute)}, path


def test_every_module_belongs_to_a_room() -> None:
    assert {room_of(path) for path in MODULES} == ALLOWED.keys() | TOP
    assert len(MODULES) > 50


def test_the_checked_table_is_the_documented_one() -> None:
    """A room added to the documentation, or a room whose rights change there, must change here."""
    table = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`") and cells[0].endswith("/`"):
            table[cells[0].strip("`/")] = cells[2]
    assert set(table) == ROOMS
    for room, rights in table.items():
        named = set(re.findall(r"`(\w+)`", rights))
        expected = ROOMS if rights == "all rooms" else named
        assert ALLOWED[room] == GROUND | expected, f"{room} may import {rights}"
