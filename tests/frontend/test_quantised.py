"""Scales and zero points that stand for nothing are refused, with the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.frontend.quantised import fault


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan, np.inf])
def test_a_bad_scale_is_refused_by_name(op: str, scale: float) -> None:
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8)
    given, made = kinds if op == "QuantizeLinear" else kinds[::-1]
    constants = [
        numpy_helper.from_array(np.array([1.0, scale, 2.0], "f4"), "s"),
        numpy_helper.from_array(np.zeros(3, "u1"), "z"),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "s", "z"], ["y"], name="quantiser", axis=1)],
        "g",
        [helper.make_tensor_value_info("x", given, (2, 3))],
        [helper.make_tensor_value_info("y", made, (2, 3))],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ImportModelError, match="a positive finite number is needed") as raised:
        from_onnx(model)
    assert "quantiser" in str(raised.value)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("op", "given", "point", "attrs", "message"),
    [
        ("DequantizeLinear", TensorProto.INT8, TensorProto.UINT8, {}, "a zero point of uint8 for values of int8"),
        ("DequantizeLinear", TensorProto.UINT8, TensorProto.INT32, {}, "a zero point of int32 for values of uint8"),
        (
            "QuantizeLinear",
            TensorProto.FLOAT,
            TensorProto.UINT8,
            {"output_dtype": TensorProto.INT8},
            "a zero point of uint8 for values of int8",
        ),
    ],
)
def test_mixed_types_are_refused_by_name(
    op: str, given: int, point: int, attrs: dict[str, int], message: str, known: bool
) -> None:
    """Whether the zero point is known at import or comes at run time."""
    infos = [helper.make_tensor_value_info("x", given, (2, 3)), helper.make_tensor_value_info("z", point, ())]
    zero = numpy_helper.from_array(np.array(3, helper.tensor_dtype_to_np_dtype(point)), "z")
    made = TensorProto.INT8 if op == "QuantizeLinear" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "s", "z"], ["y"], name="quantiser", **attrs)],
        "g",
        infos[:1] if known else infos,
        [helper.make_tensor_value_info("y", made, (2, 3))],
        [numpy_helper.from_array(np.array(0.5, "f4"), "s"), *([zero] if known else [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ImportModelError, match=message) as raised:
        from_onnx(model)
    assert "quantiser" in str(raised.value)


def test_mixed_types_of_an_integer_product_are_refused_by_name() -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.UINT8, (3, 3)) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (3, 3))],
        [numpy_helper.from_array(np.array(3, "i1"), "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ImportModelError, match="a zero point of int8 for values of uint8") as raised:
        from_onnx(model)
    assert "product" in str(raised.value)


def test_what_is_wrong_is_said() -> None:
    assert fault(0.5, 3, "uint8") is None
    assert fault(np.array([0.5, 2.0], "f4"), None, "int8") is None
    assert fault(0.5, np.array([0, 300]), "uint8") == "a zero point of 300 is no uint8"
    assert fault(0.5, -1, "uint8") == "a zero point of -1 is no uint8"
