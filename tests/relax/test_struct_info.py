"""Annotations, expressions and their equality by form."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from autosched import relax
from autosched.errors import ShapeError
from autosched.ir import IRModule, VDevice, assert_structural_equal, structural_equal, structural_key
from autosched.relax import TensorStructInfo, Tuple, TupleGetItem, Var, op
from autosched.relax.struct_info import same_info, vdevice_of
from autosched.script import from_source
from autosched.tir import Var as TirVar


def test_dimensions_are_int64() -> None:
    info = TensorStructInfo((2, np.int32(3)))
    assert [d.dtype for d in info.shape] == ["int64", "int64"] and info.static_shape == (2, 3) and info.ndim == 2


def test_what_follows_from_the_shape_is_no_part_of_the_form() -> None:
    info = TensorStructInfo((2, 3))
    other = dataclasses.replace(info, shape=(2, TirVar("n", "int64")), ndim=-1)
    assert info.is_static and info.dims == (2, 3) and not other.is_static and other.dims[0] == 2
    unknown = TensorStructInfo(None, ndim=2)
    assert not unknown.is_static
    with pytest.raises(ShapeError, match="not known"):
        _ = unknown.dims
    again = pickle.loads(pickle.dumps(info))
    assert again.is_static and again.dims == (2, 3) and structural_key(again) == structural_key(info)


def test_symbolic_dimensions() -> None:
    n = TirVar("n", "int64")
    info = TensorStructInfo((n, 4))
    assert not info.is_static and same_info(info, TensorStructInfo((n, 4)))
    assert not same_info(info, TensorStructInfo((TirVar("n", "int64"), 4)))
    with pytest.raises(ShapeError, match="no known size"):
        _ = info.static_shape
    assert same_info(op.add(Var("x", info), Var("y", TensorStructInfo((4,)))).struct_info, info)


def test_tuples() -> None:
    t = Tuple((relax.const(1.0), relax.const(2)))
    assert [f.dtype for f in t.struct_info.fields] == ["float32", "int32"]
    assert TupleGetItem(t, 1).struct_info.dtype == "int32"
    with pytest.raises(IndexError):
        _ = TupleGetItem(t, 2).struct_info


def test_a_constant_keeps_the_array() -> None:
    data = np.zeros((3, 4), "float32")
    assert np.shares_memory(relax.Constant(data).data, data) and np.shares_memory(relax.const(data).data, data)


def test_form_ignores_names() -> None:
    def function(name: str, scale: float) -> relax.Function:
        x = Var(name, TensorStructInfo((3,)))
        bb = relax.BlockBuilder()
        with bb.function("main", [x]):
            bb.emit_func_output(bb.emit(op.multiply(x, relax.const(scale)), f"out_{name}"))
        return bb.get()["main"]

    assert structural_equal(function("a", 1.0), function("b", 1.0))
    assert structural_key(function("a", 1.0)) == structural_key(function("b", 1.0))
    assert not structural_equal(function("a", 1.0), function("b", 2.0))
    assert structural_key(function("a", 1.0)) != structural_key(function("a", 2.0))


def test_devices_are_carried_on() -> None:
    host, gpu = VDevice("llvm"), VDevice("cuda", 0, "global")  # type: ignore[arg-type]
    x = Var("x", TensorStructInfo((2, 3), "float32", host))  # type: ignore[arg-type]
    y = Var("y", TensorStructInfo((1, 3), "float32"))
    z = Var("z", TensorStructInfo((2, 3), "float32", vdevice=gpu))
    assert_structural_equal(op.add(x, y).struct_info, TensorStructInfo((2, 3), "float32", vdevice=VDevice("llvm")))  # type: ignore[arg-type]
    assert not structural_equal(op.add(x, y).struct_info, op.add(z, y).struct_info)
    assert not structural_equal(x.struct_info, TensorStructInfo((2, 3), "float32"))
    assert TensorStructInfo(None, "float32", host, 2).ndim == 2  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="different devices"):
        op.add(x, z)
    assert vdevice_of(op.add(op.to_vdevice(x, gpu), z).struct_info) is gpu
    with pytest.raises(TypeError, match="vdevice is a str"):
        TensorStructInfo((2,), "float32", vdevice="llvm")  # type: ignore[arg-type]


def test_a_modules_devices_are_printed_and_read() -> None:
    text = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda"), I.vdevice("llvm", 1, "shared")]})
    @R.function
    def main(x: R.Tensor((2, 3), "float32", "llvm")):
        y = R.to_vdevice(R.add(x, x), "llvm:1")
        return y
"""
    module = from_source(text)
    assert isinstance(module, IRModule)
    assert module["main"].ret_struct_info.vdevice.memory_scope == "shared"
    assert 'vdevice="llvm:1:shared"' in module.script()
    assert_structural_equal(from_source(module.script()), module)
    with pytest.raises(ValueError, match="no device 'metal'"):
        from_source(text.replace('"llvm:1"', '"metal"'))
