"""Functions bound to arrays and sizes by their own methods, and private functions put in the place of their calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched as tvm
from autosched import relax
from autosched.errors import InvalidValueError
from autosched.script import from_source
from autosched.tir import PrimExpr
from autosched.tir.evaluate import evaluate

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), b: R.Tensor((4,), "float32")):
        n = T.int64()
        y = Module.shifted(x, b)
        z = Module.shifted(y, b)
        return z

    @R.function(private=True)
    def shifted(x: R.Tensor(("m", 4), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor(("m", 4), "float32"):
        m = T.int64()
        y = R.add(x, b)
        return y
"""


def test_private_functions_are_inlined() -> None:
    module = relax.transform.InlinePrivateFunctions()(from_source(MODULE))
    assert [gv.name for gv in module.get_global_vars()] == ["main"]
    assert module.script().count("R.add(") == 2 and "shifted" not in module.script()


def test_functions_are_bound() -> None:
    module = relax.transform.InlinePrivateFunctions()(from_source(MODULE))
    bias = np.arange(4, dtype="float32")
    bound = module["main"].bind_params({"b": bias}).bind_symbolic_vars({"n": 3})
    assert [p.name for p in bound.params] == ["x"]
    assert bound.params[0].struct_info.static_shape == (3, 4)
    again = module["main"].bind_params({module["main"].params[1]: relax.const(bias)})
    assert len(again.params) == 1
    with pytest.raises(InvalidValueError, match="no symbolic dimension 'k'"):
        bound.bind_symbolic_vars({"k": 3})
    with pytest.raises(InvalidValueError, match="no parameter 'c'"):
        bound.bind_params({"c": bias})


def test_attributes_of_a_mapping() -> None:
    module = from_source(MODULE).with_attrs({"a": 1, "b": "two"})
    assert module.get_attr("a") == 1 and module.get_attr("b") == "two"
    assert module["main"].with_attrs({"k": 3}).attrs["k"] == 3
    module.update_global_info("mesh", ["x"])
    assert module.global_infos["mesh"] == ["x"]


def test_printed_as_tvm_prints() -> None:
    module = relax.transform.LegalizeOps()(relax.transform.InlinePrivateFunctions()(from_source(MODULE)))
    text = module.script()
    assert text.index("def add(") < text.index("def main(")  # PrimFuncs first
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        pair = builder.emit(relax.Tuple([x, x]))
        builder.emit_func_output(pair)
    assert " = x, x\n" in builder.get().script()
    tvm.ir.assert_structural_equal(builder.get(), from_source(builder.get().script()))
    assert tvm.relax.frontend.nn.relu is tvm.relax.frontend.nn.op.relu


def made_by(x: tvm.te.Tensor, f: Callable[..., PrimExpr], name: str) -> tvm.te.Tensor:
    return tvm.te.compute((3,), lambda i: f(x[i]), name=name)


def test_numbers_of_hyperbolic_functions() -> None:
    x = tvm.te.placeholder((3,), name="x")
    functions = (tvm.te.asinh, tvm.te.atanh, lambda v: tvm.tir.logaddexp(v, v * 90.0))
    made = [made_by(x, f, f"y{n}") for n, f in enumerate(functions)]
    data = np.array([-0.5, 0.25, 0.75], "float32")
    results = evaluate(tvm.te.create_prim_func([x, *made]), [data])
    for result, right in zip(results, (np.arcsinh(data), np.arctanh(data), np.logaddexp(data, data * 90)), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5)
