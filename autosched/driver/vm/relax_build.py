"""TVM's `relax.build`: a module of graph functions, for the VM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.dynamic import build_dynamic
from autosched.driver.build.entry import build
from autosched.driver.build.positions import with_positions
from autosched.driver.build.symbolic import refuse_to_compile
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.driver.vm.build_vm import build_vm
from autosched.errors import AutoschedError, InvalidTypeError, InvalidValueError, ShapeError, UsageError, refuse
from autosched.ir import GlobalVar, IRModule, preorder
from autosched.ir.module import check_symbols
from autosched.ir.transform import Pass
from autosched.relax.expr import Call, Function, MatchCast
from autosched.relax.pipeline import get_pipeline
from autosched.relax.rewrite import bindings_of
from autosched.relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo
from autosched.relax.transform.bind_symbolic import bind_function, symbolic_dims
from autosched.relax.transform.specialize_kernels import specialize_kernels
from autosched.runtime.array import NDArray
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.vm_program import Param, Program
from autosched.target import Target
from autosched.tir import PrimFunc
from autosched.tir.expr import Var as TirVar
from autosched.tir.separable import NotSeparableError

if TYPE_CHECKING:
    from autosched.driver.settings import Records
    from autosched.runtime.values import Value

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
    symbolic = {gv.name: dims for gv, f in mod.functions_items() if (dims := _symbols(f))}
    if not symbolic:
        return VMExecutable(build_vm(mod, chosen, records=records, threads=threads, checks=checks))
    late = _Late(mod, chosen, records, threads, checks)
    for name in symbolic if at_once else ():
        late.for_all_sizes(name)
    fixed = [gv.name for gv, f in mod.functions_items() if isinstance(f, Function) and gv.name not in symbolic]
    plain = (
        build_vm(_without(mod, symbolic), chosen, records=records, threads=threads, checks=checks)
        if fixed
        else Program({}, ())
    )
    return VMExecutable(plain, late, {name: _params(mod[name]) for name in symbolic})


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


def _symbols(function: object) -> list[TirVar]:
    if not isinstance(function, Function) or function.attrs.get("Primitive"):
        return []
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


def _without(mod: IRModule, names: Mapping[str, object]) -> IRModule:
    return mod.with_functions({gv: f for gv, f in mod.functions.items() if gv.name not in names})


def _params(function: Function) -> tuple[Param, ...]:
    return tuple(Param(p.name) for p in function.params)


class _Late:
    """Builds functions with symbolic shapes once for all sizes, or for the shapes that they are called with.

    reasons  why functions are built for each set of sizes, by name
    """

    def __init__(
        self, mod: IRModule, target: Target, records: Records | None, threads: int | None, checks: bool = False
    ):
        self.mod, self.target, self.records, self.threads, self.checks = mod, target, records, threads, checks
        self.built: BuiltSizes[Program] = BuiltSizes()
        self.reasons: dict[str, str] = {}
        self._whole: BuiltSizes[DynamicExecutable | None] = BuiltSizes()

    @property
    def source(self) -> tuple[str, str]:
        """The module as text, and its target as JSON."""
        return self.mod.script(show_meta=True), self.target.to_json()

    def call(self, name: str, args: Sequence[object]) -> Value:
        """Run a function on values."""
        if all(isinstance(a, np.ndarray | NDArray) and 0 not in a.shape for a in args):
            sizes = _sizes(name, self.mod[name], args)  # refuses what does not fit in the words of a function
            if (whole := self.for_all_sizes(name, sizes)) is not None:
                return whole(*args)
        return self(name, args).call(name, args)

    def for_all_sizes(self, name: str, called: Mapping[TirVar, int] | None = None) -> DynamicExecutable | None:
        """A function compiled for all sizes; None where it takes or gives other things than arrays, or cannot be.

        called  the sizes of a call that asks for it
        """
        return self._whole.get(name, lambda: self._built_for_all(name, called))

    def _built_for_all(self, name: str, called: Mapping[TirVar, int] | None) -> DynamicExecutable | None:
        function = self.mod[name]
        if called is not None:
            refuse_to_compile(name, {v.name: size for v, size in called.items()})
        try:
            if not _is_of_arrays(function):
                raise NotSeparableError("it takes or gives other things than arrays of known kinds")
            whole = IRModule(self._called(function))
            whole["main"] = function
            threads = resolve_threads(self.threads, self.target)
            return build_dynamic(whole, self.target, resolve_records(self.records), threads, {}, checks=self.checks)
        except AutoschedError as error:  # what is wrong with it is said where it is built for its sizes
            self.reasons[name] = error.message
            return None

    def __call__(self, name: str, args: Sequence[object]) -> Program:
        function = self.mod[name]
        values = _sizes(name, function, args)
        missing = [v.name for v in _symbols(function) if v not in values]
        if missing:
            raise ShapeError(f"the size of {missing[0]} does not follow from the arguments", where=f"function {name}")

        def build_program() -> Program:
            refuse_to_compile(name, {v.name: size for v, size in values.items()})
            whole = IRModule(self._called(function))
            whole[name] = bind_function(function, values)
            return build_vm(
                specialize_kernels(whole),
                self.target,
                records=self.records,
                threads=self.threads,
                checks=self.checks,
            )

        return self.built.get((name, *values.values()), build_program)

    def _called(self, function: Function) -> dict[GlobalVar, PrimFunc]:
        """The functions that it calls: those with symbolic shapes of their own are not available."""
        called: dict[GlobalVar, PrimFunc] = {}
        for b in bindings_of(function.body):
            if isinstance(b.value, Call):
                for x in (b.value.op, *b.value.args):
                    if isinstance(x, GlobalVar) and x in self.mod:
                        if isinstance(self.mod[x], Function) and symbolic_dims(self.mod[x]):
                            raise UsageError(
                                f"'{x.name}' has symbolic shapes and is called by another function",
                                hint="give the shapes with relax.transform.BindSymbolicVars",
                            )
                        called[x] = self.mod[x]
        return called


def _is_of_arrays(function: Function) -> bool:
    """Whether a function takes arrays of as many dimensions as its type says, and gives one or a flat tuple of some."""
    found = function.ret_struct_info
    results = found.fields if isinstance(found, TupleStructInfo) and len(found.fields) > 1 else (found,)
    infos = [*(p.struct_info for p in function.params), *results]
    return all(isinstance(i, TensorStructInfo) and i.shape is not None for i in infos) and not _casts(function)


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
