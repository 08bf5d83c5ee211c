"""Scales and zero points that stand for nothing are refused, with the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autosched
from autosched import relax
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


@pytest.mark.parametrize("place", [0, 1])
def test_an_integer_product_of_floats_is_refused_by_name(place: int) -> None:
    """They were cut off to whole numbers."""
    types = [TensorProto.UINT8, TensorProto.UINT8]
    types[place] = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info(name, kind, (3, 3)) for name, kind in zip("ab", types, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (3, 3))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ImportModelError, match=f"input {place} is float32, where int8 or uint8") as raised:
        from_onnx(model)
    assert "product" in str(raised.value)


FUSED = {  # operator -> (its inputs, those of them that are scales or zero points), A: uint8 [4, 3], B: int8 [3, 5]
    "QLinearMatMul": (
        "A sa za B sb zb sy zy",
        {"sa": 0.5, "sb": 0.25, "sy": 2.0},
        {"za": "u1", "zb": "i1", "zy": "u1"},
    ),
    "com.microsoft::MatMulIntegerToFloat": ("A B sa sb", {"sa": 0.5, "sb": 0.25}, {}),
    "com.microsoft::DynamicQuantizeMatMul": ("X B sb", {"sb": 0.25}, {}),
}


def fused(name: str, **changes: np.ndarray) -> onnx.ModelProto:
    """A model of a fused operator, some of whose scales and zero points are others."""
    given, scales, zeros = FUSED[name]
    domain, _, kind = name.rpartition("::")
    constants = {"B": np.ones((3, 5), "i1")}
    constants |= {k: np.array(v, "f4") for k, v in scales.items()} | {k: np.array(0, v) for k, v in zeros.items()}
    constants |= changes
    used = [n for n in given.split() if n in constants]
    inputs = [helper.make_tensor_value_info(n, t, (4, 3)) for n, t in (("A", 2), ("X", 1)) if n in given.split()]
    graph = helper.make_graph(
        [helper.make_node(kind, given.split(), ["y"], name="fused", domain=domain)],
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.UINT8 if "sy" in scales else TensorProto.FLOAT, (4, 5))],
        [numpy_helper.from_array(constants[n], n) for n in used],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("bad", [0.0, -0.5, np.nan, np.inf])
@pytest.mark.parametrize(("name", "scale"), [(name, scale) for name, parts in FUSED.items() for scale in parts[1]])
def test_a_bad_scale_of_a_fused_operator_is_refused_by_name(name: str, scale: str, bad: float) -> None:
    from_onnx(fused(name))
    with pytest.raises(ImportModelError, match="a positive finite number is needed") as raised:
        from_onnx(fused(name, **{scale: np.array(bad, "f4")}))
    assert "fused" in str(raised.value)


@pytest.mark.parametrize(
    ("zero", "dtype", "message"), [("za", "i1", "int8 for values of uint8"), ("zb", "u1", "uint8 for values of int8")]
)
def test_mixed_types_of_a_fused_operator_are_refused_by_name(zero: str, dtype: str, message: str) -> None:
    with pytest.raises(ImportModelError, match=message) as raised:
        from_onnx(fused("QLinearMatMul", **{zero: np.array(0, dtype)}))
    assert "fused" in str(raised.value)


def quantiser(
    op: str, shape: tuple[int, ...], scales: tuple[int, ...], zeros: tuple[int, ...], attrs: dict[str, int]
) -> onnx.ModelProto:
    """QuantizeLinear or DequantizeLinear of a shape by scales and zero points of others."""
    kinds = (TensorProto.FLOAT, TensorProto.UINT8)
    given, made = kinds if op == "QuantizeLinear" else kinds[::-1]
    values = {"s": np.ones(scales, "f4"), "z": np.ones(zeros, "u1")}
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "s", "z"], ["y"], name="quantiser", **attrs)],
        "g",
        [helper.make_tensor_value_info("x", given, shape)],
        [onnx.ValueInfoProto(name="y", type=helper.make_tensor_type_proto(made, None))],
        [numpy_helper.from_array(v, n) for n, v in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize(
    ("shape", "scales", "zeros", "attrs", "message"),
    [
        ((1, 6), (3,), (3,), {"axis": 0}, r"shape \(3,\), where \(1,\)"),  # would broadcast to three rows
        ((2, 6), (4,), (4,), {}, r"shape \(4,\), where \(6,\)"),
        ((2, 6), (6,), (4,), {}, r"shape \(4,\), where \(6,\)"),
        ((2, 6), (6,), (6,), {"axis": 5}, "axis 5 of 2 dimensions"),
        ((2, 6), (6,), (6,), {"axis": -7}, "axis -7 of 2 dimensions"),
        ((6,), (6,), (6,), {}, "axis 1 of 1 dimensions"),
        ((2, 6), (2, 6), (2, 6), {}, r"shape \(2, 6\), where \(6,\)"),
        ((2, 6), (2, 5), (2, 5), {"block_size": 2}, r"shape \(2, 5\), where \(2, 3\)"),
        ((2, 6), (1, 3), (1, 3), {"block_size": 2}, r"shape \(1, 3\), where \(2, 3\)"),
        ((2, 6), (3,), (3,), {"block_size": 2}, r"shape \(3,\), where \(2, 3\)"),
        ((2, 6), (2, 3), (2, 3), {"block_size": -2}, "blocks of -2"),
    ],
)
def test_scales_for_another_number_of_channels_or_blocks_are_refused_by_name(
    op: str,
    shape: tuple[int, ...],
    scales: tuple[int, ...],
    zeros: tuple[int, ...],
    attrs: dict[str, int],
    message: str,
) -> None:
    with pytest.raises(ImportModelError, match=message) as raised:
        from_onnx(quantiser(op, shape, scales, zeros, attrs))
    assert "quantiser" in str(raised.value)


@pytest.mark.parametrize(
    ("scales", "attrs"), [((), {"axis": 5}), ((1,), {"axis": 5}), ((6,), {}), ((2, 3), {"block_size": 2})]
)
def test_scales_for_all_channels_and_blocks_are_taken(scales: tuple[int, ...], attrs: dict[str, int]) -> None:
    from_onnx(quantiser("QuantizeLinear", (2, 6), scales, scales, attrs))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("QLinearMatMul", {"B": (3, 1), "sb": (5,), "zb": (5,)}, r"shape \(5,\), where \(1,\)"),
        ("QLinearMatMul", {"sa": (3,), "za": (3,)}, r"shape \(3,\), where \(4,\)"),
        ("QLinearMatMul", {"sa": (1, 3), "za": (1, 3)}, r"shape \(1, 3\) for a factor of shape \(4, 3\)"),
        ("com.microsoft::MatMulIntegerToFloat", {"sa": (4,)}, "where one for all is needed"),
        ("com.microsoft::MatMulIntegerToFloat", {"sb": (4,)}, r"shape \(4,\), where \(5,\)"),
        ("com.microsoft::DynamicQuantizeMatMul", {"sb": (4,)}, r"shape \(4,\), where \(5,\)"),
    ],
)
def test_scales_for_other_rows_or_columns_are_refused_by_name(
    name: str, changes: dict[str, tuple[int, ...]], message: str
) -> None:
    given = {n: np.ones(s, {"s": "f4", "B": "i1"}.get(n[0], FUSED[name][2].get(n))) for n, s in changes.items()}
    with pytest.raises(ImportModelError, match=message) as raised:
        from_onnx(fused(name, **given))
    assert "fused" in str(raised.value)


WINDOWS = {"QLinearConv": ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], "ConvInteger": ["x", "w", "zx", "zw"]}


@pytest.mark.parametrize(("name", "which"), [(name, n) for name, names in WINDOWS.items() for n in names if len(n) > 1])
def test_scales_of_a_convolution_are_one_for_all_or_one_for_each_weight_s_channel(name: str, which: str) -> None:
    """Four scales of images of four columns would be taken for those of the columns."""
    names = WINDOWS[name]
    kinds = {"s": "f4", "zx": "u1", "zw": "i1", "zy": "u1"}
    constants = {n: np.ones((4,) if n == which else (), kinds.get(n, kinds.get(n[0]))) for n in names if n not in "xw"}
    constants["w"] = np.ones((8, 4, 1, 1), "i1")
    graph = helper.make_graph(
        [helper.make_node(name, names, ["y"], name="window")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 4, 4, 4))],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    message = "where one for all is needed" if which[1] != "w" else r"shape \(4,\), where \(8,\)"
    with pytest.raises(ImportModelError, match=message) as raised:
        from_onnx(model)
    assert "window" in str(raised.value)


def test_a_quantised_product_of_wider_integers_is_refused_by_name() -> None:
    with pytest.raises(ImportModelError, match="input 3 is int32, where int8 or uint8") as raised:
        from_onnx(fused("QLinearMatMul", B=np.ones((3, 5), "i4"), zb=np.array(0, "i4")))
    assert "fused" in str(raised.value)


@pytest.mark.parametrize(
    ("x", "scale", "zero", "whole"),
    [
        ([0.0, 0.0], 1.0, 0, [0, 0]),  # of no range: not 0 / 0
        ([-1.0, 0.0, 4.1], 0.02, 50, [0, 50, 255]),
        ([np.nan, 1.0], np.nan, 0, None),
        ([], 1.0, 0, []),
    ],
)
def test_a_range_that_is_seen_at_run_time(x: list[float], scale: float, zero: int, whole: list[int] | None) -> None:
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (len(x),))],
        [onnx.ValueInfoProto(name=n) for n in "ysz"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    built = autosched.build(model, threads=1)
    y, s, z = map(np.asarray, built(np.array(x, "f4")))
    np.testing.assert_allclose(s, np.float32(scale), rtol=1e-6)
    assert z == zero and z.dtype == y.dtype == np.uint8
    assert whole is None or y.tolist() == whole


def test_integers_of_4_bits_in_the_domain_of_onnx_runtime() -> None:
    """Its quantiser writes them so where the opset is older than 21."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    constants = [
        helper.make_tensor("w", TensorProto.INT4, (4, 6), rng.integers(-8, 8, 24)),
        numpy_helper.from_array(rng.random(6, "f4") + 0.1, "s"),
        helper.make_tensor("z", TensorProto.INT4, (6,), rng.integers(-8, 8, 6)),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], domain="com.microsoft", axis=1),
        helper.make_node("Add", ["x", "real"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 6)) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model, given = helper.make_model(graph, opset_imports=imports, ir_version=10), np.ones((4, 6), "f4")
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": given})
    np.testing.assert_allclose(autosched.build(model)(given).numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "zeros", "attrs", "scales", "product", "is_packed"),
    [
        ("INT4", False, {"axis": 0, "block_size": 16}, (4, 24), "MatMul", True),
        ("UINT4", True, {"axis": -2, "block_size": 32}, (2, 24), "MatMul", True),
        ("INT4", True, {"axis": 1}, (24,), "Gemm", True),
        ("UINT4", False, {"axis": 0, "block_size": 64}, (1, 24), "MatMul", True),
        ("INT4", False, {"axis": 1, "block_size": 8}, (64, 3), "MatMul", False),
        ("UINT4", True, {"axis": 0}, (64,), "Gemm", False),
        ("INT4", True, {"axis": 1, "block_size": 16}, (24, 4), "Gemm of rows", True),
        ("UINT4", False, {"axis": 0}, (24,), "Gemm of rows", True),
        ("UINT4", True, {"axis": 1, "block_size": 32}, (24, 2), "Transpose", True),
        ("INT4", False, {"axis": 0, "block_size": 8}, (3, 64), "Transpose", False),
    ],
)
def test_weights_of_four_bits_stay_packed_in_products(
    kind: str, zeros: bool, attrs: dict[str, int], scales: tuple[int, ...], product: str, is_packed: bool
) -> None:
    """And are floats for other nodes and as an output."""
    rng, element = np.random.default_rng(0), getattr(TensorProto, kind)
    least = -8 if kind == "INT4" else 0

    def drawn(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
        return helper.make_tensor(name, element, shape, rng.integers(least, least + 16, shape).reshape(-1).tolist())

    shape = (24, 64) if product in ("Gemm of rows", "Transpose") else (64, 24)
    constants = [drawn("q", shape), numpy_helper.from_array(rng.random(scales).astype("f4") + 0.1, "s")]
    constants.append(numpy_helper.from_array(rng.standard_normal(24).astype("f4"), "b"))
    products_of = {
        "MatMul": [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "Gemm": [helper.make_node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5)],
        "Gemm of rows": [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        "Transpose": [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])],
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", *(["z"] if zeros else [])], ["w"], **attrs),
        *products_of[product], helper.make_node("Neg", ["w"], ["v"]),
    ]  # fmt: skip
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "v", "w")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 64))], floats,
        [*constants, *([drawn("z", scales)] if zeros else [])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    module, x = from_onnx(model), rng.standard_normal((3, 64)).astype("f4")
    products = [b.value.op_name for b in module["main"].bindings() if "matmul" in getattr(b.value, "op_name", "")]
    assert [("nbits" in name) for name in products] == [is_packed]
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    for found, w in zip(relax.evaluate(module, {"x": x}), wanted, strict=True):
        np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-5)
