"""What is computed of weights alone moves into a function of its own; weights as one tuple."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from autosched.errors import InvalidValueError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.rewrite import Rewriter, used_vars
from autosched.relax.struct_info import TupleStructInfo


def _weights(function: Function) -> tuple[Var, ...]:
    return function.params[function.attrs["num_input"] :] if "num_input" in function.attrs else ()


def _liftable(function: Function, weights: tuple[Var, ...]) -> list[Binding]:
    """The bindings that read nothing but weights and what was computed of them."""
    known, found = set(weights), []
    for block in function.body.blocks:
        if not isinstance(block, DataflowBlock):
            break
        for b in block.bindings:
            reads = set(used_vars(b.value))
            if reads and reads <= known and isinstance(b.value, Call | Tuple | TupleGetItem):
                known.add(b.var)
                found.append(b)
    return found


def lift_function(function: Function, name: str) -> tuple[Function, Function]:
    """(the function with lifted weights as parameters, the function that computes these from all weights)."""
    weights = _weights(function)
    lifted = _liftable(function, weights)
    made = {b.var for b in lifted}
    read_later: dict[Var, None] = {}
    for b in function.bindings():
        if b.var not in made:
            read_later.update(dict.fromkeys(used_vars(b.value)))
    read_later.update(dict.fromkeys(used_vars(function.body.body)))
    results = [v for v in (*weights, *(b.var for b in lifted)) if v in read_later]
    new = {v: Var(v.name, v.struct_info) for v in results if v in made}
    return _without(function, made, results, new), _transformer(weights, lifted, results, name)


def _without(function: Function, made: set[Var], results: list[Var], new: dict[Var, Var]) -> Function:
    blocks: list[BindingBlock] = []
    for block in function.body.blocks:
        kept = tuple(b for b in block.bindings if b.var not in made)
        if kept:
            blocks.append(dataclasses.replace(block, bindings=kept))
    rest = dataclasses.replace(function, body=SeqExpr(tuple(blocks), function.body.body))
    rewriter = Rewriter()
    rewriter.replaced = dict(new)
    inputs = function.params[: function.attrs["num_input"]]
    return dataclasses.replace(rewriter.rewrite(rest), params=(*inputs, *(new.get(v, v) for v in results)))


def _transformer(weights: tuple[Var, ...], lifted: list[Binding], results: list[Var], name: str) -> Function:
    params = Var("params", TupleStructInfo(tuple(w.struct_info for w in weights)))  # type: ignore[misc]
    inside: dict[Var, Var] = {}
    bindings: list[VarBinding] = []
    rewriter = Rewriter()

    def bind(var: Var, value: Expr) -> None:
        inside[var] = DataflowVar(var.name, var.struct_info)
        bindings.append(VarBinding(inside[var], value))

    def open_items(reads: Iterable[Var]) -> None:  # where they are read first, as TVM has them
        for v in reads:
            if v in weights and v not in inside:
                bind(v, TupleGetItem(params, weights.index(v)))

    for b in lifted:
        open_items(used_vars(b.value))
        rewriter.replaced = dict(inside)
        bind(b.var, rewriter.substitute(b.value))
    open_items(results)
    found = Tuple(tuple(inside[v] for v in results))
    out = Var("output_tuple", found.struct_info)
    body = SeqExpr((DataflowBlock((*bindings, VarBinding(out, found))),), out)
    return Function(
        (params,), body, out.struct_info, True, FrozenDict({"global_symbol": name, "num_input": 0})
    )  # fmt: skip


def lift_transform_params(module: IRModule, shared_transform: object = False) -> IRModule:
    """Move what functions compute of their weights into `<name>_transform_params(params)`, a tuple to a tuple.

    A function's weights are its parameters behind the first `num_input` ones; their place is taken by that
    function's results, in its order.
    Raises  ValueError for a transformation that several functions are to share.
    """
    functions: dict[GlobalVar, BaseFunc] = dict(module.functions)
    added: dict[str, Function] = {}
    for gv, f in module.functions.items():
        if isinstance(f, Function) and "num_input" in f.attrs and _weights(f):
            functions[gv], added[f"{gv.name}_transform_params"] = lift_function(f, f"{gv.name}_transform_params")
    if shared_transform and len(added) > 1:
        raise InvalidValueError("a shared transformation of several functions' weights is not available")
    if shared_transform and added:
        made = next(iter(added.values())).with_attr("global_symbol", "transform_params")
        added = {"transform_params": made}
    result = module.with_functions(functions)
    for name, f in added.items():
        result[name] = f
    return result


def LiftTransformParams(shared_transform: object = False) -> Pass:  # noqa: N802
    """See `lift_transform_params`."""
    return graph_pass("LiftTransformParams")(lambda module: lift_transform_params(module, shared_transform))


class _Unbundled(Rewriter):
    """Takes a weight out of the tuple in front of each binding that reads it."""

    def __init__(self, places: Mapping[Var, int], bundle: Var):
        super().__init__()
        self.places, self.bundle = places, bundle

    def _binding(self, b: Binding) -> None:
        for w in dict.fromkeys(used_vars(b.value)):
            if w in self.places:
                self.replaced[w] = self.emit(TupleGetItem(self.bundle, self.places[w]), w.name)
        super()._binding(b)


def bundle_function(function: Function, name: str) -> Function:
    """The function with its weights as one tuple."""
    if "num_input" not in function.attrs:
        return function
    weights = _weights(function)
    bundle = Var(name, TupleStructInfo(tuple(w.struct_info for w in weights)))  # type: ignore[misc]
    shown = set(used_vars(function.body.body))  # as results: seen behind all blocks
    first = tuple(VarBinding(w, TupleGetItem(bundle, i)) for i, w in enumerate(weights) if w in shown)
    blocks = (BindingBlock(first), *function.body.blocks) if first else function.body.blocks
    params = (*function.params[: function.attrs["num_input"]], bundle)
    opened = dataclasses.replace(function, params=params, body=SeqExpr(blocks, function.body.body))
    return _Unbundled({w: i for i, w in enumerate(weights) if w not in shown}, bundle).rewrite(opened)


def BundleModelParams(param_tuple_name: str | None = None) -> Pass:  # noqa: N802
    """Functions with the attribute `num_input` take their weights as one tuple, the last parameter."""

    def bundle(module: IRModule) -> IRModule:
        functions = {
            gv: bundle_function(f, param_tuple_name or "model_params") if isinstance(f, Function) else f
            for gv, f in module.functions.items()
        }  # fmt: skip
        return module.with_functions(functions)

    return graph_pass("BundleModelParams")(bundle)
