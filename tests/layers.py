"""Which package may import which: the table of docs/architecture.md against every import and name, read by AST."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROW = re.compile(r"^\|\s*(\d+)\s*\|([^|]*)\|")
PACKAGE = re.compile(r"`(autosched\.\w+)`")
NAME = re.compile(r"(autosched\.\w+(?:\.\w+)*)(?::\w*)?")  # "module" or "module:attribute"


def read_rows(architecture: str) -> dict[str, int]:
    """Read the row of each package from the first two columns of the page's table."""
    rows: dict[str, int] = {}
    for line in architecture.splitlines():
        if found := ROW.match(line):
            for package in PACKAGE.findall(found[2]):
                if package in rows:
                    raise ValueError(f"{package} stands in two rows")
                rows[package] = int(found[1])
    return rows


@dataclass(frozen=True, slots=True)
class Import:
    """Module `importer` has, in line `line`, an import of `imported`, or a string that names it."""

    importer: str
    imported: str
    line: int
    is_string: bool = False


@cache
def naming_nodes(source: str) -> tuple[ast.Import | ast.ImportFrom | ast.Constant, ...]:
    """What in a source names modules: its imports, and texts of a module's form. Several tests ask for all modules'."""
    return tuple(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value))
    )


def find_imports(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """Find what a module of autosched imports from autosched, also inside functions and type-checking blocks.

    A string that names a module is an import too: somebody will import by it.
    """
    parts = module.split(".")
    for node in naming_nodes(source):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            # `from autosched import tir` imports a package; elsewhere the name after `import` changes nothing
            names = [f"{prefix}.{alias.name}" for alias in node.names] if prefix == "autosched" else [prefix]
        else:
            found = NAME.fullmatch(str(node.value))
            assert found is not None
            yield Import(module, found[1], node.lineno, is_string=True)
            continue
        for name in names:
            if name.split(".")[0] == "autosched":
                yield Import(module, name, node.lineno)


def package_of(module: str) -> str:
    """Name the package below autosched that a module is in; the top is its own."""
    return ".".join(module.split(".")[:2])


def judge(found: Import, rows: Mapping[str, int]) -> str | None:
    """Say what is wrong with an import, or None: it must stay in its package or go to a row further down.

    A string that names nothing in the table, such as an attribute's key, is no import.
    """
    importer, imported = package_of(found.importer), package_of(found.imported)
    if importer in ("autosched", imported) or (found.is_string and imported not in rows):
        return None
    for package in (importer, imported):
        if package not in rows:
            return f"{found.importer}:{found.line} imports {found.imported}, but {package} is in no row of the table"
    if rows[imported] > rows[importer]:
        return None
    direction = "sideways" if rows[imported] == rows[importer] else "up"
    return (
        f"{found.importer}:{found.line} imports {found.imported}: an arrow {direction}, "
        f"from row {rows[importer]} to row {rows[imported]}"
    )


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other in a circle, each sorted: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in imports[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in imports:
        if module not in index:
            visit(module)
    return sorted(found)


def imports_between(package: Path) -> dict[str, set[str]]:
    """Which modules each module of autosched imports, also in functions; a name of a package is the package itself."""
    known = {module: (is_package, source) for module, is_package, source in modules(package)}
    result: dict[str, set[str]] = {}
    for module, (is_package, source) in known.items():
        parts, found = module.split("."), set[str]()
        for node in naming_nodes(source):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = parts[: len(parts) - node.level + is_package] if node.level else []
                prefix = ".".join([*base, *([node.module] if node.module else [])])
                found |= {f"{prefix}.{a.name}" if f"{prefix}.{a.name}" in known else prefix for a in node.names}
        result[module] = (found & known.keys()) - {module}
    return result


def modules(package: Path) -> Iterator[tuple[str, bool, str]]:
    """Give (dotted name, is it a package, source) of each module below a package's folder."""
    for path in sorted(package.rglob("*.py")):
        parts = list(path.relative_to(package.parent).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if is_package else parts), is_package, path.read_text(encoding="utf-8")
