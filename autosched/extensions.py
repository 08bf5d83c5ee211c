"""Extensions: modules of other packages that register templates, strategies, operators and converters when imported.

An installed package names its module in the entry-point group `autosched.extensions`; `load_extension("module")` adds
one that is not installed. Each process loads them when it first looks into a table, tuning's workers too.
"""

from __future__ import annotations

import importlib
import threading
from importlib.metadata import EntryPoint, entry_points

from autosched.env import AUTOSCHED_EXTENSIONS
from autosched.errors import UsageError

GROUP = "autosched.extensions"
_lock = threading.RLock()
_loaded: set[str] = set()
_asked = False


def load_extension(module: str) -> None:
    """Import an extension here and in the processes that this one starts. Raises UsageError where importing fails."""
    with _lock:
        _load(module, "load_extension")
    names = AUTOSCHED_EXTENSIONS.get()
    if module not in names:
        AUTOSCHED_EXTENSIONS.hand_on(",".join((*names, module)))


def load_extensions() -> None:
    """Import the extensions of installed packages and of AUTOSCHED_EXTENSIONS, once a process. Raises UsageError."""
    global _asked
    with _lock:
        if _asked:
            return
        _asked = True  # an extension may look into a table while it is loaded
        for point in found_extensions():
            _load(point.module, f"entry point '{point.name}'")
        for name in AUTOSCHED_EXTENSIONS.get():
            _load(name, AUTOSCHED_EXTENSIONS.name)


def found_extensions() -> tuple[EntryPoint, ...]:
    """The extensions of installed packages, by name."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _load(module: str, where: str) -> None:
    if module in _loaded:
        return
    _loaded.add(module)  # it may look into a table, and so come here again
    try:
        importlib.import_module(module)
    except Exception as error:  # code of another package
        _loaded.discard(module)
        hint = "mend the extension, or remove its package"
        raise UsageError(f"extension '{module}': {type(error).__name__}: {error}", where=where, hint=hint) from error
