"""TVM's constructors, visitors, questions and builders of the loop level."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import arith, ir, te, tir
from autosched.errors import InvalidTypeError, InvalidValueError, VerifyError
from autosched.ir import structural_equal
from autosched.script import tir as T
from autosched.tir import stmt_functor
from autosched.tir.expr import IntImm
from autosched.tir.stmt import For


@T.prim_func
def double(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 2.0


x, y = tir.Var("x", "int32"), tir.Var("y", "float32")


def test_a_name_makes_nodes_and_stands_for_their_class() -> None:
    loop = tir.For(x, 0, 8, tir.ForKind.VECTORIZED, tir.Evaluate(0))
    assert isinstance(loop, tir.For) and type(loop) is For and type(loop) == tir.For  # noqa: E721
    assert loop.min.value == 0 and loop.extent.value == 8 and loop.kind is tir.ForKind.VECTORIZED
    assert isinstance(tir.IntImm("int64", 3), IntImm) and tir.IntImm("int64", 3).dtype == "int64"
    assert structural_equal(tir.Add(x, 1), x + 1)
    assert tir.Cast("float32", x).dtype == "float32"
    assert tir.Call("float32", "tir.exp", [y]).op == "exp"
    b = tir.decl_buffer((4, 4), name="b")
    assert structural_equal(tir.BufferStore(b, 1.0, [0, 1]), b.vstore([0, 1], 1.0))
    assert b.scope() == b.scope == "global"
    assert b.data is b.data


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tir.IntImm("float32", 3), InvalidValueError, "no integer type"),
        (lambda: tir.IntImm("int32", "a"), InvalidTypeError, "'value'"),
        (lambda: tir.Var(5), InvalidTypeError, "'name'"),
        (lambda: tir.Var("x", "int33"), InvalidValueError, "int33"),
        (lambda: tir.Add(x, "a"), InvalidTypeError, "arithmetic|expected"),
        (lambda: tir.For("i", 0, 4, 0, tir.Evaluate(0)), InvalidTypeError, "'loop_var'"),
        (lambda: tir.For(x, 0, 4, "sideways", tir.Evaluate(0)), InvalidValueError, "sideways"),
        (lambda: tir.For(x, 0, 4, 0, 5.5), InvalidTypeError, "'body'"),
        (lambda: tir.BufferLoad(tir.decl_buffer((4, 4)), [0]), InvalidValueError, "2 dimensions"),
        (lambda: tir.BufferStore(5, 1, [0]), InvalidTypeError, "'buffer'"),
        (lambda: tir.decl_buffer((-1,)), InvalidValueError, "negative"),
        (lambda: tir.decl_buffer("ab"), InvalidTypeError, "shape"),
        (lambda: tir.decl_buffer((4,)).vload([0], "float32x4"), InvalidValueError, "float32x4"),
        (lambda: tir.call_packed(), InvalidTypeError, "name is missing"),
        (lambda: tir.call_extern("int32", 5), InvalidTypeError, "name"),
        (lambda: y & 3, InvalidTypeError, "integers"),
        (lambda: tir.layout("NC4h"), InvalidValueError, "no layout"),
        (lambda: stmt_functor.post_order_visit(5, print), InvalidTypeError, "'stmt'"),
        (lambda: stmt_functor.substitute(x + 1, {"x": 1}), InvalidTypeError, "key"),
        (lambda: stmt_functor.ir_transform(double.body, None, None, ["tir.Nobody"]), InvalidValueError, "Nobody"),
    ],
)
def test_wrong_arguments_are_named(make, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        make()


def test_bits() -> None:
    assert str(x & 3 | 4 ^ (x << 1)) == "T.bitwise_or(T.bitwise_and(x, 3), T.bitwise_xor(4, T.shift_left(x, 1)))"
    assert (tir.const(6) & 3).value == 2 and (tir.const(1) << 3).value == 8
    assert str((x < 3) & (x > 1)) == "x < 3 and x > 1"


def test_ir_transform_replaces_loops() -> None:
    def vectorised(op: For) -> For | None:
        if op.extent.value != 8:
            return None
        return tir.For(op.loop_var, 0, 8, tir.ForKind.VECTORIZED, op.body)

    body = stmt_functor.ir_transform(double.body, None, vectorised, ["tir.For"])
    assert "T.vectorized(8)" in double.with_body(body).script()
    kinds = []
    stmt_functor.post_order_visit(body, lambda node: kinds.append(type(node).__name__))
    assert kinds.index("BufferStore") < kinds.index("For")
    stop: list[str] = []
    stmt_functor.pre_order_visit(body, lambda node: stop.append(type(node).__name__) or not isinstance(node, For))
    assert stop[-1] == "For"
    renewed = stmt_functor.renew_defs(double)
    assert structural_equal(renewed, double) and renewed.params[0] is not double.params[0]


def test_analysis() -> None:
    assert tir.analysis.verify_well_formed(double)
    assert tir.analysis.estimate_tir_flops(ir.IRModule({"main": double})) == 128
    assert tir.analysis.expr_deep_equal(x + 1, x + 1) and not tir.analysis.expr_deep_equal(x + 1, 1 + x)
    assert tir.analysis.undefined_vars(tir.For(x, 0, 4, 0, tir.Evaluate(x + tir.Var("n")))) != [x]
    block = double.body.block.body.body.body.block
    reads, writes, other = tir.analysis.get_block_access_region(block)
    assert [r.buffer.name for r in reads] == ["A"] and [w.buffer.name for w in writes] == ["C"] and other == []
    broken = tir.PrimFunc([], tir.Evaluate(x))
    assert not tir.analysis.verify_well_formed(broken, assert_mode=False)
    with pytest.raises(VerifyError):
        tir.analysis.verify_well_formed(broken)


def test_passes_keep_the_meaning() -> None:
    mod = ir.IRModule({"main": double})
    for name in ("Simplify", "LowerInitBlock", "LowerOpaqueBlock", "RemoveNoOp", "FlattenBuffer", "UnrollLoop"):
        mod = getattr(tir.transform, name)()(mod)
    assert "T.block" not in mod.script()
    arrays = [np.ones((16, 8), np.float32), np.zeros((16, 8), np.float32)]
    tir.interpret(mod["main"], arrays)
    assert (arrays[1] == 2).all()
    with pytest.raises(AttributeError, match="Nobody"):
        _ = tir.transform.Nobody
    assert tir.transform.Apply(lambda f: f.with_attr("x", 1))(mod)["main"].attrs["x"] == 1
    loop = tir.For(x, 0, 3, tir.ForKind.UNROLLED, tir.BufferStore(tir.decl_buffer((3,), name="B"), 1.0, [x]))
    unrolled = tir.transform.UnrollLoop()(ir.IRModule({"main": tir.PrimFunc([], loop)}))
    assert len(unrolled["main"].body.seq) == 3


def test_the_builder() -> None:
    ib = tir.ir_builder.create()
    a = ib.pointer("float32", name="A")
    with ib.for_range(0, 8, name="k") as k:
        with ib.if_scope(k % 2 == 0):
            a[k] = a[k] + 1
        with ib.else_scope():
            a[k] = 0
    text = str(ib.get())
    assert "for k in range(8):" in text and "else:" in text
    with pytest.raises(InvalidValueError, match="else_scope"):
        ib.else_scope()
    with pytest.raises(InvalidTypeError, match="emit"):
        ib.emit(5)


def test_the_analyzer() -> None:
    ana, i = arith.Analyzer(), te.var("i")
    ana.bind(i, ir.Range(0, 10))
    assert ana.can_prove(i < 10) and not ana.can_prove(i < 9)
    assert str(ana.simplify((i * 4 + 3) // 4)) == "i"
    bound = ana.const_int_bound(i * 2 + 1)
    assert (bound.min_value, bound.max_value) == (1, 19)
    assert (ana.modular_set(i * 6 + 4).coeff, ana.modular_set(i * 6 + 4).base) == (6, 4)
    n = te.var("n")
    with ana.constraint_scope(n > 5):
        assert ana.can_prove(n >= 6)
    assert not ana.can_prove(n >= 6)
    assert ana.can_prove_equal(n + i, i + n)
    assert [str(c) for c in arith.detect_linear_equation(n * 3 + i - 2, [n, i])] == ["3", "1", "-2"]
    assert [str(c) for c in arith.detect_linear_equation(n * i, [n])] == ["i", "0"]
    assert arith.detect_linear_equation(n * n, [n]) == []
    low, high = arith.detect_clip_bound(tir.all(n > 2, n * 2 < 9), [n])
    assert (low.value, high.value) == (3, 4)
    assert arith.deduce_bound(n, n + i < 20, {}, {i: ir.Range(0, 10)}).max_value.value == 10
    assert str(ana.int_set(n + i, {n: arith.IntervalSet(0, 3)})) == "IntervalSet[i, i + 3]"
    with pytest.raises(InvalidTypeError, match="can_prove"):
        ana.can_prove("x")


def test_layouts() -> None:
    both = tir.bijective_layout("NCHW", "NCHW16c")
    assert [int(n) for n in both.forward_shape((1, 20, 7, 7))] == [1, 2, 7, 7, 16]
    assert [int(n) for n in both.forward_index((0, 17, 1, 2))] == [0, 1, 1, 2, 1]
    assert [int(n) for n in both.backward_index((0, 1, 1, 2, 1))] == [0, 17, 1, 2]


def test_index_maps() -> None:
    index_map = tir.IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    back = index_map.inverse((8, 5))
    there = index_map.map_indices([tir.const(6), tir.const(3)])
    assert [int(n) for n in back.map_indices(there)] == [6, 3]
    assert index_map.map_ndarray(np.arange(40).reshape(8, 5)).shape == (2, 5, 4)
    with pytest.raises(InvalidValueError, match="no inverse"):
        tir.IndexMap.from_func(lambda i: i // 2).inverse((8,))
