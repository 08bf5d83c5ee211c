"""Type stubs of the public packages: what their `__init__.py` imports and what `public_names.py` adds, each by name.

    python -m tests.stubs        writes the `__init__.pyi` files anew

A type checker sees nothing of names that are found when they are first used, and takes no name from a package that
does not say it gives it on. A stub says both. Packages that define something of their own have none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from autosched.public_names import NAMES

ROOT = Path(__file__).parents[1] / "autosched"
HEADER = "# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.\n"
HIDDEN = ("autosched.cli", "autosched.codegen", "autosched.templates", "autosched.tuner", "autosched.runtime.c")


def packages() -> Iterator[str]:
    """The packages that have a stub."""
    found = {".".join(path.parent.relative_to(ROOT.parent).parts) for path in ROOT.rglob("__init__.py")} | NAMES.keys()
    for name in sorted(found):
        if not name.startswith(HIDDEN) and (stub(name) or "").count("\n") > 1:
            yield name


def path_of(package: str) -> Path:
    folder = ROOT.parent.joinpath(*package.split("."))
    return folder / "__init__.pyi" if folder.is_dir() else folder.with_suffix(".pyi")


def stub(package: str) -> str | None:
    """The text of a package's stub; None where it defines something of its own."""
    path = path_of(package).with_suffix(".py")
    found = exports(path) if path.exists() else None
    if found is None:
        return None
    for name, where in NAMES.get(package, {}).items():
        module, _, attribute = where.partition(":")
        found[name] = (module, attribute) if attribute else tuple(module.rsplit(".", 1))  # type: ignore[assignment]
    lines, values = [], []
    for own, (module, name) in found.items():
        if name == "*":
            lines.append(f"from {module} import *\n")
            continue
        hidden = own if own == name else f"_{own}"  # only `x as x` gives a name on
        lines.append(f"from {module} import {name} as {hidden}\n" if module else "")
        values.append(f"{own}: Any\n" if not module else f"{own} = {hidden}\n" if hidden != own else "")
    typing = "from typing import Any\n" if any(": Any" in value for value in values) else ""
    return HEADER + typing + "".join(sorted(lines)) + "".join(sorted(values))


def exports(path: Path) -> dict[str, tuple[str, str]] | None:
    """Name -> (module, its name there) of what a package imports; None where it holds more than imports."""
    found: dict[str, tuple[str, str]] = {}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for late in [x for x in body if isinstance(x, ast.If)]:
        body += late.body if ast.unparse(late.test) == "TYPE_CHECKING" else []
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module:
            if statement.module.startswith("autosched"):
                module = statement.module  # a package may take all names of several
                own = {a.asname or (a.name if a.name != "*" else f"* of {module}"): a.name for a in statement.names}
                found |= {name: (module, there) for name, there in own.items()}
        elif isinstance(statement, ast.Assign):
            names, values = (ast.unparse(x).strip("()") for x in (statement.targets[0], statement.value))
            pairs = list(zip(names.split(", "), values.split(", "), strict=False))
            for own, value in pairs:
                if value in found:
                    found[own] = found[value]
                elif "__" not in own and not own.startswith("_"):
                    found[own] = ("", value)
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__":
            continue
        elif not isinstance(statement, ast.Import | ast.Expr):
            return None
    for hidden in ("lazy_names", "public_names"):
        found.pop(hidden, None)
    return found


if __name__ == "__main__":
    for each in packages():
        text = stub(each)
        assert text is not None
        path_of(each).write_text(text, encoding="utf-8")
        print(path_of(each).relative_to(ROOT.parent), text.count("\n") - 1)
