"""The pass that gives kernels their schedules and packs the constants that they read; from functions to kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from autosched.codegen.compile import Request, compile_funcs
from autosched.driver.build.choose import Choice
from autosched.ir import FrozenDict, GlobalVar, IRModule
from autosched.relax.expr import Call, Constant, Function, MatchCast, SeqExpr, Tuple, Var, VarBinding
from autosched.relax.op.call import CALL_TIR as OP_CALL_TIR
from autosched.relax.struct_info import TensorStructInfo
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import lasting_arrays
from autosched.target import Target, choose_threads
from autosched.templates import Packing, apply_config, default_config, schedule_attrs
from autosched.tir import PrimFunc
from autosched.tir.checked_index import CHECKED
from autosched.tir.serialize import to_json

if TYPE_CHECKING:
    from autosched.relax.expr import Binding
    from autosched.relax.struct_info import Expr

CALL_TIR = OP_CALL_TIR.name


def apply_schedules(
    module: IRModule,
    choices: Mapping[str, Choice],
    target: Target,
    packs: Mapping[str, Sequence[Packing | None]] = FrozenDict(),
) -> IRModule:
    """Schedule every PrimFunc as chosen and rewrite its calls: constants are packed, other arguments by a kernel.

    Afterwards every PrimFunc carries the attributes "tir.is_scheduled", "autosched.config" and "autosched.trace".

    packs  how the arguments of functions are packed that have their schedules, by the functions' names
    """
    applied = {n: c.applied or apply_config(c.task.func, c.config, target) for n, c in choices.items()}
    rewritten = pack_arguments(module, {**packs, **{name: a.packs for name, a in applied.items()}}, target)
    scheduled = {
        module.get_global_var(name): a.func.with_attr(schedule_attrs(choices[name].config, a))
        for name, a in applied.items()
    }
    return rewritten.with_functions({**rewritten.functions, **scheduled})


def pack_arguments(module: IRModule, packs: Mapping[str, Sequence[Packing | None]], target: Target) -> IRModule:
    """Rewrite calls for arguments as the kernels take them: constants are packed, others by a kernel of their own.

    packs  by a function's name: how each of its arguments is packed
    """
    rewriter = _Rewriter(module, packs, target)
    functions: dict[GlobalVar, PrimFunc | Function] = {}
    for gv, func in module.functions.items():
        functions[gv] = func if isinstance(func, PrimFunc) else rewriter.function(func)
    functions |= rewriter.added
    return module.with_functions(functions)


def packing_function(pack: Packing, dtype: str, target: Target) -> PrimFunc:
    """A scheduled function that packs an argument at run time."""
    func = pack.func(dtype)
    config = default_config(func, target)
    applied = apply_config(func, config, target)
    return applied.func.with_attr(schedule_attrs(config, applied))


class _Rewriter:
    """Rewrites the calls of one module's functions."""

    def __init__(self, module: IRModule, packs: Mapping[str, Sequence[Packing | None]], target: Target):
        self.module, self.packs, self.target = module, packs, target
        self.added: dict[GlobalVar, PrimFunc] = {}
        self.packed: dict[tuple[int, Packing], Constant] = {}  # one constant may feed several calls
        self.pack_functions: dict[tuple[Packing, str], GlobalVar] = {}

    def function(self, func: Function) -> Function:
        constants = {b.var: b.value for b in func.bindings() if isinstance(b.value, Constant)}
        self.pack_constants(func, constants)
        blocks = []
        for block in func.body.blocks:
            bindings = [new for b in block.bindings for new in self.binding(b, constants)]
            blocks.append(dataclasses.replace(block, bindings=tuple(bindings)))
        return dataclasses.replace(func, body=SeqExpr(tuple(blocks), func.body.body))

    def arguments(
        self, value: object, constants: Mapping[Var, Constant]
    ) -> list[tuple[Expr, Expr, Packing | None]] | None:
        """The arguments of a call of a function that is known here: as written, the constant behind it, its packing."""
        if not isinstance(value, Call) or value.op_name != CALL_TIR or value.args[0].name not in self.packs:
            return None
        pairs = zip(value.args[1].fields, self.packs[value.args[0].name], strict=False)
        return [(x, constants.get(x, x) if isinstance(x, Var) else x, pack) for x, pack in pairs]

    def pack_constants(self, func: Function, constants: Mapping[Var, Constant]) -> None:
        """Pack each constant that a call takes, once, in several threads: NumPy works without Python's lock."""
        found = [x for b in func.bindings() for x in self.arguments(b.value, constants) or ()]
        wanted = {(id(c.data), p): (c.data, p) for _, c, p in found if p is not None and isinstance(c, Constant)}
        forms = [(p.packed_shape, p.packed_dtype(str(data.dtype))) for data, p in wanted.values()]
        places = lasting_arrays(forms)
        with ThreadPoolExecutor(choose_threads()) as pool:
            arrays = pool.map(lambda pair, into: pair[1].pack(np.asarray(pair[0]), into), wanted.values(), places)
            self.packed |= {key: Constant(array) for key, array in zip(wanted, arrays, strict=True)}

    def binding(self, binding: Binding, constants: Mapping[Var, Constant]) -> list[Binding]:
        call = binding.value
        arguments = self.arguments(call, constants)
        if arguments is None:
            return [binding]
        assert isinstance(binding, VarBinding | MatchCast) and isinstance(call, Call), "there is no third kind"
        new_bindings: list[Binding] = []
        args: list[Expr] = []
        for arg, value, pack in arguments:
            if pack is None:
                args.append(arg)
            elif isinstance(value, Constant):
                args.append(self.packed[id(value.data), pack])
            else:
                new = self.pack_call(value, pack)
                new_bindings.append(new)
                args.append(new.var)
        new_call = dataclasses.replace(call, args=(call.args[0], Tuple(tuple(args)), *call.args[2:]))
        return [*new_bindings, dataclasses.replace(binding, value=new_call)]

    def pack_call(self, value: Expr, pack: Packing) -> VarBinding:
        """A kernel call that packs an argument which is not known at build."""
        given = value.struct_info
        assert isinstance(given, TensorStructInfo), "kernels take tensors"
        dtype = str(given.dtype)
        if (pack, dtype) not in self.pack_functions:
            gv = GlobalVar(f"pack_{len(self.pack_functions)}")
            self.added[gv] = packing_function(pack, dtype, self.target).with_attr("global_symbol", gv.name)
            self.pack_functions[pack, dtype] = gv
        function = self.pack_functions[pack, dtype]
        info = TensorStructInfo(pack.packed_shape, self.added[function].buffers[-1].dtype)
        call = Call(OP_CALL_TIR, (function, Tuple((value,))), FrozenDict(), (info,), info)
        return VarBinding(Var(f"packed_{len(self.added)}", info), call)


def prim_funcs(module: IRModule) -> dict[str, PrimFunc]:
    """The functions of the loop level by name."""
    return {gv.name: f for gv, f in module.functions_items() if isinstance(f, PrimFunc)}


def with_checks(module: IRModule, checks: bool) -> IRModule:
    """The module whose kernels see that every access stays inside of its buffer, where `checks` says so."""
    if not checks:
        return module
    functions = {gv: f.with_attr(CHECKED, True) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()}
    return module.with_functions(functions)


def compile_functions(module: IRModule, target: Target) -> dict[str, Kernel]:
    """Compile every PrimFunc of the module, by name."""
    requests = [
        Request(func, name, str(func.attrs.get("autosched.trace", "")), str(func.attrs.get("autosched.config", "")))
        for name, func in prim_funcs(module).items()
    ]
    return {r.name: done.kernel for r, done in zip(requests, compile_funcs(requests, target), strict=True)}


def stored_functions(module: IRModule) -> dict[str, str]:
    """Every PrimFunc as JSON: what an artifact carries to be built again on another machine."""
    return {name: to_json(f) for name, f in prim_funcs(module).items()}
