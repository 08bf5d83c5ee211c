"""Building the kernels of an artifact again, on a machine that cannot run the ones inside."""

from __future__ import annotations

from typing import Any

from autosched.codegen.native import native_object
from autosched.driver.compile import compile_functions
from autosched.errors import ArtifactError
from autosched.ir import IRModule
from autosched.runtime import Executable, Module
from autosched.runtime.artifact import Contents
from autosched.target import Target
from autosched.tir.serialize import from_json


def rebuild(contents: Contents) -> Executable | Module:
    """Compile every kernel again from the scheduled function that the artifact carries.

    Layouts, packed constants and schedules stay as they were, so the result is right; it may not be the fastest here.
    Raises  ArtifactError if the artifact carries no functions.
    """
    manifest: dict[str, Any] = dict(contents.info["manifest"])
    functions = manifest.get("functions", {})
    if missing := sorted(set(contents.kernels) - set(functions)):
        raise ArtifactError(f"the artifact carries nothing to build kernel '{missing[0]}' from")
    target = Target("cpu")
    kernels = compile_functions(IRModule({name: from_json(functions[name]) for name in contents.kernels}), target)
    manifest["target"] = target.to_json()
    if contents.kind == "graph":
        params = tuple(contents.info["params"])
        return Executable(kernels, contents.graphs["main"], contents.constants, native_object(), manifest, params)
    return Module(
        kernels,
        native_object(),
        functions=contents.graphs,
        constants=contents.constants,
        entry=str(contents.info["entry"]),
        manifest=manifest,
    )
