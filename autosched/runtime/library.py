"""TVM's functions for modules as files, and small questions about this machine."""

from __future__ import annotations

import os
from pathlib import Path

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime.artifact import Contents, load_contents
from autosched.runtime.device import device
from autosched.runtime.executable import Executable
from autosched.runtime.module import Module
from autosched.target import choose_threads


def load_module(path: str | Path, fmt: str = "") -> Module | Executable:
    """Read an artifact that `export_library` or `save` wrote, whatever its extension.

    Raises InvalidValueError (ValueError) if there is no such file, else as `artifact.load_contents`.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidTypeError(f"load_module takes a path, not {type(path).__name__}")
    if not Path(path).is_file():
        raise InvalidValueError(f"file {path} does not exist")
    return module_of_contents(load_contents(Path(path)))


def module_of_contents(contents: Contents) -> Module | Executable:
    """Make the Executable or Module that an artifact holds."""
    if contents.kind == "graph":
        return Executable.from_contents(contents)
    return Module(
        contents.kernels,
        contents.native,
        functions=contents.graphs,
        constants=contents.constants,
        entry=str(contents.info["entry"]),
        only_functions=True,
        manifest=contents.info["manifest"],
    )


def enabled(target: str) -> bool:
    """Tell whether programs for a device can run in this process."""
    if not isinstance(target, str):
        raise InvalidTypeError(f"enabled takes the name of a device, not {type(target).__name__}")
    return device(target).exist


def num_threads() -> int:
    """Count the threads that a model runs on where nothing else is asked for."""
    return choose_threads()


def system_lib(symbol_prefix: str = "") -> Module:
    """A module without functions: none are linked into this process."""
    return Module({}, b"", functions={}, only_functions=True)
