"""Writing functions with BlockBuilder."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub

import numpy as np
import pytest

from autosched import relax, te, topi
from autosched.ir.module import GlobalVar
from autosched.relax import BlockBuilder, TensorStructInfo, Var, op
from autosched.tir import PrimFunc
from autosched.tir.evaluate import evaluate


def var(name: str, *shape: int, dtype: str = "float32") -> Var:
    return Var(name, TensorStructInfo(shape, dtype))


def test_names_types_and_blocks() -> None:
    x, w = var("x", 1, 8), var("w", 6, 8)
    bb = BlockBuilder()
    with bb.function("main", [x, w], attrs={"num_input": 1}):
        with bb.dataflow():
            lv = bb.emit(op.permute_dims(w))
            lv1 = bb.emit(op.matmul(x, lv))
            gv = bb.emit_output(op.nn.relu(lv1))
        bb.emit_func_output(gv)
    main = bb.get()["main"]
    assert [b.var.name for b in main.bindings()] == ["lv", "lv1", "gv"]
    assert isinstance(lv, relax.DataflowVar) and not isinstance(gv, relax.DataflowVar)
    assert gv.struct_info.static_shape == (1, 6) and main.ret_struct_info.static_shape == (1, 6)
    assert main.attrs["num_input"] == 1 and main.attrs["global_symbol"] == "main"
    assert [type(b) for b in main.body.blocks] == [relax.DataflowBlock]
    relax.verify(bb.get())


def test_outside_of_dataflow_names_are_gv() -> None:
    x = var("x", 3)
    bb = BlockBuilder()
    with bb.function("f", [x], private=True):
        a = bb.emit(op.exp(x))
        b = bb.emit(op.exp(a))
        bb.emit_func_output((a, b))
    function = bb.get()["f"]
    assert (a.name, b.name) == ("gv", "gv1") and "global_symbol" not in function.attrs
    assert isinstance(function.ret_struct_info, relax.TupleStructInfo)


def test_nested_calls_get_variables_of_their_own() -> None:
    x = var("x", 2, 3)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(op.add(op.exp(x), op.multiply(x, relax.const(2.0))))
        bb.emit_func_output(gv)
    assert [b.value.op_name for b in bb.get()["main"].bindings()] == ["relax.exp", "relax.multiply", "relax.add"]


def test_numbers_take_the_tensors_dtype() -> None:
    call = op.add(var("x", 3, dtype="int64"), 2)
    assert call.args[1].data.dtype == np.int64 and call.struct_info.dtype == "int64"


def test_a_function_needs_an_output() -> None:
    bb = BlockBuilder()
    with pytest.raises(RuntimeError, match="has no output"):
        with bb.function("main", [var("x", 3)]):
            bb.emit(op.exp(var("x", 3)))


def test_emission_needs_a_function() -> None:
    with pytest.raises(RuntimeError, match="outside of a function"):
        BlockBuilder().emit(op.exp(var("x", 3)))


def test_shapes_that_differ_are_refused_at_emission() -> None:
    bb = BlockBuilder()
    with pytest.raises(ValueError, match="add: shapes"):
        with bb.function("main", [var("x", 3)]):
            bb.emit(op.add(var("x", 3), var("y", 4)))


def test_emit_te_makes_and_shares_prim_funcs() -> None:
    x, y = var("x", 4, 5), var("y", 4, 5)
    bb = BlockBuilder()
    with bb.function("main", [x, y]):
        with bb.dataflow():
            a = bb.emit_te(topi.add, x, y)
            b = bb.emit_te(topi.add, a, y)
            c = bb.emit_te(topi.multiply, a, b)
            d = bb.emit_te(topi.sum, c, [1], False)
            e = bb.emit_te(topi.sum, c, [0], False)
            gv = bb.emit_output((d, e))
        bb.emit_func_output(gv)
    module = bb.get()
    assert [gv.name for gv in module.get_global_vars()] == ["add", "main", "multiply", "sum", "sum1"]
    relax.verify(module)
    add = module["add"]
    assert [b.name for b in add.buffers] == ["x", "y", "T_add"] and "global_symbol" not in add.attrs
    assert all(s.dtype == "int64" for s in add.buffers[0].shape)
    inputs = [np.full((4, 5), 2.0, "f"), np.ones((4, 5), "f")]
    rows, columns = relax.evaluate(module, inputs, run_tir=lambda f, i: evaluate(f, i)[0])
    np.testing.assert_allclose(rows, np.full(4, 3 * 4 * 5))
    np.testing.assert_allclose(columns, np.full(5, 3 * 4 * 4))


def test_a_nested_call_that_is_used_twice_is_bound_once() -> None:
    x = value = var("x", 4)
    for _ in range(12):
        value = op.add(value, value)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(value)
        bb.emit_func_output(gv)
    assert len(list(bb.get()["main"].bindings())) == 12


def test_one_tensor_passed_twice_is_one_parameter() -> None:
    x = var("x", 3)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        call = bb.call_te(topi.multiply, x, x)
        bb.emit_func_output(call)
    assert len(bb.get()["multiply"].buffers) == 2


def test_te_functions_with_several_results() -> None:
    x = var("x", 4, 6)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        out = bb.emit_te(topi.split, x, [2], 1)
        bb.emit_func_output(out[1])
    module = bb.get()
    relax.verify(module)
    assert module["main"].ret_struct_info.static_shape == (4, 4)


def test_current_builder() -> None:
    bb = BlockBuilder()
    assert BlockBuilder.current() is None
    with bb.function("main", [var("x", 3)]):
        assert BlockBuilder.current() is bb
        bb.emit_func_output(relax.const(1.0))
    assert BlockBuilder.current() is None


def test_the_module_is_a_copy() -> None:
    bb = BlockBuilder()
    with bb.function("f", []):
        bb.emit_func_output(relax.const(1.0))
    first = bb.get()
    with bb.function("g", []):
        bb.emit_func_output(relax.const(1.0))
    assert len(first) == 1 and len(bb.get()) == 2


def test_functions_that_differ_in_weights_alone_are_two() -> None:
    bb = BlockBuilder()

    def scaled(factor: float) -> GlobalVar:
        inner = BlockBuilder()
        x = var("x", 2)
        with inner.function("scaled", [x]):
            inner.emit_func_output(op.multiply(x, relax.const(np.full(2, factor, "float32"))))
        return bb.add_func(inner.get()["scaled"].without_attr("global_symbol"), "scaled")

    two, three, two_again = scaled(2), scaled(3), scaled(2)
    assert two is two_again and two is not three


def test_functions_of_equal_form_are_one_and_those_that_look_alike_are_not() -> None:
    bb = BlockBuilder()
    a, b = te.placeholder((4,), "float32", name="a"), te.placeholder((4,), "float32", name="b")

    def func(value: Callable[[te.Tensor, te.Tensor], object]) -> PrimFunc:
        return te.create_prim_func([a, b, te.compute((4,), lambda i: value(a[i], b[i]), name="c")])  # type: ignore[arg-type]

    names = [bb.add_func(func(value), "f").name for value in (add, mul, add, mul, sub)]
    assert names[:2] == names[2:4] and len(set(names)) == 3
    assert len(bb.get().get_global_vars()) == 3
