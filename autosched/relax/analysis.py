"""Questions about functions, under TVM's names."""

from __future__ import annotations

from collections.abc import Callable

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Node, preorder
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    Var,
)
from autosched.relax.rewrite import bindings_of, used_vars, users
from autosched.relax.struct_info import StructInfo, covers
from autosched.relax.verify import well_formed as well_formed
from autosched.tir.expr import Var as TirVar
from autosched.tir.reshape_pattern import has_reshape_pattern as has_reshape_pattern


def _body(x: Expr | Function) -> Expr:
    return x.body if isinstance(x, Function) else x


def _bindings(x: Expr | Function | BindingBlock) -> list[Binding]:
    if isinstance(x, BindingBlock):
        return list(x.bindings)
    body = _body(x)
    return list(bindings_of(body)) if isinstance(body, SeqExpr) else []


def all_vars(expr: Node) -> list[Var]:
    """The variables that an expression or function names, in order, each once."""
    return list(dict.fromkeys(v for v in preorder(expr) if isinstance(v, Var)))


def bound_vars(expr: Expr | Function | BindingBlock) -> list[Var]:
    """The variables that are bound inside."""
    params = list(expr.params) if isinstance(expr, Function) else []
    return [*params, *(b.var for b in _bindings(expr))]


def free_vars(expr: Expr | Function) -> list[Var]:
    """The variables that are used and not bound inside."""
    bound = set(bound_vars(expr))
    return list(dict.fromkeys(v for v in used_vars(_body(expr)) if v not in bound))


def all_global_vars(expr: Expr | Function) -> list[GlobalVar]:
    """The functions of the module that are named, each once."""
    return list(dict.fromkeys(v for v in preorder(_body(expr)) if isinstance(v, GlobalVar)))


called_global_vars = all_global_vars


def free_symbolic_vars(func: Function) -> list[TirVar]:
    """Symbols in shapes that the parameters do not define."""
    defined = set(defined_symbolic_vars(func))
    return [v for v in dict.fromkeys(x for x in preorder(func) if isinstance(x, TirVar)) if v not in defined]


def defined_symbolic_vars(func: Function) -> list[TirVar]:
    """Symbols in shapes that the parameters define."""
    from autosched.relax.transform.bind_symbolic import symbolic_dims  # late: its package imports this one

    return symbolic_dims(func)


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """The bindings by the name of their variable."""
    found: dict[str, list[Binding]] = {}
    for b in _bindings(func):
        found.setdefault(b.var.name, []).append(b)
    return found


def get_var2val(func: Function) -> dict[Var, Expr]:
    """What each variable is bound to."""
    return {b.var: b.value for b in _bindings(func)}


def udchain(block: DataflowBlock) -> dict[Var, list[Var]]:
    """For each variable of a block those whose bindings use it."""
    chain: dict[Var, list[Var]] = {}
    for b in block.bindings:
        for v in dict.fromkeys(used_vars(b.value)):
            chain.setdefault(v, []).append(b.var)
    return chain


def computable_at_compile_time(func: Function) -> list[Var]:
    """The variables whose values depend on no input: on constants and on parameters that are weights."""
    n_inputs = func.attrs.get("num_input", len(func.params))
    known = set(func.params[n_inputs:])
    found = []
    for b in _bindings(func):
        if not isinstance(b.value, Call | Constant | Expr) or any(v not in known for v in used_vars(b.value)):
            continue
        known.add(b.var)
        found.append(b.var)
    return found


def remove_all_unused(func: Function | DataflowBlock) -> BindingBlock | DataflowBlock | Function:
    """A function, or a block of one, without bindings that nobody reads."""
    from autosched.relax.transform.dead_code import remove_unused_bindings  # late: its package imports this one

    if isinstance(func, DataflowBlock):
        outputs = tuple(b.var for b in func.bindings if type(b.var) is Var)
        kept = remove_unused_bindings(Function((), SeqExpr((func,), Tuple(outputs))))
        return kept.body.blocks[0] if kept.body.blocks else DataflowBlock(())
    return remove_unused_bindings(func)


def post_order_visit(expr: Node, fvisit: Callable[[Node], object]) -> None:
    """Call `fvisit` on every expression of a function, values before the variables that they are bound to."""
    if isinstance(expr, Function):
        for p in expr.params:
            fvisit(p)
        for b in _bindings(expr):
            if isinstance(b.value, Call):
                for a in b.value.args:
                    fvisit(a)
            fvisit(b.value)
            fvisit(b.var)
        expr = expr.body.body
    fvisit(expr)


def tir_vars_in_struct_info(info: StructInfo) -> list[TirVar]:
    """The symbols in an annotation, each once."""
    return list(dict.fromkeys(v for v in preorder(info) if isinstance(v, TirVar)))


definable_tir_vars_in_struct_info = tir_vars_in_struct_info


struct_info_base_check = covers


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Groups of functions that call each other, each sorted by name."""
    calls = {
        gv: set(all_global_vars(f)) & set(mod.functions) for gv, f in mod.functions.items() if isinstance(f, Function)
    }

    def reached(start: GlobalVar) -> set[GlobalVar]:
        seen: set[GlobalVar] = set()
        todo = list(calls.get(start, ()))
        while todo:
            if (gv := todo.pop()) not in seen:
                seen.add(gv)
                todo += calls.get(gv, ())
        return seen

    groups: dict[frozenset[GlobalVar], None] = {}
    for gv in calls:
        if gv in (below := reached(gv)):
            groups[frozenset(x for x in below if gv in reached(x))] = None
    return [sorted(g, key=lambda gv: gv.name) for g in groups]


def get_static_type(info: StructInfo) -> StructInfo:
    """The annotation itself."""
    return info


def contains_impure_call(expr: object) -> bool:
    """Whether a function says that it is impure."""
    return isinstance(expr, Function) and not expr.is_pure


__all__ = [
    "all_global_vars", "all_vars", "bound_vars", "called_global_vars", "computable_at_compile_time",
    "contains_impure_call", "definable_tir_vars_in_struct_info", "defined_symbolic_vars", "detect_recursion",
    "free_symbolic_vars", "free_vars", "get_static_type", "get_var2val", "name_to_binding", "post_order_visit",
    "remove_all_unused", "struct_info_base_check", "tir_vars_in_struct_info", "udchain", "users", "well_formed",
]  # fmt: skip
