"""Names that a package shows and hooks that it calls, though a package above it defines them.

A package above both registers them as strings (`autosched.public_names`); they are imported on first use. A
package takes part with one line, `__getattr__, __dir__ = lazy_names(__name__)`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

_names: dict[str, dict[str, str]] = {}  # package -> name -> "module" (the module itself) or "module:attribute"
_hooks: dict[str, str] = {}


def register(names: Mapping[str, Mapping[str, str]], hooks: Mapping[str, str]) -> None:
    """Add names by package, and hooks by what the lower package calls them."""
    for package, added in names.items():
        _names.setdefault(package, {}).update(added)
    _hooks.update(hooks)


def missing(package: str) -> str:
    """What a user reads of a package that is not installed."""
    return f"this needs the package {package}, which is not installed; `pip install autosched` installs what is needed"


def resolve(where: str) -> Any:
    """Import what "module" or "module:attribute" names.

    Raises ModuleNotFoundError, and says what installs it, where a package is missing: what serves models has few.
    """
    module, _, attribute = where.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "autosched").partition(".")[0]
        if package == "autosched":
            raise
        raise ModuleNotFoundError(missing(package), name=error.name) from error
    return getattr(loaded, attribute) if attribute else loaded


def hook(name: str) -> Any:
    """What a higher package has registered under a name. Raises KeyError if nothing was."""
    return resolve(_hooks[name])


def _is_public(name: str, value: object) -> bool:
    """Whether a package has a name for its users, and did not import it for itself."""
    return name not in ("annotations", "lazy_names") and (value is None or value is not getattr(typing, name, None))


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package with late names. Raises KeyError where none are registered.

    A name is looked up once: it becomes an attribute of the package when it is first used.
    """
    names = _names[package]

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = resolve(names[name])
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        here = (name for name, value in vars(sys.modules[package]).items() if _is_public(name, value))
        return sorted({*here, *names})

    return get, list_names


class _AliasFinder:
    """Lets `import` find a module under a second name; both names give one module.

    A finder and loader by what it does: their base classes, in importlib.abc, take longer to load than all of this.
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self.aliases = aliases
        self._specs: dict[str, object] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Answer for the names of the table and everything below them."""
        return None if self._real_name(name) is None else importlib.machinery.ModuleSpec(name, cast(Any, self))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Give the module itself."""
        real = self._real_name(spec.name)
        assert real is not None, "find_spec knew the name"
        module = importlib.import_module(real)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """Nothing: the module has run under its own name; it gets back the spec that `import` has exchanged."""
        module.__spec__ = self._specs.get(module.__spec__.name, module.__spec__)

    def _real_name(self, name: str) -> str | None:
        rest = ""
        while name:  # the longest alias counts
            if name in self.aliases:
                return self.aliases[name] + rest
            name, dot, last = name.rpartition(".")
            rest = f"{dot}{last}{rest}"
        return None


def install_aliases(aliases: Mapping[str, str]) -> None:
    """Let `import` find modules under second names, once in a process."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, cast(Any, _AliasFinder(aliases)))  # before what would load a package's files twice
