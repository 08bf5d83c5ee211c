"""Visitors of the loop level."""

from __future__ import annotations

from autosched.ir.node import preorder
from autosched.script import from_source
from autosched.tir import BufferLoad, PrimFunc, Var
from autosched.tir.expr import Let, const
from autosched.tir.function import bound_by_statements, bound_vars
from autosched.tir.functor import blocks, rewrite, statements
from autosched.tir.stmt import Block, Stmt

TEXT = """
@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        for j in range(8):
            with T.block("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vj]
    for i in range(4):
        with T.block("half"):
            vi = T.axis.spatial(4, i)
            if vi < 3:
                B[vi] = B[vi] * T.float32(0.5)
            else:
                B[vi] = T.float32(1)
"""


def _func() -> PrimFunc:
    return from_source(TEXT)


def test_statements_are_those_among_all_nodes_in_their_order() -> None:
    func = _func()
    assert list(statements(func.body)) == [x for x in preorder(func.body) if isinstance(x, Stmt)]
    assert [b.name_hint for b in blocks(func)] == ["root", "sum", "half"]
    assert blocks(func) == [x for x in preorder(func) if isinstance(x, Block)]


def test_variables_of_lets_in_expressions_are_bound_but_not_by_statements() -> None:
    func = _func()
    assert bound_by_statements(func.body) == bound_vars(func.body)
    own = Var("own", "float32")
    body = rewrite(func.body, lambda x: Let(own, x, own * const(2.0)) if isinstance(x, BufferLoad) else x)
    assert bound_vars(body) == bound_by_statements(body) | {own}
