"""Values of 16-bit float types are computed as float32 between the inputs and outputs of a model.

A CPU without arithmetic of such a type would convert each operand and round each result; sums would lose what a float16
cannot hold. Results are at least as near to the exact ones as those that are rounded at every step. What a model itself
converts to such a type and back is rounded: nothing else is meant by that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, TypeGuard

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import (
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, bindings_of, map_functions, users
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo

WIDE = "float32"


# Operators whose results are elements of their tensors as they are.
MOVES = frozenset(
    f"relax.{n}"
    for n in (
        *("permute_dims", "reshape", "expand_dims", "squeeze", "flatten", "broadcast_to", "strided_slice", "flip"),
        *("stretch", "concat", "split", "tile", "repeat", "take", "gather_elements", "gather_nd"),
    )
)


class _Widener(Rewriter):
    def __init__(self, dtypes: Collection[str], moved: Collection[Var] = (), rounded: Collection[Var] = ()):
        super().__init__()
        self.dtypes, self.moved, self.rounded = dtypes, moved, rounded
        self.wide: dict[object, Expr] = {}

    def widen(self, x: object) -> Any:
        """The float32 form of an argument; of a tuple, of its fields."""
        if isinstance(x, Tuple):
            return Tuple(tuple(self.widen(f) for f in x.fields))
        if not _is_one_of(x, self.dtypes):
            return x
        if x not in self.wide:
            self.wide[x] = Constant(x.data.astype(WIDE)) if isinstance(x, Constant) else self.emit(op.astype(x, WIDE))
        return self.wide[x]

    def call(self, call: Call, var: Var) -> Expr:
        if var in self.moved and not any(_is_one_of(x, (WIDE,)) for x in _tensors(call)):
            return call
        args = [self.widen(a) for a in call.args]
        if var in self.rounded:
            return self.emit(op.astype(self.emit(remake(call, args)), WIDE))
        attrs = {k: WIDE if v in self.dtypes else v for k, v in call.attrs.items() if isinstance(v, str)}
        if call.op_name == "relax.astype" and attrs["dtype"] == args[0].struct_info.dtype:
            return args[0]  # type: ignore[no-any-return]
        same = all(a is b for a, b in zip(args, call.args, strict=True))
        return call if same and not _has_one_of(call, self.dtypes) else remake(call, args, attrs)


def _tensors(call: Call) -> list[Expr]:
    """The arguments of a call, those of tuples one by one."""
    return [x for a in call.args for x in (a.fields if isinstance(a, Tuple) else (a,))]


def _moved(function: Function) -> set[Var]:
    """What is an output or only moved into outputs: elements that nothing computes with."""
    readers, found = users(function), set[Var]()
    for binding in reversed(list(bindings_of(function.body))):
        value = binding.value
        if isinstance(value, TupleGetItem) or (isinstance(value, Call) and value.op_name in MOVES):
            if all(r is None or r in found for r in readers.get(binding.var, ())):
                found.add(binding.var)
    return found


def _rounded(function: Function, dtypes: Collection[str]) -> set[Var]:
    """What is converted from another type to one of these and then to another one."""
    made = {b.var: b.value for b in bindings_of(function.body) if _is_cast(b.value)}
    changed = {v for v, call in made.items() if not _is_one_of(call.args[0], (call.attrs["dtype"],))}
    narrow = {v for v in changed if made[v].attrs["dtype"] in dtypes}
    return {made[v].args[0] for v in changed if made[v].args[0] in narrow}


def _is_cast(value: Expr) -> TypeGuard[Call]:
    return isinstance(value, Call) and value.op_name == "relax.astype"


def _is_one_of(x: object, dtypes: Collection[str]) -> bool:
    info = getattr(x, "struct_info", None)
    return isinstance(info, TensorStructInfo) and info.dtype in dtypes


def _has_one_of(x: Expr, dtypes: Collection[str]) -> bool:
    return isinstance(x.struct_info, TensorStructInfo | TupleStructInfo) and _mentions(x.struct_info, dtypes)


def _mentions(info: StructInfo, dtypes: Collection[str]) -> bool:
    if isinstance(info, TupleStructInfo):
        return any(_mentions(field, dtypes) for field in info.fields)
    return isinstance(info, TensorStructInfo) and info.dtype in dtypes


def widen_halves(module: IRModule, dtypes: Collection[str] = ("float16",)) -> IRModule:
    """Compute values of these types as float32; inputs and outputs keep their types."""

    def convert(function: Function) -> Function:
        values = [b.value for b in bindings_of(function.body)]
        if not any(_has_one_of(v, dtypes) for v in (*function.params, *values)) or not all(map(_is_plain, values)):
            return function
        widener = _Widener(dtypes, _moved(function), _rounded(function, dtypes))
        wide = widener.rewrite(function)
        return _with_outputs(function, wide, dtypes)

    return map_functions(module, convert)


def _is_plain(value: Expr) -> bool:
    """Whether a value is of an operator that can be computed in another type, or no call."""
    return not isinstance(value, Call) or definition_of(value) is not None


def _with_outputs(old: Function, new: Function, dtypes: Collection[str]) -> Function:
    """The function with results in the old types again."""
    bindings = []

    def narrowed(before: Expr, after: Expr) -> Expr:
        if isinstance(before, Tuple) and isinstance(after, Tuple):
            return Tuple(tuple(narrowed(a, b) for a, b in zip(before.fields, after.fields, strict=True)))
        if not _is_one_of(before, dtypes) or _is_one_of(after, dtypes):
            return after
        info = before.struct_info
        assert isinstance(info, TensorStructInfo), "just seen"
        var = Var(getattr(before, "name", "out"), info)
        bindings.append(VarBinding(var, op.astype(after, info.dtype)))
        return var

    result = narrowed(old.body.body, new.body.body)
    if not bindings:
        return new
    *before, last = new.body.blocks or (BindingBlock(()),)
    blocks = (*before, dataclasses.replace(last, bindings=(*last.bindings, *bindings)))
    return dataclasses.replace(new, body=SeqExpr(blocks, result), ret_struct_info=old.ret_struct_info)


def WidenHalves(dtypes: Collection[str] = ("float16",)) -> Pass:  # noqa: N802
    """See `widen_halves`."""
    return graph_pass("WidenHalves")(lambda module: widen_halves(module, dtypes))
