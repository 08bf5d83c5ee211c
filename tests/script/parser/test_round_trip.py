"""What the printer writes, the parser reads: structurally equal, and printed the same again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import te
from autosched.ir import IRModule, assert_structural_equal, structural_key
from autosched.script import from_source, script
from autosched.target import Target
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import FloatImm, IntImm, PrimExpr, Var
from autosched.tir.function import PrimFunc
from tests.script import samples
from tests.script.printer import test_relax_func as graphs


def assert_round_trip(node: object) -> None:
    text = script(node, show_meta=True)
    again = from_source(text)
    assert script(again, show_meta=True) == text
    assert_structural_equal(node, again)
    assert structural_key(node) == structural_key(again)


@pytest.mark.parametrize("make", samples.SAMPLES.values(), ids=samples.SAMPLES)
def test_loop_level(make: Callable[[], PrimFunc]) -> None:
    assert_round_trip(make())


@pytest.mark.parametrize("make", samples.SAMPLES.values(), ids=samples.SAMPLES)
def test_loop_level_without_sugar(make: Callable[[], PrimFunc]) -> None:
    assert_structural_equal(make(), from_source(script(make(), syntax_sugar=False)))


@pytest.mark.parametrize("make", [graphs.imported, graphs.symbolic, graphs.taking])
def test_graph_level(make: Callable[[], object]) -> None:
    assert_round_trip(make())


def test_items_of_tuples_inside_expressions_get_names() -> None:
    again = from_source(script(graphs.branching()))
    assert 'y_then: R.Tensor((2, 3), dtype="float32") = R.add(gv, R.const(1.0, "float32"))' in str(again)
    assert_round_trip(again)


def test_modules() -> None:
    assert_round_trip(graphs.calling())
    assert_round_trip(IRModule({"main": graphs.imported()}, attrs={"version": 2, "names": ("a", "b")}))
    assert_round_trip(IRModule())


def test_the_same_names_of_a_module_are_one() -> None:
    again = from_source(script(graphs.calling(), show_meta=True))
    call = next(iter(again["main"].bindings())).value
    assert call.args[0] is again.get_global_var("fused_matmul1_add1")


def test_an_explicit_root_around_nothing_and_a_function_of_loops_only_stay_apart() -> None:
    a = samples.buffer("A", 4)
    i = Var("i")
    nest = samples.loop(i, 4, samples.BufferStore(a, te.const(1.0), (i,)))
    bare, rooted = samples.function(a, body=nest), samples.function(a, body=samples.make_root(nest))
    assert_round_trip(bare)
    assert_round_trip(rooted)
    with pytest.raises(ValueError, match="StructuralEqual"):
        assert_structural_equal(bare, rooted)


def test_a_root_whose_only_child_is_a_block_without_variables() -> None:
    a = samples.buffer("A", 4)
    lone = samples.block("only", (), (), samples.BufferStore(a, te.const(1.0), (IntImm(0),)))
    assert_round_trip(samples.function(a, body=samples.make_root(lone)))
    assert_round_trip(samples.function(a, body=lone))


def test_attributes_keep_their_kinds() -> None:
    attrs = {"a": 1, "b": True, "c": 0.5, "d": "x\ny", "e": (1, ("z",)), "f": None, "g": IntImm(3), "h": FloatImm(1.5),
             "i": IntImm(1, "bool"), "j": float("inf"), "k": Target("llvm -num-cores=2")}  # fmt: skip
    func = samples.scheduled_matmul().with_attr(attrs)
    again = from_source(script(func))
    for key in "abcdefjk":
        assert again.attrs[key] == attrs[key]
        assert type(again.attrs[key]) is type(attrs[key])
    assert_structural_equal(func.without_attr("k"), again.without_attr("k"))


def test_bare_constants_are_read_in_their_place() -> None:
    text = script(samples.fused_matmul_add(), float_dtype="float32")
    assert_structural_equal(samples.fused_matmul_add(), from_source(text))


ROW, COLUMN = Var("i"), Var("j")
A = samples.buffer("A", 8)
integers = st.integers(-9, 9).map(IntImm)


NUMBERS = [E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.Min, E.Max, E.Div, E.Mod]
COMPARES = [E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE]


@st.composite
def numbers(draw: st.DrawFn, depth: int = 4) -> PrimExpr:
    """Any int32 expression, constants next to constants included."""
    kind = draw(st.integers(0, 9)) if depth else 0
    if kind <= 1:
        return draw(st.one_of(integers, st.sampled_from([ROW, COLUMN])))
    a, b = draw(numbers(depth - 1)), draw(numbers(depth - 1))
    if kind <= 5:
        return draw(st.sampled_from(NUMBERS))(a, b)
    if kind == 6:
        return E.Cast(E.Cast(a, "int64"), "int32")
    if kind == 7:
        return E.Let(v := Var("v"), a, E.Add(v, b))
    if kind == 8:
        return E.Cast(BufferLoad(A, (a,)), "int32")
    condition = draw(truths(depth - 1))
    return E.Select(condition, a, b) if draw(st.booleans()) else E.Call("if_then_else", (condition, a, b), "int32")


@st.composite
def truths(draw: st.DrawFn, depth: int) -> PrimExpr:
    kind = draw(st.integers(0, 3)) if depth else 0
    if kind == 0:
        return draw(st.sampled_from(COMPARES))(draw(numbers(depth - 1 if depth else 0)), draw(integers))
    if kind == 1:
        return E.Not(draw(truths(depth - 1)))
    return draw(st.sampled_from([E.And, E.Or, E.EQ, E.NE]))(draw(truths(depth - 1)), draw(truths(depth - 1)))


@settings(max_examples=150, deadline=None)
@given(numbers())
def test_any_expression(value: PrimExpr) -> None:
    """Parentheses are few, and never too few."""
    a = samples.buffer("B", 8, dtype="int32")
    made = samples.function(a, A, body=samples.BufferStore(a, value, (ROW,)))
    func = dataclasses.replace(made, params=(*made.params, ROW, COLUMN))
    again = from_source(script(func))
    assert_structural_equal(func, again)
    assert script(again) == script(func)


@given(st.floats(width=32, allow_nan=False))
def test_floats_come_back_exactly(value: float) -> None:
    a = samples.buffer("A", 1)
    func = samples.function(a, body=samples.BufferStore(a, FloatImm(value), (IntImm(0),)))
    assert from_source(script(func)).body.value.value == value


def test_many_te_functions() -> None:
    x = te.placeholder((5, 7), name="x")
    r, s = te.reduce_axis((0, 2), "r"), te.reduce_axis((0, 2), "s")

    def window(i: Var, j: Var) -> PrimExpr:
        at, inside = (i * 2 + r, j * 2 + s), te.all(i * 2 + r < 5, j * 2 + s < 7)
        return te.max(te.if_then_else(inside, x[at].as_expr(), te.min_value("float32")), axis=[r, s])

    pooled = te.compute((3, 4), window, name="pool")
    y = te.compute((3, 4), lambda i, j: te.exp(pooled[i, j]) / (te.tanh(pooled[i, j]) + 1.0), name="y")
    for dtype in (None, "int64"):
        assert_round_trip(te.create_prim_func([x, y], dtype))
