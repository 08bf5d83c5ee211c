"""Calls that change their arguments as calls that do not, followed by copies into the arguments.

    y = call_tir_inplace(f, (x, w), [0])
->  t = call_tir(f_apart, (x, w))               f_apart works on a copy of x
    y = call_packed("relax.run.copy_into", x, t)   in the program's order
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.node import FrozenDict
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from autosched.relax.op.call import CALL_TIR_INPLACE, call_packed, call_tir, tir_inputs, tir_target
from autosched.relax.rewrite import Rewriter, bindings_of
from autosched.relax.struct_info import StructInfo, TupleStructInfo
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Var as TirVar
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.schedule.cache import copy_nest
from autosched.tir.stmt import SeqStmt


def separate_inplace_calls(module: IRModule) -> IRModule:
    """The module without `call_tir_inplace`; PrimFuncs that were called so are there in a form that copies too."""
    if not any(isinstance(f, Function) and any(map(_is_inplace, _values(f))) for f in module.functions.values()):
        return module
    builder = BlockBuilder(module)
    for gv, function in module.functions_items():
        if isinstance(function, Function):
            builder.update_func(gv, _Separated(builder, module).rewrite(function))
    return builder.get()


def _values(function: Function) -> list[Expr]:
    return [b.value for b in bindings_of(function.body)]


def _is_inplace(value: Expr) -> bool:
    return isinstance(value, Call) and value.op is CALL_TIR_INPLACE


class _Separated(Rewriter):
    def __init__(self, builder: BlockBuilder, module: IRModule):
        super().__init__()
        self.builder, self.module = builder, module

    def call(self, call: Call, var: Var) -> Expr:
        if not _is_inplace(call):
            return call
        indices: Sequence[int] = call.attrs["inplace_indices"]
        inputs, gvar = tir_inputs(call), tir_target(call)
        func = self.module[gvar]
        assert isinstance(func, PrimFunc), "call_tir_inplace runs a PrimFunc"
        apart = self.builder.add_func(_apart(func, len(inputs), indices), f"{gvar.name}_apart")
        info = call.struct_info
        fields: list[StructInfo] = list(info.fields) if isinstance(info, TupleStructInfo) else [info]  # type: ignore[list-item]
        made = self.emit(call_tir(apart, Tuple(inputs), fields, *call.args[2:]))
        parts = [made] if len(fields) == 1 else [self.emit(TupleGetItem(made, i)) for i in range(len(fields))]
        results = [
            part if i < 0 else self.emit(call_packed("relax.run.copy_into", inputs[i], part, sinfo_args=field))
            for i, part, field in zip(indices, parts, fields, strict=True)
        ]
        return results[0] if len(results) == 1 else Tuple(tuple(results))


def _apart(func: PrimFunc, n_inputs: int, indices: Sequence[int]) -> PrimFunc:
    """The function with its changed arguments as outputs, into which it copies them first."""
    params, fresh = list(func.params[:n_inputs]), list(func.params[n_inputs:])
    if len(fresh) != sum(i < 0 for i in indices):
        raise InvalidValueError(
            f"call_tir_inplace: the function has {len(fresh)} outputs of its own",
            hint="inplace_indices has -1 for each of them",
        )
    buffers, copies, outputs = dict(func.buffer_map), [], []
    for i in indices:
        if i < 0:
            outputs.append(fresh.pop(0))
            continue
        handle = func.params[i]
        changed = func.buffer_map[handle]
        source = Buffer(f"{changed.name}_before", changed.shape, changed.dtype)
        given = TirVar(f"{handle.name}_before", "handle")
        params[i], buffers[given] = given, source
        outputs.append(handle)
        copies.append(copy_nest(f"{changed.name}_copy", source, changed, (None,) * len(changed.shape)))
    root = func.root if _has_root(func) else None
    body = SeqStmt((*copies, func.body if root is None else root.body))
    whole = make_root(body) if root is None else make_root(body, root.alloc_buffers, root.annotations)
    ordered = {p: buffers[p] for p in (*params, *outputs) if p in buffers}
    return dataclasses.replace(
        func, params=(*params, *outputs), buffer_map=FrozenDict(ordered), body=whole,
        attrs=FrozenDict({k: v for k, v in func.attrs.items() if k != "global_symbol"}),
    )  # fmt: skip


def _has_root(func: PrimFunc) -> bool:
    block = getattr(func.body, "block", None)
    return block is not None and not block.iter_vars
