"""Which room may import which: the table of docs/architecture.md against every import statement, read by AST."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROW = re.compile(r"^\|\s*(\d+)\s*\|([^|]*)\|")
ROOM = re.compile(r"`(autosched\.\w+)`")


def read_rows(architecture: str) -> dict[str, int]:
    """Read the row of each room from the first two columns of the page's table."""
    rows: dict[str, int] = {}
    for line in architecture.splitlines():
        if found := ROW.match(line):
            for room in ROOM.findall(found[2]):
                if room in rows:
                    raise ValueError(f"{room} stands in two rows")
                rows[room] = int(found[1])
    return rows


@dataclass(frozen=True, slots=True)
class Import:
    """Module `importer` has, in line `line`, an import of `imported`."""

    importer: str
    imported: str
    line: int


def find_imports(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """Find what a module of autosched imports from autosched, also inside functions and type-checking blocks."""
    parts = module.split(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            # `from autosched import tir` imports a room; elsewhere the name after `import` changes nothing
            names = [f"{prefix}.{alias.name}" for alias in node.names] if prefix == "autosched" else [prefix]
        elif isinstance(node, ast.Call) and node.args and _callee(node.func) in ("import_module", "__import__"):
            argument = node.args[0]
            names = [argument.value] if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else []
        else:
            continue
        for name in names:
            if name.split(".")[0] == "autosched":
                yield Import(module, name, node.lineno)


def _callee(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def room_of(module: str) -> str:
    """Name the room that a module is in; the top of the package is its own."""
    return ".".join(module.split(".")[:2])


def judge(found: Import, rows: Mapping[str, int]) -> str | None:
    """Say what is wrong with an import, or None: it must stay in its room or go to a row further down."""
    importer, imported = room_of(found.importer), room_of(found.imported)
    if importer in ("autosched", imported):
        return None
    for room in (importer, imported):
        if room not in rows:
            return f"{found.importer}:{found.line} imports {found.imported}, but {room} is in no row of the table"
    if rows[imported] > rows[importer]:
        return None
    direction = "sideways" if rows[imported] == rows[importer] else "up"
    return (
        f"{found.importer}:{found.line} imports {found.imported}: an arrow {direction}, "
        f"from row {rows[importer]} to row {rows[imported]}"
    )


def modules(package: Path) -> Iterator[tuple[str, bool, str]]:
    """Give (dotted name, is it a package, source) of each module below a package's folder."""
    for path in sorted(package.rglob("*.py")):
        parts = list(path.relative_to(package.parent).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if is_package else parts), is_package, path.read_text(encoding="utf-8")
