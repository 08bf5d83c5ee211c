"""TVM's `relax.build`: a module of graph functions, for the VM."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.entry import build
from autosched.driver.build.positions import with_positions
from autosched.driver.build.sized import Bounds
from autosched.driver.build.symbolic import refuse_to_compile
from autosched.driver.settings import resolve_target
from autosched.driver.vm.build_vm import BuildOptions, build_parts, build_vm, is_symbolic
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError, UsageError, refuse
from autosched.ir import GlobalVar, IRModule, preorder
from autosched.ir.module import check_symbols
from autosched.ir.transform import Pass
from autosched.records import RecordReader
from autosched.relax.expr import Call, Function, MatchCast
from autosched.relax.pipeline import get_pipeline
from autosched.relax.rewrite import bindings_of
from autosched.relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo
from autosched.relax.transform import BindParams
from autosched.relax.transform.bind_symbolic import bind_function, symbolic_dims
from autosched.relax.transform.specialize_kernels import specialize_kernels
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.graph_form import SizeRange
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.vm_code import Param
from autosched.runtime.vm_program import Program
from autosched.target import Target
from autosched.tir import PrimFunc
from autosched.tir.expr import Var as TirVar

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
    relax_functions = {gv.name: f for gv, f in mod.functions_items() if isinstance(f, Function)}
    left = {} if at_once else dict.fromkeys(_open_functions(relax_functions), "")
    parts = _without(mod, left)
    if relax_functions.keys() - left:
        program, errors = build_parts(parts, chosen, how, bounds)
        left |= {name: error.message for name, error in errors.items()}
    else:
        program = Program({}, ())
    if not any(map(is_symbolic, relax_functions.values())):
        return VMExecutable(program)
    late = _Late(mod, chosen, how, bounds, {name: reason for name, reason in left.items() if reason})
    return VMExecutable(program, late, {name: _params(relax_functions[name]) for name in left})


def _open_functions(functions: Mapping[str, Function]) -> list[str]:
    """Those with symbolic sizes, and those that call one of them."""
    found = [name for name, f in functions.items() if is_symbolic(f)]
    while more := [n for n, f in functions.items() if n not in found and not _called_by(f).isdisjoint(found)]:
        found += more
    return found


def _called_by(function: Function) -> set[str]:
    """The names of the functions of the module that one calls."""
    values = (b.value for b in bindings_of(function.body))
    return {x.name for v in values if isinstance(v, Call) for x in (v.op, *v.args) if isinstance(x, GlobalVar)}


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


def _symbols(function: Function) -> list[TirVar]:
    """The symbols that arguments say."""
    cast = [v for b in _casts(function) for v in preorder(b.struct_info) if isinstance(v, TirVar)]
    return list(dict.fromkeys([*symbolic_dims(function), *cast]))


def _casts(function: Function) -> list[MatchCast]:
    """The match_casts of parameters: they say what the symbols are."""
    return [b for b in bindings_of(function.body) if isinstance(b, MatchCast) and b.value in function.params]


def _run(pipeline: object, mod: IRModule) -> IRModule:
    if isinstance(pipeline, str):
        return mod if pipeline in OWN_PIPELINES else get_pipeline(pipeline)(mod)
    if pipeline is None:
        return mod
    if not isinstance(pipeline, Pass) and not callable(pipeline):
        raise InvalidTypeError(f"a pipeline is a name or a pass, not a {type(pipeline).__name__}")
    result: IRModule = pipeline(mod)
    return result


def _without(mod: IRModule, names: Collection[str]) -> IRModule:
    return mod.with_functions({gv: f for gv, f in mod.functions.items() if gv.name not in names})


def _params(function: Function) -> tuple[Param, ...]:
    return tuple(Param(p.name) for p in function.params)


class _Late:
    """Builds functions with symbolic shapes when they are called: once for all sizes, or for the sizes at hand.

    reasons  why functions are built for each set of sizes, by name
    """

    def __init__(
        self, mod: IRModule, target: Target, how: BuildOptions, bounds: Bounds, reasons: Mapping[str, str]
    ):  # fmt: skip
        self.mod, self.target, self.how, self.bounds, self.reasons = mod, target, how, bounds, dict(reasons)
        self.built: BuiltSizes[Program] = BuiltSizes()
        self._whole: BuiltSizes[Program | None] = BuiltSizes()

    @property
    def source(self) -> tuple[str, str]:
        """The module as text, and its target as JSON."""
        return self.mod.script(show_meta=True), self.target.to_json()

    def whole(self, name: str) -> Program | None:
        """A function, with those that it calls, compiled for all sizes; None where it cannot be."""
        return None if name in self.reasons else self._whole.get(name, lambda: self._built_whole(name))

    def _built_whole(self, name: str) -> Program | None:
        refuse_to_compile(name, {})
        program, errors = build_parts(self._with_called(name), self.target, self.how, self.bounds)
        if name in errors:
            self.reasons[name] = errors[name].message
            return None
        return program

    def _with_called(self, name: str) -> IRModule:
        """The part of the module that a function needs."""
        needed, found = {name}, set[str]()
        while needed - found:
            found |= needed
            needed |= {callee for n in needed if isinstance(f := self.mod[n], Function) for callee in _called_by(f)}
        return _without(self.mod, {gv.name for gv in self.mod.get_global_vars()} - found)

    def __call__(self, name: str, args: Sequence[object]) -> Program:
        whole = self.whole(name)
        return self.for_sizes(name, args) if whole is None else whole

    def for_sizes(self, name: str, args: Sequence[object]) -> Program:
        """A function for the sizes of its arguments alone."""
        function = self.mod[name]
        values = _sizes(name, function, args)
        missing = [v.name for v in _symbols(function) if v not in values]
        if missing:
            raise ShapeError(f"the size of {missing[0]} does not follow from the arguments", where=f"function {name}")
        for v, value in values.items():
            if name == "main" and v.name in self.bounds:
                SizeRange(v.name, *self.bounds[v.name]).check(value, "argument")

        def build_program() -> Program:
            refuse_to_compile(name, {v.name: size for v, size in values.items()})
            whole = IRModule(self._called(function))
            whole[name] = bind_function(function, values)
            return build_vm(specialize_kernels(whole), self.target, self.how)

        return self.built.get((name, *values.values()), build_program)

    def _called(self, function: Function) -> dict[GlobalVar, PrimFunc]:
        """The functions that it calls: those with symbolic shapes of their own are not available."""
        called: dict[GlobalVar, PrimFunc] = {}
        for b in bindings_of(function.body):
            if isinstance(b.value, Call):
                for x in (b.value.op, *b.value.args):
                    if isinstance(x, GlobalVar) and x in self.mod:
                        if is_symbolic(self.mod[x]):
                            raise UsageError(
                                f"'{x.name}' has symbolic shapes and is called by another function",
                                hint="give the shapes with relax.transform.BindSymbolicVars",
                            )
                        called[x] = self.mod[x]
        return called


def _sizes(name: str, function: Function, args: Sequence[Any]) -> dict[TirVar, int]:
    """What the arguments' shapes say of the symbols. Raises ShapeError where they contradict each other."""
    values: dict[TirVar, int] = {}
    given = dict(zip(function.params, args, strict=True))
    pairs = [(p, p.struct_info, a) for p, a in given.items()]
    pairs += [(b.value, b.struct_info, given[b.value]) for b in _casts(function)]  # type: ignore[index, misc]
    for param, info, arg in pairs:
        if isinstance(info, ShapeStructInfo) and info.values is not None and isinstance(arg, Sequence):
            for d, size in zip(info.values, arg, strict=False):
                if isinstance(d, TirVar):
                    values.setdefault(d, int(size))
        if isinstance(info, PrimStructInfo) and isinstance(info.value, TirVar):
            values.setdefault(info.value, int(arg))
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            continue
        shape = np.shape(arg) if isinstance(arg, np.ndarray) else getattr(arg, "shape", None)
        where = f"function {name}, parameter {param.name}"
        if shape is None:
            raise InvalidTypeError(f"a {type(arg).__name__} is no array", where=where)
        if len(shape) != info.ndim:
            raise ShapeError(f"{len(shape)} dimensions instead of {info.ndim}", where=where)
        for d, size in zip(info.shape, shape, strict=True):
            if isinstance(d, TirVar) and values.setdefault(d, int(size)) != size:
                raise ShapeError(f"{d.name} is {size} and was {values[d]}", where=where)
    return values
