"""TVM's `relax.build`: a module of graph functions, for the VM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.entry import build
from autosched.driver.build.positions import with_positions
from autosched.driver.build.sized import Bounds
from autosched.driver.settings import resolve_target
from autosched.driver.vm.build_vm import BuildOptions, build_parts, is_symbolic
from autosched.driver.vm.late_functions import LateFunctions
from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.ir import IRModule
from autosched.ir.module import check_symbols
from autosched.ir.transform import Pass
from autosched.records import RecordReader
from autosched.relax.expr import Function
from autosched.relax.pipeline import get_pipeline
from autosched.relax.transform import BindParams
from autosched.runtime.relax_vm import VMExecutable
from autosched.target import Target
from autosched.tir import PrimFunc

if TYPE_CHECKING:
    from autosched.driver.settings import Records

OWN_PIPELINES = ("default", "default_build")  # what every build does anyway
MODES = ("bytecode", "compiled")


def build_relax(
    mod: object,
    target: object = None,
    params: Mapping[str, object] | None = None,
    relax_pipeline: object = "default",
    tir_pipeline: object = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
    records: Records | None = None,
    threads: int | None = None,
    indices: str = "raise",
    checks: bool = False,
    at_once: bool = True,
) -> VMExecutable:
    """Build the graph functions of a module, in natural order: operators, or calls of PrimFuncs that they became.

    relax_pipeline  a name or a pass that runs first; the build's own passes follow
    tir_pipeline    a pass over PrimFuncs that runs next, or "default"
    params          for external modules' constants; it does not bind arguments, `BindParams` does
    exec_mode       "bytecode" or "compiled": both give the same program here
    indices, checks  as in `autosched.build`
    at_once         compile functions with symbolic shapes now; False: when they are first called
    Functions with symbolic shapes are compiled once for all sizes where that can be, else once for each set of sizes.
    Raises          TypeError for what is no module; ValueError for an unknown pipeline; TargetError where there is no
                    code generator
    """
    refuse("relax.build", hint="BindParams binds arguments, set_input gives them", params=params, system_lib=system_lib)
    if isinstance(mod, Function | PrimFunc):
        mod = IRModule({"main": mod})
    if not isinstance(mod, IRModule):
        raise InvalidTypeError(f"relax.build takes an IRModule, got {type(mod).__name__}")
    if exec_mode not in MODES:
        raise InvalidValueError(f"build: exec_mode '{exec_mode}'", hint=f"one of {MODES}")
    chosen = resolve_target(target)
    for pipeline in (relax_pipeline, tir_pipeline):
        mod = _run(pipeline, mod)
    check_symbols(mod)
    mod = with_positions(mod, indices)
    return _built(mod, chosen, BuildOptions(records, threads, checks=checks), {}, at_once)


def build_executable(
    mod: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, object],
    accuracy: str, checks: bool, bounds: Bounds,
) -> VMExecutable:  # fmt: skip
    """A model with branches or loops as what is called: `autosched.build` of it.

    bounds  the least and the largest size of symbols of `main`, by name
    """
    if params:
        mod = BindParams("main", {name: np.asarray(value) for name, value in params.items()})(mod)
    return _built(mod, target, BuildOptions(records, threads, accuracy, checks), bounds)


def _built(
    mod: IRModule, chosen: Target, how: BuildOptions, bounds: Bounds, at_once: bool = True
) -> VMExecutable:  # fmt: skip
    """The functions of a module, those of symbolic sizes as `build_relax` says."""
    functions = {gv.name: f for gv, f in mod.functions_items() if isinstance(f, Function)}
    wanted = None if at_once else [name for name, f in functions.items() if not is_symbolic(f)]
    program, errors = build_parts(mod, chosen, how, bounds, wanted)
    if not any(map(is_symbolic, functions.values())):
        return VMExecutable(program)
    reasons = {name: error.message for name, error in errors.items()}
    return VMExecutable(program, LateFunctions(mod, chosen, how, bounds, reasons))


def compile_any(
    mod: Any, target: Any = None, *, relax_pipeline: Any = "default", tir_pipeline: Any = "default", **options: Any
) -> Any:
    """TVM's `compile`: a module with graph functions for the VM, PrimFuncs and te schedules as a Module.

    options  as those of `build`; `params` and `exec_mode` of `relax.build` too
    """
    is_graph = isinstance(mod, Function) or (
        isinstance(mod, IRModule) and any(isinstance(f, Function) for f in mod.functions.values())
    )
    if is_graph:
        return build_relax(mod, target, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline, **options)
    if tir_pipeline not in ("default", None) and isinstance(mod, IRModule):
        mod = _run(tir_pipeline, mod)
    return build(mod, target=target, **options)


def _run(pipeline: object, mod: IRModule) -> IRModule:
    if isinstance(pipeline, str):
        return mod if pipeline in OWN_PIPELINES else get_pipeline(pipeline)(mod)
    if pipeline is None:
        return mod
    if not isinstance(pipeline, Pass) and not callable(pipeline):
        raise InvalidTypeError(f"a pipeline is a name or a pass, not a {type(pipeline).__name__}")
    result: IRModule = pipeline(mod)
    return result
