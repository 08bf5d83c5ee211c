"""Values that Python code shares are looked at once: by rewrites, questions of form, simplifying, generated code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import te, tir
from autosched.codegen import compile_func
from autosched.ir import structural_equal, structural_hash
from autosched.ir.node import Node, children, preorder
from autosched.ir.structural import structural_key
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import BufferStore, IntImm, PrimExpr, PrimFunc, Var, access
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.evaluate import evaluate
from autosched.tir.functor import free_vars, loads, rewrite, rewrite_down, substitute
from autosched.tir.inlined_size import value_size
from autosched.tir.share import bind_shared, bind_shared_values
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt_functor import ir_transform, post_order_visit, pre_order_visit
from tests.codegen.programs import aligned, run

CPU = Target("llvm -mcpu=x86-64-v3")
DEEP = 60  # doublings: as a tree, 2^60 nodes
Step = Callable[[PrimExpr], PrimExpr]


def chain(x: PrimExpr, step: Step, n: int = DEEP) -> PrimExpr:
    for _ in range(n):
        x = step(x)
    return x


def double(x: PrimExpr) -> PrimExpr:
    return x + x


def swish(x: PrimExpr) -> PrimExpr:
    return x * tir.sigmoid(x)


def element(dtype: str = "float32") -> tuple[Buffer, Var, BufferLoad]:
    buffer, i = Buffer("x", (IntImm(8, "int64"),), dtype), Var("i", "int64")
    return buffer, i, BufferLoad(buffer, (i,))


class Counter:
    """Counts its calls, and fails soon after more than so many."""

    def __init__(self, most: int, result: Any = None):
        self.n, self.most, self.result = 0, most, result

    def __call__(self, x: Any) -> Any:
        self.n += 1
        assert self.n <= self.most, "a shared node was visited again and again"
        return x if self.result is Ellipsis else self.result


def counted(nodes: Iterator[Node], most: int) -> list[Node]:
    found = list(itertools.islice(nodes, most + 1))
    assert len(found) <= most
    return found


def test_visitors_and_rewrites_see_a_shared_value_once() -> None:
    _, i, x = element()
    value = chain(x, double)
    counted(preorder(value), 200)
    assert free_vars(value) == {i} and len(loads(value)) == 2
    assert rewrite(value, Counter(200, ...)) is value
    assert rewrite_down(value, Counter(200)) is value
    assert ir_transform(value, Counter(200), Counter(200)) is value
    post_order_visit(value, Counter(200))
    pre_order_visit(value, Counter(200))
    moved = substitute(value, {i: i + 1})
    counted(preorder(moved), 200)
    assert len({id(n) for n in preorder(moved) if isinstance(n, E.Add)}) == DEEP + 1, "what was shared stays shared"


def test_what_a_block_reads_is_found_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _, i, _ = element()
    looked = Counter(200, ...)
    monkeypatch.setattr(access, "children", lambda node: children(looked(node)))
    at = chain(i, double) % 8
    reads, _ = access.infer_regions(BufferStore(Buffer("y", (IntImm(8, "int64"),)), element()[2], (at,)))
    assert len(reads) == 1 and looked.n > DEEP


def test_questions_of_form_take_linear_time() -> None:
    _, i, x = element()
    once, again = chain(x, double), chain(x, double)
    assert structural_equal(once, again) and structural_hash(once) == structural_hash(again)
    assert not structural_equal(once, chain(x, double, DEEP + 1))
    assert structural_hash(once) != structural_hash(chain(x, double, DEEP + 1))
    assert form_key(once) == form_key(again) != form_key(chain(x, double, DEEP - 1))
    assert len({form_key(once), form_key(again)}) == 1
    other = chain(BufferLoad(x.buffer, (i + 1,)), double)
    assert not structural_equal(once, other) and form_key(once) != form_key(other)
    assert bool(once == again) and not bool(once == other)


@pytest.mark.parametrize("n", [3, 15])
def test_a_key_depends_on_the_form_and_not_on_what_is_shared(n: int) -> None:
    _, _, x = element()
    shared = chain(x, double, n)

    def copy(e: PrimExpr) -> PrimExpr:
        return E.Add(copy(e.a), copy(e.b)) if isinstance(e, E.Add) else e

    apart = E.Add(copy(shared.a), shared.b) if n > 10 else copy(shared)  # type: ignore[attr-defined]
    assert structural_key((shared, x)) == structural_key((apart, x))
    assert structural_key((shared, x)) != structural_key((apart, x, x))


def test_simplifying_and_bounds_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter(20_000, ...)
    plain = Analyzer._linear
    monkeypatch.setattr(Analyzer, "_linear", lambda self, x: plain(self, seen(x)))
    _, i, _ = element()
    analyzer = Analyzer({i: (0, 4)})
    doubled = chain(i, lambda v: E.Add(v, E.Max(v, IntImm(0, "int64"))), 40)
    assert analyzer.bound(doubled) == (0, 3 * 2**40)
    assert str(analyzer.simplify(doubled)) == f"i * T.int64({2**40})"
    mixed = chain(i, lambda v: E.Min(v * 3, E.Max(v, IntImm(5, "int64"))), 40)
    low, high = analyzer.bound(mixed)
    assert low == 0 and high is not None
    analyzer.simplify(mixed)
    analyzer.bind(i, (2, 1))
    assert analyzer.bound(doubled) == (2**41, 2**41), "what was found out holds for one question only"


def test_shared_values_are_bound_once() -> None:
    _, _, x = element()
    small = chain(x, double, 3)
    assert bind_shared(small) is small
    bound = bind_shared(chain(x, double))
    assert value_size(bound).own < 300 and len([n for n in preorder(bound) if isinstance(n, E.Let)]) == DEEP - 1
    again = bind_shared(bound)
    assert value_size(again).own == value_size(bound).own
    text = str(chain(x, double))
    assert len(text) < 10_000 and text.count("T.Let") == DEEP - 1


def test_what_only_a_branch_reads_is_bound_inside_of_it() -> None:
    buffer, i, x = element()
    guarded = chain(BufferLoad(buffer, (i - 1,)), double, 20)
    value = chain(E.if_then_else(i > 0, guarded, 0.0) + x, double, 20)
    bound = bind_shared(value)
    inside = [n for n in preorder(bound) if isinstance(n, E.Call) and n.op == "if_then_else"]
    assert len(inside) == 1 and isinstance(inside[0].args[1], E.Let)
    func = function(lambda x, at: bind_shared(chain(E.if_then_else(at > 0, x(at - 1), 0.0) + x(at), double, 20)))
    data = np.arange(1, 9, dtype="float32")
    arrays = [data, np.zeros(8, "float32")]
    tir.interpret(func, arrays)
    np.testing.assert_array_equal(arrays[1], (data + np.r_[0, data[:-1]]) * 2.0**20)


def function(value: Callable[[Any, Var], PrimExpr]) -> PrimFunc:
    x = te.placeholder((8,), name="x")
    return te.create_prim_func([x, te.compute((8,), lambda i: value(x, i), name="y")])


def expected(data: np.ndarray, kind: str, n: int) -> np.ndarray:
    value = data.astype("float64")
    for _ in range(n):
        value = value + value if kind == "double" else value / (1 + np.exp(-value))
    return value


@pytest.mark.parametrize("kind, n", [("double", DEEP), ("swish", 30)])
def test_a_lambda_that_shares_values_builds_and_computes(kind: str, n: int) -> None:
    step = {"double": double, "swish": swish}[kind]
    func = function(lambda x, i: chain(x(i), step, n))
    counted(preorder(func), 2000)
    data = aligned((8,))
    data[:] = np.linspace(-3, 4, 8)
    wanted = expected(data, kind, n)
    arrays = [data.copy(), np.zeros(8, "float32")]
    tir.interpret(func, arrays)
    np.testing.assert_allclose(arrays[1], wanted, rtol=1e-5)
    np.testing.assert_allclose(evaluate(func, [data])[0], wanted, rtol=1e-6)
    compiled = compile_func(apply_config(func, default_config(func, CPU), CPU).func, CPU)
    assert len(compiled.source) < 40_000
    out = aligned((8,))
    run(compiled, [data, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-5)
    arrays = [data, np.zeros(8, "float32")]
    autosched.build(func, CPU)(*arrays)
    np.testing.assert_allclose(arrays[1], wanted, rtol=1e-5)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_a_reduction_of_shared_values(reduce: str) -> None:
    x = te.placeholder((6, 8), name="x")
    k = te.reduce_axis((0, 8))
    y = te.compute((6,), lambda i: getattr(te, reduce)(chain(x(i, k), double, 40), axis=k), name="y")
    data = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    arrays = [data, np.zeros(6, "float32")]
    autosched.build(te.create_prim_func([x, y]), CPU)(*arrays)
    np.testing.assert_allclose(arrays[1], getattr(data, reduce)(1) * 2.0**40, rtol=1e-4)


def test_stores_that_share_values_are_lowered_once_bound() -> None:
    """A function made of nodes, without te: an update keeps its own element in front."""
    buffer, i, x = element()
    store = BufferStore(buffer, E.Add(x, chain(x, double)), (i,))
    bound: Any = bind_shared_values(store)
    assert bound.value.a is x and isinstance(bound.value.b, E.Let)
    counted(preorder(bound), 1000)
