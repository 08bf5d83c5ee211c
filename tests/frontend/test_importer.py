"""What from_onnx makes of models, against ONNX Runtime and against the contract of its arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import autosched
from autosched import relax
from autosched.errors import ImportModelError
from autosched.relax.frontend import detach_params
from autosched.relax.frontend.onnx import from_onnx
from tests.frontend.onnx_models import make, node, small_conv_net


def run_with_onnxruntime(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)  # type: ignore[no-any-return]


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype("float32")
        for v in model.graph.input
    }


def check(model: onnx.ModelProto) -> relax.Function:
    """Import, verify, run both, compare; the imported main."""
    module = from_onnx(model)
    relax.verify(module)
    inputs = random_inputs(model)
    got = relax.evaluate(module, list(inputs.values()))
    for g, w in zip(got if isinstance(got, tuple) else (got,), run_with_onnxruntime(model, inputs), strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    return module["main"]  # type: ignore[no-any-return]


def operators(function: relax.Function) -> list[str]:
    return [b.value.op_name.removeprefix("relax.") for b in function.bindings() if isinstance(b.value, relax.Call)]


@pytest.mark.parametrize("opset", [9, 13])
def test_small_network(opset: int) -> None:
    assert "nn.conv2d" in operators(check(small_conv_net(opset)))


def single(op: str, shape: tuple[int, ...], opset: int = 17, weights: Any = None, **attrs: Any) -> onnx.ModelProto:
    names = " ".join(["x", *(weights or {})])
    return make([node(op, names, "y", **attrs)], {"x": shape}, ["y"], weights, opset)


def waves(*shape: int) -> np.ndarray:
    """Weights of which no two are alike, so that their order matters."""
    return np.sin(np.arange(np.prod(shape), dtype="f")).reshape(shape)


SINGLE: dict[str, Callable[[], onnx.ModelProto]] = {
    "conv1d": lambda: single("Conv", (1, 3, 9), weights={"w": np.ones((4, 3, 3), "f")}, pads=[1, 0], strides=[2]),
    "conv same": lambda: single("Conv", (1, 2, 5, 6), weights={"w": np.ones((3, 2, 3, 2), "f")}, auto_pad="SAME_UPPER"),
    "conv same lower": lambda: single(
        "Conv", (1, 2, 5, 6), weights={"w": np.ones((3, 2, 2, 2), "f")}, auto_pad="SAME_LOWER", strides=[2, 1]
    ),
    "columns to images": lambda: single(
        "Col2Im", (2, 3 * 6, 5 * 4), 18, {"s": np.array([9, 8]), "w": np.array([2, 3])},
        strides=[2, 3], pads=[1, 2, 1, 2], dilations=[2, 1],
    ),
    "columns to images, windows side by side": lambda: single(
        "Col2Im", (2, 3 * 6, 4 * 3), 18, {"s": np.array([8, 9]), "w": np.array([2, 3])}, strides=[2, 3]
    ),
    "columns to a line": lambda: single(
        "Col2Im", (1, 2 * 4, 6), 18, {"s": np.array([9]), "w": np.array([4])}, dilations=[1], strides=[1], pads=[0, 0]
    ),
    "conv3d": lambda: single(
        "Conv", (1, 4, 4, 5, 3), weights={"w": waves(2, 2, 3, 1, 2), "b": waves(2)}, group=2, pads=[1, 0, 0, 1, 0, 1]
    ),
    "transposed conv1d": lambda: single(
        "ConvTranspose", (1, 3, 5), weights={"w": waves(3, 2, 3)}, strides=[2], pads=[1, 0], output_padding=[1]
    ),
    "transposed conv": lambda: single(
        "ConvTranspose", (2, 4, 5, 4), weights={"w": waves(4, 3, 3, 2), "b": waves(6)},
        group=2, strides=[3, 1], dilations=[2, 1], pads=[1, 0, 0, 1], output_padding=[2, 0],
    ),
    "transposed conv same": lambda: single(
        "ConvTranspose", (1, 2, 5, 6), weights={"w": waves(2, 3, 3, 3)}, strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "transposed conv of a shape": lambda: single(
        "ConvTranspose", (1, 2, 5, 6), weights={"w": waves(2, 3, 3, 3)}, strides=[3, 2], output_shape=[15, 12]
    ),
    "transposed conv of a larger shape": lambda: single(
        "ConvTranspose", (1, 2, 3, 3), weights={"w": waves(2, 3, 3, 3)}, strides=[3, 2], output_shape=[10, 8]
    ),
    "conv groups": lambda: single("Conv", (2, 4, 5, 5), weights={"w": np.ones((6, 2, 3, 3), "f")}, group=2),
    "max pool ceil": lambda: single("MaxPool", (1, 2, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "avg pool pad": lambda: single(
        "AveragePool", (1, 2, 6, 6), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=1
    ),
    "avg pool": lambda: single("AveragePool", (1, 2, 7, 6), kernel_shape=[3, 2], pads=[1, 0, 0, 1]),
    "softmax 11": lambda: single("Softmax", (2, 3, 4), opset=11, axis=1),
    "softmax 13": lambda: single("Softmax", (2, 3, 4), opset=13, axis=1),
    "hardmax 11": lambda: single("Hardmax", (2, 3, 4), opset=11, axis=1),
    "hardmax 11, first axis": lambda: single("Hardmax", (2, 3, 4), opset=11, axis=0),
    "hardmax 13": lambda: single("Hardmax", (2, 3, 4), opset=13, axis=1),
    "log softmax": lambda: single("LogSoftmax", (2, 5)),
    "lrn": lambda: single("LRN", (1, 7, 3, 3), size=5, alpha=0.01),
    "clip 6": lambda: single("Clip", (3, 4), opset=7, min=-0.5, max=0.5),
    "clip 11": lambda: single("Clip", (3, 4), opset=11, weights={"a": np.array(-0.5, "f"), "b": np.array(0.5, "f")}),
    "unsqueeze 11": lambda: single("Unsqueeze", (3, 4), opset=11, axes=[0, 3]),
    "unsqueeze 13": lambda: single("Unsqueeze", (3, 4), opset=13, weights={"a": np.array([0, -1], "int64")}),
    "squeeze": lambda: single("Squeeze", (1, 4, 1), opset=13),
    "reduce mean 13": lambda: single("ReduceMean", (2, 3, 4), opset=13, axes=[1], keepdims=0),
    "reduce mean 18": lambda: single("ReduceMean", (2, 3, 4), opset=18, weights={"a": np.array([-1], "int64")}),
    "reduce l2": lambda: single("ReduceL2", (2, 3), opset=13, axes=[1]),
    "pow": lambda: single("Pow", (3, 4), weights={"e": np.array(2.0, "f")}),
    "div by power of two": lambda: single("Div", (3, 4), weights={"d": np.array(8.0, "f")}),
    "slice": lambda: single(
        "Slice", (5, 6), weights=dict(zip("beas", map(np.array, ([-1, 1], [-9, 5], [0, 1], [-2, 2])), strict=True))
    ),
    "slice 9": lambda: single("Slice", (5, 6), opset=9, starts=[1], ends=[1000], axes=[1]),
    "upper triangle": lambda: single("Trilu", (2, 3, 4)),
    "lower triangle": lambda: single("Trilu", (4, 3), weights={"k": np.array(-1)}, upper=0),
    "pad": lambda: single("Pad", (2, 3), weights={"p": np.array([0, 1, 2, 0]), "v": np.array(1.5, "f")}),
    "gelu": lambda: single("Gelu", (3, 4), opset=20),
    "gelu tanh": lambda: single("Gelu", (3, 4), opset=20, approximate="tanh"),
    "prelu": lambda: single("PRelu", (2, 3, 2, 2), weights={"s": np.ones((3, 1, 1), "f") * 0.1}),
    "expand": lambda: single("Expand", (3, 1), weights={"s": np.array([2, 1, 4])}),
    "flatten": lambda: single("Flatten", (2, 3, 4), axis=-1),
    "gather": lambda: single("Gather", (4, 3), weights={"i": np.array([[0, -1]])}, axis=0),
    "argmax then cast": lambda: make(
        [node("ArgMax", "x", "a", axis=1), node("Cast", "a", "y", to=1)], {"x": (3, 5)}, ["y"]
    ),
    "top k": lambda: make(
        [node("TopK", "x k", "v i", axis=1), node("Cast", "i", "y", to=1)],
        {"x": (3, 9)}, ["v", "y"], {"k": np.array([4])},
    ),
    "top k smallest": lambda: make(
        [node("TopK", "x k", "v i", axis=0, largest=0)], {"x": (7, 2)}, ["v"], {"k": np.array([3])}
    ),
    "cumsum": lambda: single("CumSum", (3, 5), weights={"a": np.array(1)}),
    "cumsum reversed": lambda: single("CumSum", (3, 5), weights={"a": np.array(0)}, reverse=1, exclusive=1),
    "resize nearest": lambda: make(
        [node("Resize", "x _ s", "y", coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
        {"x": (1, 2, 4, 5)}, ["y"], {"s": np.array([1, 1, 2, 2.6], "f")},
    ),
    "resize nearest by default": lambda: make(
        [node("Resize", "x _ _ n", "y", mode="nearest")], {"x": (1, 2, 4, 5)}, ["y"], {"n": np.array([1, 2, 7, 3])}
    ),
    "resize linear": lambda: make(
        [node("Resize", "x _ s", "y", mode="linear")], {"x": (1, 2, 4, 5)}, ["y"], {"s": np.array([1, 1, 2, 1.5], "f")}
    ),
    "resize linear to corners": lambda: make(
        [node("Resize", "x _ _ n", "y", mode="linear", coordinate_transformation_mode="align_corners")],
        {"x": (1, 2, 4, 5)}, ["y"], {"n": np.array([1, 2, 7, 3])},
    ),
    "upsample 9": lambda: single("Upsample", (1, 2, 3, 3), opset=9, weights={"s": np.array([1, 1, 2, 2], "f")}),
    "layer norm": lambda: single(
        "LayerNormalization", (2, 3, 4), weights={"g": np.ones((4,), "f"), "b": np.ones((4,), "f")}, axis=-1
    ),
    "instance norm": lambda: single(
        "InstanceNormalization", (2, 3, 4, 4), weights={"g": np.ones(3, "f"), "b": np.ones(3, "f")}
    ),
    "gemm": lambda: single(
        "Gemm", (5, 2), weights={"w": np.ones((5, 3), "f"), "c": np.ones((1, 3), "f")}, transA=1, alpha=0.5, beta=2.0
    ),
    "split": lambda: make([node("Split", "x", "a b", axis=1), node("Sub", "a b", "y")], {"x": (3, 6)}, ["y"], opset=13),
    "two outputs": lambda: make([node("Relu", "x", "y"), node("Neg", "x", "z")], {"x": (3,)}, ["y", "z"]),
    "an output that is an input": lambda: make([node("Relu", "x", "y")], {"x": (3,)}, ["x", "y"]),
    "depth to space": lambda: single("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    "space to depth": lambda: single("SpaceToDepth", (1, 2, 4, 6), blocksize=2),
    "hard swish": lambda: single("HardSwish", (3, 4), opset=14),
    "mean of two": lambda: make([node("Neg", "x", "n"), node("Mean", "x n x", "y")], {"x": (3, 4)}, ["y"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_single_operator(name: str) -> None:
    check(SINGLE[name]())


def test_columns_become_images_in_kernels() -> None:
    """Windows side by side are in another order only; none needs a library."""
    names = [operators(from_onnx(SINGLE[name]())["main"]) for name in SINGLE if name.startswith("columns to")]
    assert [("nn.col2im" in n, "permute_dims" in n) for n in names] == [(True, False), (False, True), (True, False)]


def test_shape_computations_become_constants() -> None:
    """Shape, Gather, Concat and Unsqueeze around a Reshape leave nothing but the reshape."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Unsqueeze", "n axes", "n1"),
        node("ConstantOfShape", "n1", "unused"), node("Concat", "n1 minus", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]  # fmt: skip
    weights = {"zero": np.array(0), "axes": np.array([0]), "minus": np.array([-1])}
    assert operators(check(make(nodes, {"x": (2, 3, 4)}, ["y"], weights, 13))) == ["reshape"]


def test_constants_that_are_no_numbers_are_no_warnings() -> None:
    """T5's buckets of positions: the logarithm of 0, as an integer, is one that nobody takes."""
    weights = {"zero": np.zeros(1, np.float32)}
    nodes = [node("Log", "zero", "l"), node("Cast", "l", "i", to=7), node("Cast", "i", "f", to=1)]
    model = make([*nodes, node("Min", "f zero", "m"), node("Add", "x m", "y")], {"x": (2,)}, ["y"], weights, 17)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_onnx(model)


def test_names_become_identifiers() -> None:
    model = make([node("Relu", "gpu_0/data_0", "y")], {"gpu_0/data_0": (3,)}, ["y"])
    assert [p.name for p in from_onnx(model)["main"].params] == ["gpu_0_data_0"]
    assert [p.name for p in from_onnx(model, sanitize_input_names=False)["main"].params] == ["gpu_0/data_0"]


def test_names_that_become_the_same_identifier_stay_apart() -> None:
    model = make([node("Sub", "a/b a.b", "a:b")], {"a/b": (3,), "a.b": (3,)}, ["a:b"])
    assert [p.name for p in check(model).params] == ["a_b", "a_b_1"]
    dynamic = make([node("Sub", "a/b a.b", "y")], {"a/b": ("n",), "a.b": ("n",)}, ["y"])
    for shapes in ({"a/b": (4,), "a.b": (4,)}, {"a_b": (4,), "a_b_1": (4,)}):
        params = from_onnx(dynamic, shape_dict=shapes)["main"].params
        assert [p.struct_info.static_shape for p in params] == [(4,), (4,)]


def test_weights_as_parameters() -> None:
    model = small_conv_net()
    module = from_onnx(model, keep_params_in_input=True)
    main = module["main"]
    assert main.attrs["num_input"] == 1
    assert [p.name for p in main.params] == ["x", "w", "b", "g", "beta", "m", "v", "fc", "fb"]
    plain, params = detach_params(module)
    assert "params" not in plain["main"].attrs and list(params) == ["main"]
    inputs = random_inputs(model)
    got = relax.evaluate(plain, [*inputs.values(), *params["main"]])
    np.testing.assert_allclose(got, run_with_onnxruntime(model, inputs)[0], rtol=1e-4, atol=1e-5)


def test_all_unsupported_operators_at_once() -> None:
    nodes = [node("Foo", "x", "a"), node("Relu", "a", "b"), node("Bar", "b", "c"), node("Foo", "c", "y")]
    with pytest.raises(ImportModelError) as error:
        from_onnx(make(nodes, {"x": (3,)}, ["y"]))
    assert str(error.value) == "operators that are not supported: Bar (n_c); Foo (n_a, n_y)"


def test_unknown_dimensions_are_named() -> None:
    model = make([node("Relu", "x", "y")], {"x": ("batch", 3, None)}, ["y"])
    with pytest.raises(ImportModelError, match=r"'x' \[batch, 3, \?\]; give them, such as --shapes \"x:1x3x1\""):
        from_onnx(model)
    function = from_onnx(model, shape_dict={"x": (4, 3, 5)})["main"]
    assert function.ret_struct_info.static_shape == (4, 3, 5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [({"q": (1,)}, "no input"), ({"x": (4, 4, 5)}, "does not fit"), ({"x": (4, 3)}, "does not fit")],
)
def test_shapes_that_do_not_fit(shapes: Any, message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        from_onnx(make([node("Relu", "x", "y")], {"x": ("batch", 3, None)}, ["y"]), shape_dict=shapes)


def test_a_dimension_of_minus_one_is_open() -> None:
    model = make([node("Relu", "x", "y")], {"x": (-1, 3, -1)}, ["y"])
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    for shapes in (None, {"x": x.shape}):
        np.testing.assert_array_equal(autosched.build(model, shapes=shapes, threads=1)(x).numpy(), np.maximum(x, 0))
    assert autosched.onnx.InferenceSession(model).get_inputs()[0].shape == (None, 3, None)


def test_an_operator_that_does_not_fit_names_its_node() -> None:
    model = make([node("MatMul", "x w", "y")], {"x": (2, 3)}, ["y"], {"w": np.ones((4, 5), "f")})
    with pytest.raises(ImportModelError, match="node 'n_y'"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 3, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ((2, 3, 8, 7), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1], "ceil_mode": 1}),
        ((1, 2, 8, 9), {"kernel_shape": [3, 2], "dilations": [2, 3], "storage_order": 1}),
    ],
)
def test_places_of_the_largest(shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    model = make([node("MaxPool", "x", "y i", **attrs)], {"x": shape}, ["y", "i"])
    x = np.random.default_rng(0).standard_normal(shape).astype("f")
    found, wanted = relax.evaluate(from_onnx(model), [x]), ReferenceEvaluator(model).run(None, {"x": x})
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


def test_an_output_that_is_not_supported() -> None:
    model = make([node("GlobalMaxPool", "x", "y i")], {"x": (1, 1, 4, 4)}, ["y", "i"])
    with pytest.raises(ImportModelError, match="output 1"):
        from_onnx(model)


def test_an_impossible_opset_is_refused() -> None:
    with pytest.raises(ImportModelError, match="there is no opset 0"):
        from_onnx(make([node("Relu", "x", "y")], {"x": (3,)}, ["y"], opset=0))


def test_an_opset_that_is_not_known_yet_is_refused() -> None:
    with pytest.raises(ImportModelError, match="opset 99 is newer than .* 1 to 28.*node 'n_y'"):
        from_onnx(make([node("Relu", "x", "y")], {"x": (3,)}, ["y"], opset=99))


def test_a_value_that_two_nodes_compute_is_refused() -> None:
    nodes = [node("Relu", "x", "y"), node("Neg", "x", "y")]
    with pytest.raises(ImportModelError, match="'y' is computed by two nodes .*'n_y'"):
        from_onnx(make(nodes, {"x": (2,)}, ["y"]))


def test_outputs_keep_their_names() -> None:
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "x", "b")]
    module = from_onnx(make(nodes, {"x": (2, 3)}, ["a", "b"]))
    assert [field.name for field in module["main"].body.body.fields] == ["a", "b"]
    renamed = from_onnx(make([node("Relu", "x", "scores/b:0")], {"x": (2, 3)}, ["scores/b:0"]))
    assert renamed["main"].body.body.name == "scores_b_0"


def test_a_tensor_that_no_machine_can_hold() -> None:
    model = make([node("Relu", "x", "y")], {"x": ("batch", 3)}, ["y"])
    with pytest.raises(ImportModelError, match=r"'x' of shape 999999999999999x3 is larger than any memory"):
        from_onnx(model, shape_dict={"x": (999999999999999, 3)})


@pytest.mark.parametrize("start", [-9, -6, -(2**63)])
def test_a_slice_backwards_from_before_the_beginning_has_the_first_element(start: int) -> None:
    """The specification brings the start to the first element, as ONNX Runtime does; NumPy gives nothing."""
    weights = dict(zip("beas", map(np.array, ([start], [-(2**63)], [0], [-1])), strict=True))
    x = np.arange(30, dtype="f").reshape(5, 6)
    np.testing.assert_array_equal(relax.evaluate(from_onnx(single("Slice", x.shape, weights=weights)), {"x": x}), x[:1])


def test_a_node_has_no_more_inputs_than_its_operator() -> None:
    with pytest.raises(ImportModelError, match="Relu: 3 inputs, it takes 1"):
        from_onnx(make([node("Relu", "x x x", "y")], {"x": (2,)}, ["y"]))
    spare = node("Relu", "x", "y")
    spare.input.append("")  # an optional input that is left out
    from_onnx(make([spare], {"x": (2,)}, ["y"]))


def test_hardmax_of_nothing_is_nothing() -> None:
    nothing = np.zeros((3, 0), "f4")
    assert autosched.build(single("Hardmax", nothing.shape, opset=13))(nothing).shape == nothing.shape
