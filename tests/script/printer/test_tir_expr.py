"""Expressions: few parentheses, and never an error."""

from __future__ import annotations

import pytest

from autosched import te, tir
from autosched.script import script
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import FloatImm, IntImm, Var
from autosched.tir.stmt import Evaluate
from tests.script import samples

i, j, m, q = Var("i"), Var("j"), Var("m", "int64"), Var("q", "bool")
A = samples.buffer("A", 8)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (i * 4 + j, "i * 4 + j"),
        ((i + 1) * 4, "(i + 1) * 4"),
        (i - (j - 2), "i - (j - 2)"),
        (i - j - 2, "i - j - 2"),
        (i // 4 * 4 + i % 4, "i // 4 * 4 + i % 4"),
        (i // (4 * j), "i // (4 * j)"),
        (i + -3, "i + -3"),
        (m * 2, "m * T.int64(2)"),
        (tir.truncdiv(i, 3), "T.Div(i, 3)"),
        (tir.truncmod(i, 3), "T.truncmod(i, 3)"),
        (tir.minimum(i, tir.maximum(j, 2)), "T.min(i, T.max(j, 2))"),
        ((i < 3).equal(q), "(i < 3) == q"),
        (tir.all_of(q, tir.any_of(i > 2, i < 1)), "q and (i > 2 or i < 1)"),
        (tir.any_of(q, tir.all_of(i > 2, i < 1)), "q or i > 2 and i < 1"),
        (tir.logical_not(tir.all_of(q, i != 0)), "not (q and i != 0)"),
        (tir.logical_not(i >= 0), "not i >= 0"),
        (A[i] * (A[i] + 0.5), "A[i] * (A[i] + T.float32(0.5))"),
        (A[i] / A[j] / A[0], "A[i] / A[j] / A[0]"),
        (tir.select(q, A[i], 1.0), "T.Select(q, A[i], T.float32(1.0))"),
        (tir.if_then_else(q, A[i], 1.0), "T.if_then_else(q, A[i], T.float32(1.0))"),
        (tir.cast("float32", m), 'T.Cast("float32", m)'),
        (te.exp(A[i]), "T.exp(A[i])"),
        (tir.call("exp", A[i], dtype="float64"), 'T.call_intrin("float64", "tir.exp", A[i])'),
        (tir.call("isnan", A[i], dtype="bool"), "T.isnan(A[i])"),
        (tir.call("call_extern", tir.StringImm("f"), i, dtype="int32"), 'T.call_extern("int32", "f", i)'),
        (tir.Add(IntImm(1), IntImm(2)), "T.Add(1, 2)"),
        (IntImm(1, "bool"), "T.bool(True)"),
        (IntImm(-1), "-1"),
        (IntImm(7, "uint8"), "T.uint8(7)"),
        (FloatImm(0.1), "T.float32(0.1)"),
        (FloatImm(float("inf")), 'T.float32("inf")'),
        (FloatImm(float("nan"), "float64"), 'T.float64("nan")'),
        (tir.Range(i, IntImm(4)), "T.Range(i, i + 4)"),
        (tir.expr.Let(i, IntImm(1), i + 1), "T.Let(i + 1, where={i: 1})"),
    ],
)
def test_text(node: object, text: str) -> None:
    assert script(node) == text


def test_str_of_an_expression_is_its_text() -> None:
    assert str(i * 4 + j) == "i * 4 + j"


def test_two_variables_of_one_name_are_told_apart() -> None:
    assert str(i + Var("i")) == "i + i_1"


def test_names_become_legal() -> None:
    assert str(Var("fc1.weight") + Var("lambda") + Var("0") + Var("")) == "fc1_weight + lambda_ + v_0 + v_"


def test_tensor_expressions_print_for_messages() -> None:
    x = te.placeholder((4, 5), name="X")
    k = te.reduce_axis((0, 5), "k")
    y = te.compute((4,), lambda a: te.sum(x[a, k], axis=k, where=k.var > 1), name="Y")
    assert str(y.op.body[0]) == "T.reduce(lambda x, y: x + y, X[a, k], axis=[k], where=k > 1)"
    assert str(x[i, j].as_expr() + 1.0) == "X[i, j] + T.float32(1.0)"


def test_a_broken_expression_still_prints() -> None:
    assert "T.unknown" in str(E.Add(i, None))
    assert "T.unknown" in str(BufferLoad(A, (object(),)))
    assert "T.unknown" in str(Evaluate(None))
