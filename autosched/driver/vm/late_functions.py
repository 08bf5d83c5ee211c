"""Functions with symbolic shapes that are built when they are called: once for all sizes, or for the sizes at hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.sized import Bounds
from autosched.driver.build.symbolic import refuse_to_compile
from autosched.driver.vm.build_vm import BuildOptions, build_parts, build_vm
from autosched.errors import InvalidTypeError, ShapeError
from autosched.ir import GlobalVar, IRModule, preorder
from autosched.relax.expr import Call, Function, MatchCast
from autosched.relax.rewrite import bindings_of
from autosched.relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo
from autosched.relax.transform.bind_symbolic import bind_function, symbolic_dims
from autosched.relax.transform.specialize_kernels import specialize_kernels
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.graph_form import SizeRange
from autosched.runtime.vm_program import Program
from autosched.target import Target
from autosched.tir.expr import Var as TirVar

if TYPE_CHECKING:
    from autosched.json_types import JsonObject


class LateFunctions:
    """Makes their programs; see `runtime.late_build.LateBuild`.

    bounds   the least and the largest size of symbols of `main`, by name
    reasons  why functions are built for each set of sizes, by name
    """

    def __init__(
        self, mod: IRModule, target: Target, how: BuildOptions, bounds: Bounds, reasons: Mapping[str, str]
    ):  # fmt: skip
        self.mod, self.target, self.how, self.bounds, self.reasons = mod, target, how, bounds, dict(reasons)
        self.names = [gv.name for gv, f in mod.functions_items() if isinstance(f, Function)]
        self._built: BuiltSizes[Program] = BuiltSizes()
        self._whole: BuiltSizes[Program | None] = BuiltSizes()

    def manifest(self, names: Collection[str]) -> JsonObject:
        """What a file holds of functions: these, and those that they call, as text."""
        made: JsonObject = {
            "source": self._with_called(names).script(show_meta=True), "target": self.target.to_json(), "runs": "late",
            "reasons": {name: self.reasons.get(name, "") for name in names},
        }  # fmt: skip
        return {**made, "bounds": {name: list(pair) for name, pair in self.bounds.items()}} if self.bounds else made

    def __call__(self, name: str, args: Sequence[object]) -> Program:
        whole = self.whole(name)
        return self.for_sizes(name, args) if whole is None else whole

    def whole(self, name: str) -> Program | None:
        """A function, with those that it calls, compiled for all sizes; None where it cannot be."""
        return None if self.reasons.get(name) else self._whole.get(name, lambda: self._built_whole(name))

    def _built_whole(self, name: str) -> Program | None:
        refuse_to_compile(name, {})
        program, errors = build_parts(self._with_called([name]), self.target, self.how, self.bounds)
        self.reasons |= {callee: error.message for callee, error in errors.items()}
        return None if name in errors else program

    def _with_called(self, names: Collection[str]) -> IRModule:
        """The part of the module that functions need."""
        needed, found = set(names), set[str]()
        while needed - found:
            found |= needed
            needed |= {callee for n in needed if isinstance(f := self.mod[n], Function) for callee in _called_by(f)}
        return self.mod.with_functions({gv: f for gv, f in self.mod.functions.items() if gv.name in found})

    def for_sizes(self, name: str, args: Sequence[object]) -> Program:
        """A function for the sizes of its arguments alone; those that it calls are found when it calls them."""
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
            whole = self._with_called([name])
            whole[name] = bind_function(function, values)
            return build_vm(specialize_kernels(whole), self.target, self.how, [name])

        return self._built.get((name, *values.values()), build_program)


def _called_by(function: Function) -> set[str]:
    """The names of the functions of the module that one calls."""
    values = (b.value for b in bindings_of(function.body))
    return {x.name for v in values if isinstance(v, Call) for x in (v.op, *v.args) if isinstance(x, GlobalVar)}


def _symbols(function: Function) -> list[TirVar]:
    """The symbols that arguments say."""
    cast = [v for b in _casts(function) for v in preorder(b.struct_info) if isinstance(v, TirVar)]
    return list(dict.fromkeys([*symbolic_dims(function), *cast]))


def _casts(function: Function) -> list[MatchCast]:
    """The match_casts of parameters: they say what the symbols are."""
    return [b for b in bindings_of(function.body) if isinstance(b, MatchCast) and b.value in function.params]


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
