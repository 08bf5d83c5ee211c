"""Names that stand in a low room and are defined in a higher one: strings, resolved on first use.

TVM puts `relax.build` or `relax.frontend.onnx` into packages that, here, must not know the compiler above them. Such
a package says `__getattr__, __dir__ = lazy_names(__name__)`, and the table below says where each name is defined.
The table for "autosched" itself is what makes `import autosched` fast: nothing is loaded before it is used.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

# package -> name -> "module" (the module itself) or "module:attribute"
FACES: Mapping[str, Mapping[str, str]] = {
    "autosched": {
        # the compiler
        "build": "autosched.driver:build",
        "lower": "autosched.driver:lower",
        "tune": "autosched.driver:tune",
        "bench": "autosched.driver:bench",
        "TuneOptions": "autosched.driver:TuneOptions",
        "TuneReport": "autosched.driver:TuneReport",
        "BenchReport": "autosched.driver:BenchReport",
        # records and dispatch
        "ApplyHistoryBest": "autosched.records:ApplyHistoryBest",
        "ApplyConfig": "autosched.records:ApplyConfig",
        "FallbackContext": "autosched.records:FallbackContext",
        # what every room shares
        "IRModule": "autosched.ir:IRModule",
        "Target": "autosched.target:Target",
        "load": "autosched.faces:load",
        "Executable": "autosched.runtime:Executable",
        "Module": "autosched.runtime:Module",
        "cpu": "autosched.runtime:cpu",
        "device": "autosched.runtime:device",
        "nd": "autosched.runtime.array",
        # errors
        "AutoschedError": "autosched.errors:AutoschedError",
        "TVMError": "autosched.errors:TVMError",
        # packages
        "codegen": "autosched.codegen",
        "contrib": "autosched.contrib",
        "driver": "autosched.driver",
        "errors": "autosched.errors",
        "frontend": "autosched.frontend",
        "ir": "autosched.ir",
        "records": "autosched.records",
        "relax": "autosched.relax",
        "runtime": "autosched.runtime",
        "script": "autosched.script",
        "space": "autosched.space",
        "target": "autosched.target",
        "task": "autosched.task",
        "te": "autosched.te",
        "templates": "autosched.templates",
        "tir": "autosched.tir",
        "topi": "autosched.topi",
        "transform": "autosched.ir.transform",
        "tuner": "autosched.tuner",
    },
    "autosched.contrib": {
        "graph_executor": "autosched.contrib.graph_executor",
    },
    "autosched.relax": {
        "frontend": "autosched.relax.frontend",
        "transform": "autosched.relax.transform",
        "get_pipeline": "autosched.relax.pipeline:get_pipeline",
        "register_pipeline": "autosched.relax.pipeline:register_pipeline",
        "build": "autosched.driver:build",
    },
    "autosched.relax.frontend": {
        "onnx": "autosched.relax.frontend.onnx",
    },
    "autosched.relax.frontend.onnx": {
        "from_onnx": "autosched.frontend.onnx:from_onnx",
    },
    "autosched.tir": {
        "build": "autosched.driver:build",
    },
}

# The printer lies above `ir`; its hook there is filled on first use.
PRINTER = "autosched.script.printer:script"


def resolve(where: str) -> Any:
    """Import what "module" or "module:attribute" names."""
    module, _, attribute = where.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose late names stand in the table.

    A name is looked up once: it becomes an attribute of the package when it is first used.
    """
    names = FACES[package]

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = resolve(names[name])
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, list_names


def load(path: Any) -> Any:
    """Read an artifact: the Executable or Module that `save` or `export_library` wrote.

    Where its machine code runs here no compiler is needed; elsewhere its kernels are built again, with a warning.
    Raises  InvalidValueError if there is no such file; ArtifactError if it is damaged or from a newer version.
    """
    runtime = resolve("autosched.runtime")
    try:
        return runtime.load_module(path)
    except runtime.NeedsRebuildError as error:
        logging.getLogger("autosched").warning("%s; its kernels are built again for this machine", error.message)
        return resolve("autosched.driver:rebuild")(error.contents)


def install_printer() -> None:
    """Give `ir` the printer, so that `mod.show()` and `mod.script()` work."""
    resolve("autosched.ir.printing:set_printer")(resolve(PRINTER))
