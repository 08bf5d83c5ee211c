"""create_prim_func: blocks, names, arguments, dtypes, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, tir
from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir import structural_equal
from autosched.tir.verify import verify
from tests.tir.programs import PROGRAMS, matmul, softmax


@pytest.mark.parametrize("name", PROGRAMS)
def test_well_formed(name: str) -> None:
    verify(PROGRAMS[name]())


def test_blocks_loops_and_buffers_are_named_after_the_expressions() -> None:
    text = matmul().script()
    for part in (
        "for i, j, k in T.grid(7, 9, 5):", 'with T.block("C"):', 'T.axis.remap("SSR", [i, j, k])', "with T.init():",
        'A: T.Buffer((7, 5), "float32")',
    ):  # fmt: skip
        assert part in text


def test_arguments_come_in_the_given_order_and_the_rest_after() -> None:
    a, b = te.placeholder((3,), name="a"), te.placeholder((3,), name="b")
    c = te.compute((3,), lambda i: a[i] + b[i], name="c")
    assert [x.name for x in te.create_prim_func([c, b]).buffers] == ["c", "b", "a"]


def test_intermediate_tensors_are_allocated_by_the_root() -> None:
    func = softmax()
    assert [b.name for b in func.root.alloc_buffers] == ["top", "e", "total"]


def test_names_do_not_repeat() -> None:
    a = te.placeholder((3,), name="a")
    b = te.compute((3,), lambda i: a[i] + 1.0, name="x")
    func = te.create_prim_func([a, te.compute((3,), lambda i: b[i] * 2.0, name="x")])
    assert [b.name_hint for b in tir.functor.blocks(func.body)[1:]] == ["x", "x_1"]


def test_int64_indices() -> None:
    a, b = te.placeholder((4, 3), name="A"), te.placeholder((3, 2), name="B")
    k = te.reduce_axis((0, 3), "k")
    func = te.create_prim_func(
        [a, b, te.compute((4, 2), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")], "int64"
    )
    verify(func)
    loops = [x for x in tir.functor.preorder(func.body) if isinstance(x, tir.For)]
    assert {x.loop_var.dtype for x in loops} == {x.extent.dtype for x in loops} == {"int64"}
    arrays = [np.ones((4, 3), "float32"), np.ones((3, 2), "float32"), np.zeros((4, 2), "float32")]
    tir.interpret(func, arrays)
    assert (arrays[2] == 3).all()


def test_equal_expressions_give_equal_functions() -> None:
    assert structural_equal(matmul(), matmul()) and not structural_equal(matmul(), matmul(8, 9, 5))


def test_a_reduction_with_condition_and_start() -> None:
    a = te.placeholder((6,), name="A")
    k = te.reduce_axis((0, 6), "k")
    s = te.compute((1,), lambda i: te.sum(a[k], axis=k, where=k < 3, init=te.const(10.0, "float32")), name="S")
    out = np.zeros(1, "float32")
    tir.interpret(te.create_prim_func([a, s]), [np.ones(6, "float32"), out])
    assert out[0] == 13


def test_axes_that_do_not_start_at_zero() -> None:
    a = te.placeholder((8,), name="A")
    k = te.reduce_axis((2, 5), "k")
    func = te.create_prim_func([a, te.compute((1,), lambda i: te.sum(a[k], axis=k), name="S")])
    out = np.zeros(1, "float32")
    tir.interpret(func, [np.arange(8, dtype="float32"), out])
    assert out[0] == 2 + 3 + 4
    sch = tir.Schedule(func)
    sch.decompose_reduction("S", sch.split(sch.get_loops("S")[-1], [None, 2])[0])
    tir.interpret(sch.func, [np.arange(8, dtype="float32"), out])
    assert out[0] == 9


def test_refusals() -> None:
    a = te.placeholder((3,), name="a")
    with pytest.raises(InvalidTypeError):
        te.create_prim_func([a, 3])  # type: ignore[list-item]
    with pytest.raises(InvalidValueError, match="twice"):
        te.create_prim_func([a, a])


def test_int64_indices_of_an_argmax_keep_the_dtype_of_the_output() -> None:
    a = te.placeholder((2, 3), name="A")
    k = te.reduce_axis((0, 3), "k")
    pick = te.comm_reducer(
        lambda x, y: (tir.select(x[1] >= y[1], x[0], y[0]), tir.maximum(x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
    )
    position, value = te.compute((2,), lambda i: pick((k.var, a[i, k]), axis=k), name="best")
    func = te.create_prim_func([a, position, value], "int64")
    verify(func)
    arrays = [np.array([[1, 3, 2], [5, 4, 0]], "float32"), np.zeros(2, position.dtype), np.zeros(2, "float32")]
    tir.interpret(func, arrays)
    assert arrays[1].tolist() == [1, 0] and position.dtype == "int32"
