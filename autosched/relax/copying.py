"""Copies of functions with variables of their own."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.ir.node import Node, map_children
from autosched.relax.expr import DataflowVar, Function, Var
from autosched.relax.rewrite import bindings_of


def copy_with_new_vars(func: Function) -> Function:
    """A function of the same form that shares no variable with `func`."""
    bound = (*func.params, *(b.var for b in bindings_of(func.body)))
    return rename_variables(func, {v: _alike(v) for v in bound})


def _alike(var: Var) -> Var:
    return (DataflowVar if isinstance(var, DataflowVar) else Var)(var.name, var.struct_info)


def rename_variables(func: Function, renamed: Mapping[Var, Node]) -> Function:
    """The function with other variables, or values, in the place of some."""

    def visit(x: Node) -> object:
        return renamed.get(x, x) if isinstance(x, Var) else map_children(x, visit)

    return map_children(func, visit)
