"""Private functions with other parameters and results: what is unused goes, and tuples become their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from autosched.errors import InvalidTypeError
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import preorder
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.analysis import tir_vars_in_struct_info
from autosched.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from autosched.relax.rewrite import Rewriter, map_functions, used_vars
from autosched.relax.struct_info import StructInfo, TupleStructInfo
from autosched.relax.transform.canonicalize_bindings import canonicalize_bindings
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.tir.expr import Var as TirVar


def _called_only(module: IRModule) -> dict[str, Function]:
    """The private functions that are used by calls alone: all their callers are known."""
    found = {gv.name: f for gv, f in module.functions.items() if isinstance(f, Function) and _is_private(f)}
    for f in module.functions.values():
        if not isinstance(f, Function):
            continue
        operators = {id(x.op) for x in preorder(f) if isinstance(x, Call)}
        for x in preorder(f):
            if isinstance(x, GlobalVar) and id(x) not in operators:
                found.pop(x.name, None)
            if isinstance(x, Call):
                for a in x.args:
                    if isinstance(a, GlobalVar):
                        found.pop(a.name, None)
    return found


def _is_private(f: Function) -> bool:
    return "global_symbol" not in f.attrs


class _Caller(Rewriter):
    """Changes calls of functions by name."""

    def __init__(self, change: Callable[[str, Call], Expr]):
        super().__init__()
        self.change = change

    def call(self, call: Call, var: Var) -> Expr:
        return self.change(call.op.name, call) if isinstance(call.op, GlobalVar) else call


def _changed(module: IRModule, new: Mapping[str, Function], change: Callable[[str, Call], Expr]) -> IRModule:
    functions = {
        gv: _Caller(change).rewrite(new.get(gv.name, f)) if isinstance(f, Function) else f  # type: ignore[arg-type]
        for gv, f in module.functions.items()
    }
    return module.with_functions(functions)


def _symbols(infos: Sequence[StructInfo | None]) -> set[TirVar]:
    return {v for info in infos if info is not None for v in tir_vars_in_struct_info(info)}


def remove_unused_parameters(module: IRModule) -> IRModule:
    """Leave out parameters of private functions that their bodies do not read, in calls too.

    One that alone says what a symbol is stays while the function uses the symbol.
    """
    kept: dict[str, list[int]] = {}
    new: dict[str, Function] = {}
    for name, f in _called_only(module).items():
        read = set(used_vars(f.body))
        keep = [i for i, p in enumerate(f.params) if p in read]
        needed = {x for x in preorder(f.body) if isinstance(x, TirVar)}
        needed |= _symbols([b.var.struct_info for b in f.bindings()]) | _symbols([f.ret_struct_info])
        for i, p in enumerate(f.params):
            missing = needed - _symbols([f.params[j].struct_info for j in keep])
            if i not in keep and missing & _symbols([p.struct_info]):
                keep.append(i)
        if len(keep) < len(f.params):
            kept[name] = sorted(keep)
            new[name] = dataclasses.replace(f, params=tuple(f.params[i] for i in sorted(keep)))
    if not kept:
        return module

    def change(name: str, call: Call) -> Expr:
        return dataclasses.replace(call, args=tuple(call.args[i] for i in kept[name])) if name in kept else call

    changed = _changed(module, new, change)
    return map_functions(changed, remove_unused_bindings)


def expand_tuple_arguments(module: IRModule) -> IRModule:
    """Let private functions take the fields of a tuple as parameters of their own, tuples in tuples too."""
    new: dict[str, Function] = {}
    for name, f in _called_only(module).items():
        if any(isinstance(p.struct_info, TupleStructInfo) for p in f.params):
            new[name] = _with_fields(f)
    if not new:
        return module

    def change(name: str, call: Call) -> Expr:
        if name not in new:
            return call
        return dataclasses.replace(call, args=tuple(x for a in call.args for x in _fields_of(a)))

    return _changed(module, new, change)


def _fields_of(x: Expr) -> list[Expr]:
    if not isinstance(x.struct_info, TupleStructInfo):
        return [x]
    items = x.fields if isinstance(x, Tuple) else [TupleGetItem(x, i) for i in range(len(x.struct_info.fields))]
    return [y for item in items for y in _fields_of(item)]


def _with_fields(f: Function) -> Function:
    params: list[Var] = []
    body = Rewriter()

    def expanded(name: str, info: StructInfo | None) -> Expr:
        if isinstance(info, TupleStructInfo):
            return Tuple(tuple(expanded(f"{name}_{i}", x) for i, x in enumerate(info.fields)))
        params.append(Var(name, info))
        return params[-1]

    for p in f.params:
        if isinstance(p.struct_info, TupleStructInfo):
            body.replaced[p] = expanded(p.name, p.struct_info)
        else:
            params.append(p)
    return dataclasses.replace(body.rewrite(f), params=tuple(params))


def remove_unused_outputs(module: IRModule) -> IRModule:
    """Leave out fields of the tuples that private functions give and that no caller takes."""
    candidates = {
        name: f for name, f in _called_only(module).items()
        if isinstance(f.ret_struct_info, TupleStructInfo) and f.ret_struct_info.fields
    }  # fmt: skip
    taken: dict[str, set[int]] = {name: set() for name in candidates}
    for f in module.functions.values():
        if isinstance(f, Function):
            _note_taken(f, taken)
    kept = {
        name: sorted(fields) for name, fields in taken.items()
        if len(fields) < len(candidates[name].ret_struct_info.fields)  # type: ignore[union-attr]
    }  # fmt: skip
    if not kept:
        return module
    new = {name: _with_results(candidates[name], keep) for name, keep in kept.items()}
    functions = {
        gv: _Taker(kept, new).rewrite(new.get(gv.name, f)) if isinstance(f, Function) else f  # type: ignore[arg-type]
        for gv, f in module.functions.items()
    }
    return map_functions(module.with_functions(functions), remove_unused_bindings)


def _note_taken(f: Function, taken: dict[str, set[int]]) -> None:
    """Add which fields a function takes of the results of its calls; all where it passes a result on."""
    results: dict[Var, str] = {}
    for b in f.bindings():
        value = b.value
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var) and value.tuple_value in results:
            taken[results[value.tuple_value]].add(value.index)
            continue
        for x in _loose_tuples(value):
            _all_taken(taken, results, x)
        if isinstance(b, VarBinding) and isinstance(value, Call) and isinstance(value.op, GlobalVar):
            if value.op.name in taken:
                results[b.var] = value.op.name
    for x in _loose_tuples(f.body.body):
        if isinstance(x, TupleGetItem):
            if isinstance(x.tuple_value, Var) and x.tuple_value in results:
                taken[results[x.tuple_value]].add(x.index)
        else:
            _all_taken(taken, results, x)


def _all_taken(taken: dict[str, set[int]], results: Mapping[Var, str], x: Expr) -> None:
    if isinstance(x, TupleGetItem) and isinstance(x.tuple_value, Var) and x.tuple_value in results:
        taken[results[x.tuple_value]].add(x.index)
    elif isinstance(x, Var) and x in results:
        taken[results[x]].update(range(len(x.struct_info.fields)))  # type: ignore[union-attr]


def _loose_tuples(x: Expr) -> list[Expr]:
    """The variables and fields that an expression reads."""
    if isinstance(x, TupleGetItem):
        return [x] if isinstance(x.tuple_value, Var) else _loose_tuples(x.tuple_value)
    if isinstance(x, Tuple):
        return [y for field in x.fields for y in _loose_tuples(field)]
    if isinstance(x, Call):
        return [y for a in x.args if isinstance(a, Expr) for y in _loose_tuples(a)]
    return list(used_vars(x))


def _with_results(f: Function, keep: Sequence[int]) -> Function:
    result = f.body.body
    bound = {b.var: b.value for b in f.bindings()}
    while isinstance(result, Var) and isinstance(bound.get(result), Tuple | Var):
        result = bound[result]
    fields = [result.fields[i] if isinstance(result, Tuple) else TupleGetItem(result, i) for i in keep]
    whole: Expr = fields[0] if len(fields) == 1 else Tuple(tuple(fields))
    body = dataclasses.replace(f.body, body=whole)
    return remove_unused_bindings(dataclasses.replace(f, body=body, ret_struct_info=whole.struct_info))


class _Taker(Rewriter):
    """Takes what is left of the results of calls."""

    def __init__(self, kept: Mapping[str, Sequence[int]], new: Mapping[str, Function]):
        super().__init__()
        self.kept, self.new = kept, new
        self.results: dict[Var, str] = {}

    def value(self, value: Expr, var: Var) -> Expr:
        if isinstance(value, Call) and isinstance(value.op, GlobalVar) and value.op.name in self.kept:
            self.results[var] = value.op.name
            return dataclasses.replace(value, struct_info=self.new[value.op.name].ret_struct_info)
        return super().value(value, var)

    def substitute(self, x: object) -> Expr:
        if isinstance(x, TupleGetItem) and isinstance(x.tuple_value, Var):
            name = self.results.get(x.tuple_value)
            if name is not None:
                source, keep = super().substitute(x.tuple_value), self.kept[name]
                return source if len(keep) == 1 else TupleGetItem(source, list(keep).index(x.index))
        return super().substitute(x)  # type: ignore[no-any-return]


def update_param_struct_info(module: IRModule, sinfo_func: Callable[[Var], StructInfo | None]) -> IRModule:
    """Give parameters the types that `sinfo_func` says (None: as before), and what is computed of them the types that
    follow."""

    def change(function: Function) -> Function:
        body, params = Rewriter(), []
        for p in function.params:
            info = sinfo_func(p)
            if info is not None and not isinstance(info, StructInfo):
                raise InvalidTypeError(f"UpdateParamStructInfo: a {type(info).__name__} for '{p.name}'")
            params.append(p if info is None or info is p.struct_info else dataclasses.replace(p, struct_info=info))
            if params[-1] is not p:
                body.replaced[p] = params[-1]
        if not body.replaced:
            return function
        retyped = _Retyper(body.replaced).rewrite(function)
        return dataclasses.replace(retyped, params=tuple(params), ret_struct_info=retyped.body.struct_info)

    return map_functions(module, change)


class _Retyper(Rewriter):
    """Lets operators say anew what they give."""

    def __init__(self, replaced: Mapping[Var, Expr]):
        super().__init__()
        self.replaced.update(replaced)

    def _substituted_call(self, x: Call) -> Call:
        new = super()._substituted_call(x)
        return new if new is x or isinstance(new.op, GlobalVar) else dataclasses.replace(new, struct_info=None)


def RemoveUnusedParameters() -> Pass:  # noqa: N802
    """See `remove_unused_parameters`."""
    return graph_pass("RemoveUnusedParameters")(remove_unused_parameters)


def _tidied(module: IRModule) -> IRModule:
    return map_functions(canonicalize_bindings(module), remove_unused_bindings)


def RemoveUnusedOutputs() -> Pass:  # noqa: N802
    """See `remove_unused_outputs`; names of names and what nobody reads go too."""
    return graph_pass("RemoveUnusedOutputs")(lambda module: _tidied(remove_unused_outputs(module)))


def ExpandTupleArguments() -> Pass:  # noqa: N802
    """See `expand_tuple_arguments`; names of names and what nobody reads go too."""
    return graph_pass("ExpandTupleArguments")(lambda module: _tidied(expand_tuple_arguments(module)))


def UpdateParamStructInfo(sinfo_func: Callable[[Var], StructInfo | None]) -> Pass:  # noqa: N802
    """See `update_param_struct_info`."""
    return graph_pass("UpdateParamStructInfo")(lambda module: update_param_struct_info(module, sinfo_func))
