"""Loops that end by data: a function that calls itself, over one that asks whether it goes on and one for a step."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.ir import GlobalVar
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import (
    BindingBlock,
    Call,
    Expr,
    Function,
    If,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo


def variables(types: Sequence[StructInfo]) -> list[Var]:
    """Parameters of these types."""
    return [Var(f"x{i}", info) for i, info in enumerate(types)]


def add_loop(
    builder: BlockBuilder, name: str, going: GlobalVar, taken: GlobalVar, state: Sequence[Expr], moving: Sequence[Expr],
    types: Sequence[StructInfo], carried: TupleStructInfo | None = None,
) -> Call:  # fmt: skip
    """Add a function that loops to the module; gives its call, whose result is the last state.

    going, taken  functions of state and `moving`: whether there is a step, and what it makes of the state
    moving        what stays as it is
    types         of state and `moving`
    carried       of the last state, where steps change its shapes
    """
    loop = GlobalVar(builder.get_unique_function_name(name))
    carried = carried or TupleStructInfo((*types[: len(state)],))
    builder.update_func(loop, _looping(loop, going, taken, types, carried))
    return Call(loop, (*state, *moving), struct_info=carried)


def _looping(
    loop: GlobalVar, going: GlobalVar, taken: GlobalVar, types: Sequence[StructInfo], carried: TupleStructInfo
) -> Function:
    """`loop(state, more)`: `loop(taken(state, more), more)` if `going(state, more)`, else the state."""
    params, n = variables(types), len(carried.fields)
    condition, result, last = Var("going", TensorStructInfo((), "bool")), Var("result", carried), Var("last", carried)
    after = Var("after", carried)
    fields = [Var(f"after{i}", info) for i, info in enumerate(carried.fields)]
    steps = [VarBinding(after, Call(taken, tuple(params), struct_info=carried))]
    steps += [VarBinding(var, TupleGetItem(after, i)) for i, var in enumerate(fields)]
    steps.append(VarBinding(last, Call(loop, (*fields, *params[n:]), struct_info=carried)))
    branches = SeqExpr((BindingBlock(tuple(steps)),), last), SeqExpr((), Tuple(tuple(params[:n])))
    body = (
        VarBinding(condition, Call(going, tuple(params), struct_info=condition.struct_info)),
        VarBinding(result, If(condition, *branches, struct_info=carried)),
    )
    return Function(tuple(params), SeqExpr((BindingBlock(body),), result), carried)
