"""Building the kernels of an artifact again, on a machine that cannot run the ones inside."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.codegen.native import native_for
from autosched.driver.build.entry import build
from autosched.driver.build.schedules import compile_functions, with_checks
from autosched.driver.vm.build_vm import BuildOptions
from autosched.driver.vm.late_functions import LateFunctions
from autosched.driver.vm.relax_build import build_relax
from autosched.errors import ArtifactError, AutoschedError, ScriptError, TargetError
from autosched.frontend.onnx.model_file import parse_model
from autosched.ir import IRModule
from autosched.runtime import Executable, Module
from autosched.runtime.artifact import Contents
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.kernel import LARGEST
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.stateful import StatefulProgram, without_states
from autosched.script.parser import from_source
from autosched.target import Target
from autosched.tir.expr import Var
from autosched.tir.serialize import from_json

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject


def rebuild(contents: Contents, *, checks: bool = False) -> Any:
    """Compile every kernel again from the scheduled function that the artifact carries.

    Layouts, packed constants and schedules stay as they were, so the result is right; it may not be the fastest here.
    Functions that came as text are compiled when they are called, as before they were saved.
    Raises  ArtifactError if the artifact carries no functions, or text that is none.
    """
    contents, states = without_states(contents)
    if states:
        return StatefulProgram(rebuild(contents, checks=checks), states)
    if contents.kind == "source":
        return _build_source(contents)
    manifest: JsonObject = dict(contents.info["manifest"])
    try:
        functions = manifest.get("functions", {})
        if missing := sorted(set(contents.kernels) - set(functions)):
            raise ArtifactError(f"the artifact carries nothing to build kernel '{missing[0]}' from")
        target = _target_here(manifest)
        scheduled = IRModule({_in_code(name): from_json(functions[name]) for name in contents.kernels})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        if isinstance(error, AutoschedError):
            raise
        raise ArtifactError(f"what the artifact carries to build its kernels again is damaged ({error})") from error
    built = compile_functions(with_checks(scheduled, checks), target)
    kernels = {name: built[_in_code(name)] for name in contents.kernels}
    manifest["target"] = target.to_json()
    if contents.kind == "graph":
        params = tuple(contents.info["params"])
        return Executable(kernels, contents.graphs["main"], contents.constants, native_for(target), manifest, params)
    if contents.kind == "dynamic":
        again = replace(
            contents, kernels=kernels, native=native_for(target), info={**contents.info, "manifest": manifest}
        )
        return DynamicExecutable.from_contents(again)
    module = Module(
        kernels,
        native_for(target),
        functions=contents.graphs,
        constants=contents.constants,
        entry=str(contents.info["entry"]),
        only_functions="vm" in manifest,
        manifest=manifest,
    )
    return VMExecutable.of(module) if "vm" in manifest else module


def _in_code(name: str) -> str:
    """The name of a kernel's function: those of the VM's parts begin with their number, "3.add"."""
    return name if name.isidentifier() else f"part_{name.replace('.', '_')}"


def _target_here(manifest: Mapping[str, object]) -> Target:
    """The target to build for again: this machine's CPU, or the GPU that the artifact was built for."""
    try:
        made_for = Target(str(manifest.get("target") or "cpu"))
    except TargetError as error:
        raise ArtifactError(f"the artifact's target cannot be read: {error}") from None
    return Target("cpu") if made_for.is_cpu else made_for


def _build_source(contents: Contents) -> object:
    manifest = contents.info["manifest"]
    try:
        if manifest["runs"] == "onnx":
            if len(contents.constants) != 1:
                raise ArtifactError("the artifact holds no model")
            model = parse_model(contents.constants[0].tobytes(), "what the artifact holds")
            return build(model, target=Target(manifest["target"]), shapes=_late_ranges(manifest.get("bounds", {})))
        if manifest["runs"] == "torch":
            return _build_program(contents)
        module, target = from_source(manifest["source"]), Target(manifest["target"])
    except (ScriptError, TargetError) as error:
        raise ArtifactError(f"the artifact's text cannot be read: {error}") from None
    if not isinstance(module, IRModule):
        raise ArtifactError("the artifact's text is no module")
    if manifest["runs"] == "late":
        bounds = {name: (low, high) for name, (low, high) in manifest.get("bounds", {}).items()}
        return LateFunctions(module, target, BuildOptions(), bounds, manifest["reasons"])
    if manifest["runs"] == "vm":
        return build_relax(module, target, at_once=False)
    return build(module, target=target, shapes=_ranges(module, manifest.get("bounds", {})))


def _build_program(contents: Contents) -> object:
    """A program of PyTorch that is compiled when it is called. Raises ImportModelError as `read_program_file`."""
    manifest = contents.info["manifest"]
    if len(contents.constants) != 1 or not isinstance(shapes := manifest.get("shapes", {}), dict):
        raise ArtifactError("the artifact holds no program")
    try:
        fixed = {str(name): tuple(map(int, sizes)) for name, sizes in shapes.items()}
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"the artifact's shapes are damaged ({error})") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pt2"
        path.write_bytes(contents.constants[0].tobytes())
        made = build(path, target=Target(manifest["target"]), shapes=fixed or None)
    return made.executable if isinstance(made, StatefulProgram) else made  # what its buffers were is not asked for


def _late_ranges(bounds: Json) -> dict[str, tuple[int | range, ...]] | None:
    """The sizes and ranges that were saved with an ONNX model, by input. Raises ArtifactError for what are none."""
    try:
        pairs = {str(name): [(int(low), int(high)) for low, high in sizes] for name, sizes in bounds.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"the artifact's bounds of sizes are damaged ({error})") from error
    if any(not 0 <= low <= high < LARGEST for sizes in pairs.values() for low, high in sizes):
        raise ArtifactError("the artifact's bounds of sizes are damaged (no range)")
    return {n: tuple(a if a == b else range(a, b + 1) for a, b in sizes) for n, sizes in pairs.items()} or None


def _ranges(module: IRModule, bounds: Json) -> dict[str, tuple[int | range, ...]] | None:
    """The bounds that were saved with a model, as `build` takes them. Raises ArtifactError for what are none."""
    if not bounds:
        return None
    try:
        ranges = {
            str(name): range(int(low), LARGEST if high is None else int(high) + 1)
            for name, (low, high) in bounds.items()
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"the artifact's bounds of sizes are damaged ({error})") from error
    dims = {p.name: getattr(p.struct_info, "dims", ()) for p in module["main"].params}
    free = range(1, LARGEST)  # of the symbols beside them
    return {
        name: tuple(ranges.get(d.name, free) if isinstance(d, Var) else d for d in shape)
        for name, shape in dims.items()
    }
