"""Groups of operators that have a given form become functions, for external libraries or a rule of the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.errors import InvalidTypeError
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Attrs, FrozenDict
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.dpl.pattern import DFPattern
from autosched.relax.expr import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    Op,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.names import UniqueNames
from autosched.relax.rewrite import users
from autosched.relax.transform.dead_code import remove_unused_functions


@dataclass(frozen=True)
class PatternCheckContext:
    """What a check is shown of a match.

    matched_expr        the last value
    annotated_expr      what the patterns of the user's names have matched
    matched_bindings    the bindings of the values inside
    var_usages          who reads each variable; value_to_bound_var: the variable of each value
    """

    matched_expr: Expr
    annotated_expr: Mapping[str, Expr]
    matched_bindings: Mapping[Var, Expr]
    var_usages: Mapping[Var, Sequence[Var | None]]
    value_to_bound_var: Mapping[Expr, Var]


@dataclass(frozen=True)
class FusionPattern:
    """A form with a name; `check` may refuse a match."""

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[Mapping[str, Expr]], Attrs] | None = None


def as_fusion_pattern(x: object) -> FusionPattern:
    """A FusionPattern from (name, pattern[, named patterns[, check]]) or (name, pattern, check). Raises TypeError."""
    if isinstance(x, FusionPattern):
        return x
    if not isinstance(x, tuple) or not 2 <= len(x) <= 5 or not isinstance(x[1], DFPattern) or not isinstance(x[0], str):
        raise InvalidTypeError("FuseOpsByPattern takes (name, pattern) pairs or FusionPatterns")
    name, pattern, *rest = x
    if rest and callable(rest[0]):
        rest.insert(0, {})
    return FusionPattern(name, pattern, *(r if r is not None else {} for r in rest[:1]), *rest[1:])


class _Partition:
    """Finds the matches of one function."""

    def __init__(self, function: Function, patterns: Sequence[FusionPattern]):
        self.function = function
        self.values = {b.var: b.value for b in function.bindings()}
        self.bound = {value: var for var, value in self.values.items()}
        self.order = {var: i for i, var in enumerate(self.values)}
        self.users = users(function)
        self.taken: set[Var] = set()
        self.groups: dict[Var, tuple[FusionPattern, list[Var], Mapping[str, Expr]]] = {}
        for pattern in patterns:
            for var in reversed(self.values):
                self.try_match(pattern, var)

    def try_match(self, pattern: FusionPattern, var: Var) -> None:
        found = pattern.pattern.extract_matched_expr(self.values[var], self.values) if var not in self.taken else None
        if found is None:
            return
        inside = {var}
        for form, expr in found.items():
            own = expr if isinstance(expr, Var) else self.bound.get(expr)
            if own in self.values and _computes(form) and isinstance(self.values[own], Call | Tuple | TupleGetItem):
                inside.add(own)
        members = sorted(inside, key=lambda v: self.order[v])
        hidden = [v for v in members if v is not var]
        if inside & self.taken or any(r not in inside for v in hidden for r in self.users.get(v, ())):
            return
        annotated = {name: found[p] for name, p in pattern.annotation_patterns.items() if p in found}
        named = {name: self.values.get(e, e) if isinstance(e, Var) else e for name, e in annotated.items()}
        context = PatternCheckContext(
            self.values[var], named, {v: self.values[v] for v in members}, self.users, self.bound
        )
        if pattern.check is not None and not pattern.check(context):
            return
        self.taken |= inside
        self.groups[var] = (pattern, members, annotated)


def _computes(form: DFPattern) -> bool:
    """Whether a pattern names the value's own form, so that the value belongs to the group."""
    return any(child is not form for child in form.children())


class _Extraction:
    """The function of one group."""

    def __init__(self, bind_constants: bool):
        self.bind_constants = bind_constants
        self.params: dict[object, Var] = {}
        self.arguments: list[Expr] = []
        self.inside: dict[Var, Var] = {}
        self.names = UniqueNames()

    def value(self, x: Expr) -> Expr:
        if isinstance(x, Tuple):
            return Tuple(tuple(map(self.value, x.fields)))
        if isinstance(x, Constant) and self.bind_constants:
            return x
        if not isinstance(x, Var | Constant):
            return x
        if x in self.inside:
            return self.inside[x]
        key = x.identity if isinstance(x, Constant) else x
        if key not in self.params:
            name = x.name if isinstance(x, Var) else f"param_{len(self.params)}"
            self.params[key] = Var(self.names(name), x.struct_info)
            self.arguments.append(x)
        return self.params[key]

    def function(self, members: Sequence[Var], values: Mapping[Var, Expr], attrs: Attrs) -> Function:
        bindings = []
        for v in members:
            new = _with_operands(values[v], self.value)
            kind = Var if v is members[-1] else DataflowVar
            self.inside[v] = kind(self.names("gv" if v is members[-1] else "lv"), v.struct_info)
            bindings.append(VarBinding(self.inside[v], new))
        result = self.inside[members[-1]]
        body = SeqExpr((DataflowBlock(tuple(bindings)),), result)
        return Function(tuple(self.params.values()), body, result.struct_info, True, FrozenDict(attrs))


def _with_operands(value: Expr, change: Callable[[Expr], Expr]) -> Expr:
    if isinstance(value, Call):
        return dataclasses.replace(value, args=tuple(map(change, value.args)))
    if isinstance(value, TupleGetItem):
        return TupleGetItem(change(value.tuple_value), value.index)
    return change(value)


def _group_name(members: Sequence[Var], values: Mapping[Var, Expr]) -> str:
    ops = [values[v].op.name for v in members if isinstance(values[v], Call) and isinstance(values[v].op, Op)]  # type: ignore[attr-defined]
    return "_".join(["fused", *(op.replace(".", "_") for op in ops)])[:120]


def _replace(function: Function, calls: Mapping[Var, Call], gone: set[Var]) -> Function:
    blocks: list[BindingBlock] = []
    for block in function.body.blocks:
        bindings = [
            VarBinding(b.var, calls[b.var]) if b.var in calls else b for b in block.bindings if b.var not in gone
        ]  # fmt: skip
        blocks.append(dataclasses.replace(block, bindings=tuple(bindings)))
    return dataclasses.replace(function, body=SeqExpr(tuple(blocks), function.body.body))


def _fuse_function(
    function: Function, patterns: Sequence[FusionPattern], builder: BlockBuilder, bind_constants: bool, codegen: bool
) -> Function:
    partition = _Partition(function, patterns)
    calls: dict[Var, Call] = {}
    gone: set[Var] = set()
    for var, (pattern, members, annotated) in sorted(partition.groups.items(), key=lambda g: partition.order[g[0]]):
        extraction = _Extraction(bind_constants)
        attrs: dict[str, object] = {"Composite": pattern.name, "Primitive": True}
        if pattern.attrs_getter is not None:
            attrs |= pattern.attrs_getter(annotated)
        made = extraction.function(members, partition.values, attrs)
        gvar = builder.add_func(made, _group_name(members, partition.values))
        if codegen:
            gvar = _for_codegen(builder, gvar, made, pattern.name)
        calls[var] = Call(gvar, tuple(extraction.arguments), struct_info=var.struct_info)
        gone |= set(members[:-1])
    return _replace(function, calls, gone) if calls else function


def _for_codegen(builder: BlockBuilder, inner: GlobalVar, composite: Function, name: str) -> GlobalVar:
    """The function that an external library's code generator is given: it calls the composite one."""
    library = name.partition(".")[0]
    params = tuple(Var(p.name, p.struct_info) for p in composite.params)
    out = Var("output", composite.ret_struct_info)
    body = SeqExpr((BindingBlock((VarBinding(out, Call(inner, params, struct_info=out.struct_info)),)),), out)
    own = f"{inner.name}_{library}"
    function = Function(
        params, body, out.struct_info, True, FrozenDict({"Codegen": library, "global_symbol": own})
    )  # fmt: skip
    return builder.add_func(function, own)


def fuse_ops_by_pattern(
    module: IRModule, patterns: Sequence[object], bind_constants: bool = True, annotate_codegen: bool = False
) -> IRModule:
    """Move what has one of the forms into functions with the attribute `Composite`; earlier forms go first.

    bind_constants    constants become part of the function, else they are passed to it
    annotate_codegen  each of them is called by a function with the attribute `Codegen`
    Nothing is moved where another value outside of the group reads a value inside of it.
    """
    forms = [as_fusion_pattern(p) for p in patterns]
    builder = BlockBuilder(module)
    fused: dict[GlobalVar, Function] = {}
    for gv, function in module.functions.items():
        if isinstance(function, Function) and not function.attrs.get("Primitive") and "Codegen" not in function.attrs:
            new = _fuse_function(function, forms, builder, bind_constants, annotate_codegen)
            if new is not function:
                fused[gv] = new
    result = builder.get()
    for gv, function in fused.items():
        result.update_func(gv, function)
    return result if fused else module


def FuseOpsByPattern(  # noqa: N802
    patterns: Sequence[object], bind_constants: bool = True, annotate_codegen: bool = False,
    entry_function_names: Sequence[str] | None = None,
) -> Pass:  # fmt: skip
    """See `fuse_ops_by_pattern`; with entry functions, what these do not call goes first."""
    if not isinstance(patterns, Sequence):
        raise InvalidTypeError(f"FuseOpsByPattern takes a list of patterns, got {type(patterns).__name__}")
    forms = [as_fusion_pattern(p) for p in patterns]
    return graph_pass("FuseOpsByPattern")(
        lambda module: fuse_ops_by_pattern(
            module if not entry_function_names else remove_unused_functions(module, entry_function_names),
            forms,
            bind_constants,
            annotate_codegen,
        )  # fmt: skip
    )


def merge_composite_functions(module: IRModule) -> IRModule:
    """Neighbouring calls of composite functions of one library become one function with the attribute `Codegen`."""
    builder = BlockBuilder(module)
    changed: dict[GlobalVar, Function] = {}
    for gv, function in module.functions.items():
        if isinstance(function, Function) and "Composite" not in function.attrs and "Codegen" not in function.attrs:
            new = _merge_function(module, function, builder)
            if new is not function:
                changed[gv] = new
    result = builder.get()
    for gv, function in changed.items():
        result.update_func(gv, function)
    return result if changed else module


def _library(module: IRModule, value: Expr) -> str:
    """The library of a composite call; "" for any other value."""
    if not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
        return ""
    composite = getattr(module[value.op], "attrs", {}).get("Composite", "")
    return str(composite).partition(".")[0]


def _merge_function(module: IRModule, function: Function, builder: BlockBuilder) -> Function:
    values = {b.var: b.value for b in function.bindings()}
    readers = users(function)
    runs: list[tuple[str, list[Var]]] = []
    for var, value in values.items():
        library = _library(module, value)
        if library and runs and runs[-1][0] == library and runs[-1][1]:
            runs[-1][1].append(var)
        else:
            runs.append((library, [var] if library else []))
    calls: dict[Var, Call] = {}
    gone: set[Var] = set()
    for library, members in runs:
        for group in _single_result(members, readers):
            extraction = _Extraction(False)
            made = extraction.function(group, values, {})
            own = f"{values[group[0]].op.name}_{library}"  # type: ignore[attr-defined]
            made = made.with_attr({"Codegen": library, "global_symbol": own})
            gvar = builder.add_func(made, own)
            calls[group[-1]] = Call(gvar, tuple(extraction.arguments), struct_info=group[-1].struct_info)
            gone |= set(group[:-1])
    return _replace(function, calls, gone) if calls else function


def _single_result(members: Sequence[Var], readers: Mapping[Var, Sequence[object]]) -> list[list[Var]]:
    """Consecutive calls in groups of which only the last is read outside."""
    groups: list[list[Var]] = []
    for var in members:
        group = groups[-1] if groups else None
        if group and all(r is var for v in group[-1:] for r in readers.get(v, [None])):
            group.append(var)
        else:
            groups.append([var])
    return groups


def MergeCompositeFunctions() -> Pass:  # noqa: N802
    """See `merge_composite_functions`."""
    return graph_pass("MergeCompositeFunctions")(merge_composite_functions)
