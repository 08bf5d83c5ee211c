"""Graph functions: the printed forms of imported, fused and branching functions."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import tir
from autosched.ir import FrozenDict, GlobalVar, IRModule
from autosched.relax import expr as R
from autosched.relax import struct_info as info
from autosched.script import load_json, script
from tests.script.samples import fused_matmul_add


def tensor(*shape: object, dtype: str = "float32") -> info.TensorStructInfo:
    return info.TensorStructInfo(shape, dtype)


def op(name: str, *args: object, **attrs: object) -> R.Call:
    return R.Call(R.Op(f"relax.{name}"), args, FrozenDict(attrs))


def imported() -> R.Function:
    x, bias, weight = R.Var("inp_0", tensor(1, 8)), R.Var("fc1.bias", tensor(6)), R.Var("fc1.weight", tensor(6, 8))
    lv, lv1, lv2 = (
        R.DataflowVar(n, s) for n, s in (("lv", tensor(8, 6)), ("lv1", tensor(1, 6)), ("lv2", tensor(1, 6)))
    )  # noqa: E501
    gv = R.Var("gv", tensor(1, 6))
    block = R.DataflowBlock((
        R.VarBinding(lv, op("permute_dims", weight, axes=None)),
        R.VarBinding(lv1, op("matmul", x, lv, out_dtype="float32")),
        R.VarBinding(lv2, op("add", lv1, bias)),
        R.VarBinding(gv, lv2),
    ))  # fmt: skip
    attrs = FrozenDict(global_symbol="main", num_input=1)
    return R.Function((x, bias, weight), R.SeqExpr((block,), gv), tensor(1, 6), attrs=attrs)


IMPORTED = """\
# from autosched.script import ir as I
# from autosched.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(inp_0: R.Tensor((1, 8), dtype="float32"), fc1_bias: R.Tensor((6,), dtype="float32"), \
fc1_weight: R.Tensor((6, 8), dtype="float32")) -> R.Tensor((1, 6), dtype="float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            lv: R.Tensor((8, 6), dtype="float32") = R.permute_dims(fc1_weight, axes=None)
            lv1: R.Tensor((1, 6), dtype="float32") = R.matmul(inp_0, lv, out_dtype="float32")
            lv2: R.Tensor((1, 6), dtype="float32") = R.add(lv1, fc1_bias)
            gv: R.Tensor((1, 6), dtype="float32") = lv2
            R.output(gv)
        return gv"""


def test_an_imported_function() -> None:
    assert str(IRModule({"main": imported()})) == IMPORTED


def calling() -> IRModule:
    callee = GlobalVar("fused_matmul1_add1")
    lv, bias, gv = R.Var("lv_1", tensor(1, 6)), R.Var("fc2_bias", tensor(3)), R.Var("gv", tensor(1, 3))
    args = R.Tuple((lv, R.Constant(np.ones((6, 3), "float32")), bias))
    call = R.Call(R.Op("relax.call_tir"), (callee, args), sinfo_args=(tensor(1, 3),))
    body = R.SeqExpr((R.DataflowBlock((R.VarBinding(gv, call),)),), gv)
    return IRModule({callee: fused_matmul_add(), "main": R.Function((lv, bias), body, tensor(1, 3))})


def test_a_call_of_a_loop_level_function() -> None:
    lines = calling().script().splitlines()
    assert lines[:3] == [f"# from autosched.script import {m}" for m in ("ir as I", "tir as T", "relax as R")]
    assert "# Metadata omitted. Use show_meta=True in script() method to show it." in lines
    assert "    @R.function(private=True)" in lines
    assert "        cls = Module" in lines
    assert (
        '            gv = R.call_tir(cls.fused_matmul1_add1, (lv_1, metadata["relax.expr.Constant"][0], fc2_bias), '
        'out_sinfo=R.Tensor((1, 3), dtype="float32"))'
    ) in lines


def test_the_metadata_holds_the_constants() -> None:
    (line,) = (s for s in calling().script(show_meta=True).splitlines() if s.startswith("metadata = "))
    arrays = load_json(line.split('"""')[1])["relax.expr.Constant"]
    assert [(a.dtype, a.shape, a.sum()) for a in arrays] == [(np.dtype("float32"), (6, 3), 18.0)]


BRANCHING = """\
    t: R.Tuple(R.Tensor((2, 3), dtype="float32"), R.Tensor((2, 3), dtype="float32")) = \
R.split(x, indices_or_sections=2, axis=1)
    if c:
        y_then: R.Tensor((2, 3), dtype="float32") = R.add(t[0], R.const(1.0, "float32"))
        y: R.Tensor((2, 3), dtype="float32") = y_then
    else:
        y: R.Tensor((2, 3), dtype="float32") = t[1]
    return y"""


def branching() -> R.Function:
    x, c = R.Var("x", tensor(2, 6)), R.Var("c", tensor(dtype="bool"))
    t = R.Var("t", info.TupleStructInfo((tensor(2, 3), tensor(2, 3))))
    y, y_then = R.Var("y", tensor(2, 3)), R.Var("y_then", tensor(2, 3))
    then = R.BindingBlock((R.VarBinding(y_then, op("add", R.TupleGetItem(t, 0), R.const(1.0))),))
    choice = R.If(c, R.SeqExpr((then,), y_then), R.SeqExpr((), R.TupleGetItem(t, 1)))
    split = R.VarBinding(t, op("split", x, indices_or_sections=2, axis=1))
    return R.Function((x, c), R.SeqExpr((R.BindingBlock((split, R.VarBinding(y, choice))),), y), tensor(2, 3))


def test_branches_and_tuples() -> None:
    assert str(branching()).endswith(BRANCHING)


def taking() -> R.Function:
    """Every kind of value that a binding may have, outside of a dataflow block too."""
    x, t = R.Var("x", tensor(2, 6)), R.Var("t", info.TupleStructInfo((tensor(2, 3), tensor(2, 3))))
    halves = op("split", x, indices_or_sections=2, axis=1)
    first, same, pair, one, ext = (R.Var(n) for n in ("first", "same", "pair", "one", "ext"))
    bindings = [
        (t, halves, t.struct_info), (first, R.TupleGetItem(t, 0), tensor(2, 3)), (same, first, tensor(2, 3)),
        (pair, R.Tuple((first, R.Tuple((x,)), R.Tuple(()))), None), (one, R.const(np.int64(3)), tensor(dtype="int64")),
        (ext, R.Call(R.ExternFunc("f"), (x,), FrozenDict(mode=1), (tensor(2),), tensor(2)), tensor(2)),
    ]  # fmt: skip
    renamed: dict[R.Var, R.Var] = {}
    made = []
    for var, value, annotation in bindings:
        value = tir.functor.rewrite(value, lambda node: renamed.get(node, node) if isinstance(node, R.Var) else node)
        new = var if var is t else R.Var(var.name, annotation or value.struct_info)
        renamed[var] = new
        made.append(R.VarBinding(new, value))
    inner = R.DataflowVar("inner", tensor(2, 6))
    block = R.DataflowBlock((R.VarBinding(inner, op("nn.relu", x)),))
    body = R.SeqExpr((R.BindingBlock(tuple(made)), block), renamed[pair])
    return R.Function((x,), body, renamed[pair].struct_info, attrs=FrozenDict(Primitive=True, sizes=(1, 2)))


def symbolic() -> R.Function:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x = R.Var("x", tensor(n, 4))
    y, z = R.Var("y", tensor(n, 4)), R.Var("z", tensor(m, 4))
    block = R.BindingBlock((R.VarBinding(y, op("add", x, x)), R.MatchCast(z, y, tensor(m, 4))))
    body = R.SeqExpr((block,), R.Tuple((R.shape_expr([n * 2, 3]), R.PrimValue(3), R.StringImm("s"))))
    return R.Function((x,), body, body.struct_info, is_pure=False)


SYMBOLIC = """\
@R.function(private=True, pure=False)
def main(x: R.Tensor(("n", 4), dtype="float32")) -> R.Tuple(R.Shape(["n * 2", 3]), R.Prim(value=3), R.Object):
    n = T.int64()
    y: R.Tensor((n, 4), dtype="float32") = R.add(x, x)
    m = T.int64()
    z: R.Tensor((m, 4), dtype="float32") = R.match_cast(y, R.Tensor((m, 4), dtype="float32"))
    return (R.shape([n * 2, 3]), R.prim_value(3), R.str("s"))"""


def test_symbols_stand_in_quotes_before_they_are_declared() -> None:
    assert str(symbolic()).endswith(SYMBOLIC)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (tensor(), 'R.Tensor((), dtype="float32")'),
        (tensor(3), 'R.Tensor((3,), dtype="float32")'),
        (info.TensorStructInfo(None, "int8", 2), 'R.Tensor(dtype="int8", ndim=2)'),
        (info.TensorStructInfo(None, ""), "R.Tensor()"),
        (info.ShapeStructInfo((1, 2)), "R.Shape([1, 2])"),
        (info.ShapeStructInfo(None, 3), "R.Shape(ndim=3)"),
        (info.PrimStructInfo("int64"), 'R.Prim("int64")'),
        (
            info.TupleStructInfo((tensor(1), info.ObjectStructInfo())),
            'R.Tuple(R.Tensor((1,), dtype="float32"), R.Object)',
        ),  # noqa: E501
        (
            info.FuncStructInfo((tensor(1),), tensor(2)),
            'R.Callable((R.Tensor((1,), dtype="float32"),), R.Tensor((2,), dtype="float32"))',
        ),  # noqa: E501
        (R.const(2, "int64"), 'R.const(2, "int64")'),
        (R.const(float("inf")), 'R.const(float("inf"), "float32")'),
        (R.const(True), 'R.const(True, "bool")'),
        (
            op("nn.conv2d", R.Var("x"), strides=(1, 2), layout="NCHW", flag=True),
            'R.nn.conv2d(x, strides=[1, 2], layout="NCHW", flag=True)',
        ),  # noqa: E501
        (
            R.Call(R.ExternFunc("f"), (R.Var("x"),), sinfo_args=(tensor(1),)),
            'R.call_packed("f", x, sinfo_args=(R.Tensor((1,), dtype="float32"),))',
        ),  # noqa: E501
        (R.Call(GlobalVar("g"), (R.Var("x"),)), "cls.g(x)"),
    ],
)
def test_expressions_and_annotations(node: object, text: str) -> None:
    assert script(node) == str(node) == text
