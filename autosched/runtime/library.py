"""TVM's functions for modules as files, and small questions about this machine."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from autosched.env import AUTOSCHED_STRICT
from autosched.errors import ArtifactError, InvalidTypeError, InvalidValueError
from autosched.lazy_names import hook
from autosched.runtime.artifact import Contents, NeedsRebuildError, load_contents
from autosched.runtime.compiled_function import CompiledFunction
from autosched.runtime.device import device
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable
from autosched.runtime.module import Module
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.sized_module import FUNCTION, SizedModule
from autosched.runtime.stateful import StatefulProgram, without_states
from autosched.target import choose_threads

Loaded = Module | Executable | DynamicExecutable | CompiledFunction | VMExecutable | StatefulProgram


def load(path: str | Path, *, mapped: bool = False, variant: str = "") -> Any:
    """Read an artifact: the Executable, Module or VMExecutable that `save` or `export_library` wrote.

    mapped   leave constants in the file, so that processes share them; nobody may write to the file meanwhile.
             Without it a file that is overwritten or cut later changes nothing.
    variant  of an artifact for several targets the one that is read ("sm_90a"); "": the best that runs here
    Where its machine code runs here no compiler is needed; elsewhere its kernels are built again, with a warning.
    Raises   InvalidValueError if there is no such file; ArtifactError if it is damaged, from a newer version or has
             no such variant, and, with AUTOSCHED_STRICT, if its kernels would have to be built again.
    """
    try:
        return read_module(path, mapped=mapped, variant=variant)
    except NeedsRebuildError as error:
        if error.contents.kind == "function":
            raise ArtifactError(error.message, hint="build the function again on this machine") from None
        if error.reason != "source" and AUTOSCHED_STRICT.get():
            hint = "unset AUTOSCHED_STRICT, or build the model on this machine"
            raise ArtifactError(error.message, hint=hint) from None
        if error.reason != "source":
            logging.getLogger("autosched").warning("%s; its kernels are built again for this machine", error.message)
        return hook("rebuild")(error.contents)


def load_module(path: str | Path, fmt: str = "") -> Any:
    """TVM's name of `load`; a file's format is known from its first bytes."""
    return load(path)


def read_module(path: str | Path, *, mapped: bool = False, variant: str = "") -> Loaded:
    """Read an artifact, whatever its extension, without a compiler.

    Raises InvalidValueError (ValueError) if there is no such file, else as `artifact.load_contents`.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidTypeError(f"load_module takes a path, not {type(path).__name__}")
    if not Path(path).is_file():
        raise InvalidValueError(f"file {path} does not exist")
    return module_of_contents(load_contents(Path(path), mapped=mapped, variant=variant))


def module_of_contents(contents: Contents) -> Loaded:
    """Make the Executable, Module or function that an artifact holds, with buffers if it has some."""
    contents, states = without_states(contents)
    return StatefulProgram(_stateless(contents), states) if states else _stateless(contents)


def _stateless(contents: Contents) -> Any:
    if contents.kind == "graph":
        return Executable.from_contents(contents)
    if contents.kind == "dynamic":
        made = DynamicExecutable.from_contents(contents)
        return SizedModule(made) if FUNCTION in made.manifest else made
    if contents.kind == "function":
        return CompiledFunction(contents)
    module = Module(
        contents.kernels,
        contents.native,
        functions=contents.graphs,
        constants=contents.constants,
        entry=str(contents.info["entry"]),
        only_functions=True,
        manifest=contents.info["manifest"],
    )
    return VMExecutable.of(module) if "vm" in module.manifest else module


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
