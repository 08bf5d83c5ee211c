"""Named dimensions of ONNX models stay symbols, where nobody gives their sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.cli import main
from autosched.codegen import counters
from autosched.errors import AutoschedError, ImportModelError, ShapeError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.relax_vm import VMExecutable
from tests.frontend.onnx_models import make, node

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

W = np.random.default_rng(0).random((4, 3), dtype=np.float32)


def model(first: object = "batch") -> object:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, 4])
    b = helper.make_tensor_value_info("b", TensorProto.FLOAT, [first, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, 3])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, b], [y], [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_one_symbol_for_one_name() -> None:
    module = from_onnx(model())
    x, b = module["main"].params
    assert x.struct_info.shape.values[0] is b.struct_info.shape.values[0]
    assert x.struct_info.shape.values[0].name == "batch"
    vm = relax.VirtualMachine(relax.build(module, "llvm"), autosched.cpu())
    for n in (2, 5):
        data, bias = np.ones((n, 4), np.float32), -np.ones((n, 3), np.float32)
        out = vm["main"](autosched.nd.array(data), autosched.nd.array(bias)).numpy()
        np.testing.assert_allclose(out, np.maximum(data @ W + bias, 0), rtol=1e-5)


def test_sizes_that_are_given() -> None:
    module = from_onnx(model(), shape_dict={"x": [2, 4], "b": [2, 3]})
    assert module["main"].params[0].struct_info.static_shape == (2, 4)
    named = from_onnx(model(None), shape_dict={"x": ["n", 4], "b": ["n", 3]})
    assert named["main"].params[0].struct_info.shape.values[0].name == "n"


def test_where_numbers_are_needed_they_are_asked_for() -> None:
    with pytest.raises(ImportModelError, match="unknown size"):
        from_onnx(model(), symbolic=False)
    with pytest.raises(ImportModelError, match="unknown size"):
        from_onnx(model(None))


def compare_at_all_sizes(proto: object, path: Path, *shape: int, sizes: tuple[int, ...] = (3, 1)) -> None:
    """Built once, without compiling at a call, and equal to ONNX's reference."""
    onnx.save(proto, path)
    built = autosched.build(path)
    assert isinstance(built, DynamicExecutable)
    before, reference = counters.COMPILES.value, ReferenceEvaluator(proto)
    for n in sizes:
        x = np.random.default_rng(n).standard_normal((n, *shape)).astype("f4")
        for found, expected in zip([built(x=x)], reference.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert counters.COMPILES.value == before


def test_images_of_any_batch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "k": rng.standard_normal((8, 3, 3, 3)).astype("f4"), "one": np.ones(8, "f4"), "v": np.full(8, 2.0, "f4"),
        "w": rng.standard_normal((8, 5)).astype("f4"), "scales": np.array([1, 1, 2, 2], "f4"),
        "pads": np.array([0, 0, 1, 1, 0, 0, 0, 2]),
    }  # fmt: skip
    nodes = [
        node("Pad", "x pads", "a"), node("Conv", "a k", "b"), node("BatchNormalization", "b one one one v", "c"),
        node("InstanceNormalization", "c one one", "d"), node("MaxPool", "d", "e", kernel_shape=[2, 2]),
        node("DepthToSpace", "e", "g", blocksize=2),
        node("SpaceToDepth", "g", "h", blocksize=2), node("GlobalAveragePool", "h", "i"), node("Flatten", "i", "j"),
        node("MatMul", "j w", "l"), node("Softmax", "l", "y", axis=-1),
    ]  # fmt: skip
    compare_at_all_sizes(make(nodes, {"x": ("n", 3, 7, 8)}, ["y"], weights), tmp_path / "m.onnx", 3, 7, 8)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("ReduceSum", {"axes": [0, 1], "keepdims": 1}), ("ReduceMax", {"axes": [0, 1], "keepdims": 0}),
        ("ReduceMean", {"axes": [0], "keepdims": 0}), ("ArgMax", {"axis": 0}), ("ArgMin", {"axis": 1, "keepdims": 0}),
        ("Softmax", {"axis": 0}), ("LogSoftmax", {"axis": 0}),
    ],
)  # fmt: skip
def test_reductions_over_any_batch(op: str, attributes: dict[str, object], tmp_path: Path) -> None:
    """Over the open axis and beside it: 139 elements fill no whole vectors."""
    weights = {"axes": np.array(attributes["axes"])} if op == "ReduceSum" else {}
    attributes = {k: v for k, v in attributes.items() if k not in weights}
    made = node(op, "x axes" if weights else "x", "y" if op[0] in "RSL" else "a", **attributes)
    nodes = [made] if made.output[0] == "y" else [made, node("Cast", "a", "y", to=1)]
    compare_at_all_sizes(make(nodes, {"x": ("n", 139)}, ["y"], weights), tmp_path / "m.onnx", 139, sizes=(70, 1, 3))


def test_sizes_that_are_computed_from_shapes(tmp_path: Path) -> None:
    weights = {
        "g": np.ones(24, "f4"), "zero": np.array(0), "heads": np.array([4, 6]), "first": np.array([0]),
        "begin": np.array([2]), "end": np.array([20]), "axis": np.array([1]), "times": np.array([1, 2]),
        "left": np.array([-1]),
    }  # fmt: skip
    nodes = [
        node("LayerNormalization", "x g g", "a"), node("Shape", "a", "s"), node("Gather", "s zero", "n"),
        node("Unsqueeze", "n first", "n1"), node("Concat", "n1 heads", "t", axis=0), node("Reshape", "a t", "b"),
        node("Transpose", "b", "c", perm=[0, 2, 1]), node("Concat", "n1 left", "u", axis=0),
        node("Reshape", "c u", "d"), node("Slice", "d begin end axis", "e"), node("Tile", "e times", "f"),
        node("ReduceMean", "f", "h", axes=[1], keepdims=1), node("Sub", "f h", "y"),
    ]  # fmt: skip
    compare_at_all_sizes(make(nodes, {"x": ("n", 24)}, ["y"], weights), tmp_path / "m.onnx", 24)


def test_a_size_that_the_schedule_no_longer_needs(tmp_path: Path) -> None:
    """The last row of a row that is repeated is the row: its kernel does not ask how often."""
    weights = {"zero": np.array([0]), "one": np.array([1]), "last": np.array([-1])}
    nodes = [
        node("Slice", "x zero one zero", "row"), node("Shape", "x", "s"), node("Expand", "row s", "rows"),
        node("Gather", "rows last", "y", axis=0),
    ]  # fmt: skip
    proto = make(nodes, {"x": ("batch", "steps")}, ["y"], weights)
    built = autosched.build(proto)
    assert isinstance(built, DynamicExecutable)
    for shape in ((1, 1), (3, 7), (8, 2)):
        x = np.random.default_rng(0).random(shape, dtype=np.float32)
        np.testing.assert_array_equal(built(x).numpy(), x[:1])


def test_a_shape_that_fits_one_size_alone_is_not_taken_for_all(tmp_path: Path) -> None:
    proto = make([node("Reshape", "x t", "y")], {"x": ("n", 24)}, ["y"], {"t": np.array([2, 12])})
    onnx.save(proto, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx")
    assert not isinstance(built, DynamicExecutable)
    assert built(x=np.zeros((1, 24), "f4")).numpy().shape == (2, 12)
    with pytest.raises(AutoschedError, match="elements"):
        built(x=np.zeros((2, 24), "f4"))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


OPEN_IMAGES = ("n", 3, "h", "w")
MOVES: dict[str, tuple[list[object], tuple[object, ...], dict[str, np.ndarray]]] = {
    "reversed": (
        [node("Slice", "x s e a t", "y")], ("n", 8, "w"),
        {"s": ints(-1), "e": ints(-(2**63) + 1), "a": ints(2), "t": ints(-1)},
    ),
    "reversed in steps": (
        [node("Slice", "x s e a t", "y")], ("n", "w"),
        {"s": ints(2**31 - 1, -1), "e": ints(-(2**31), -(2**31)), "a": ints(0, 1), "t": ints(-1, -3)},
    ),
    "reversed beside an open one": (
        [node("Slice", "x s e a t", "z"), node("SplitToSequence", "z", "parts", axis=1, keepdims=0),
         node("ConcatFromSequence", "parts", "y", axis=0)], ("n", 7, 9, "w"),
        {"s": ints(10**9, 6, 0), "e": ints(-(10**9), 1, 5), "a": ints(1, 2, 3), "t": ints(-1, -2, 1)},
    ),
    **{
        mode: (
            [node("Pad", "x p", "y", mode=mode)], OPEN_IMAGES,
            {"p": ints(0, 1, 1, 2, 0, 1, 0, 1)},
        ) for mode in ("edge", "reflect", "wrap")
    },
    "space to depth": ([node("SpaceToDepth", "x", "y", blocksize=2)], OPEN_IMAGES, {}),
    "depth to space": ([node("DepthToSpace", "x", "y", blocksize=2)], ("n", 8, "h", "w"), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_elements_that_move_along_open_axes(name: str) -> None:
    nodes, shape, weights = MOVES[name]
    proto = make(nodes, {"x": shape}, ["y"], weights, opset=19)
    built = autosched.build(proto, threads=1)
    assert isinstance(built, DynamicExecutable)
    reference = ReferenceEvaluator(proto)
    for n, h, w in ((1, 2, 4), (3, 6, 4), (2, 4, 18), (5, 34, 66), (1, 126, 2), (2, 8, 130)):
        if name == "reflect" and w < 3:
            continue
        sizes = {"n": n, "h": h, "w": w}
        dims = [sizes.get(str(d), d) for d in shape]
        x = np.random.default_rng(h).standard_normal(dims).astype(np.float32)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_array_equal(built(x).numpy(), expected, err_msg=str(dims))


@pytest.mark.parametrize(
    ("name", "shape"), [("reflect", (1, 3, 2, 2)), ("wrap", (1, 3, 2, 1)), ("space to depth", (1, 3, 3, 4))]
)
def test_sizes_that_have_not_what_is_moved_are_refused(name: str, shape: tuple[int, ...]) -> None:
    nodes, dims, weights = MOVES[name]
    built = autosched.build(make(nodes, {"x": dims}, ["y"], weights, opset=19), threads=1)
    with pytest.raises(ShapeError):
        built(np.zeros(shape, np.float32))


@pytest.mark.parametrize(("name", "shape"), [("reversed", (2, 8, 7)), ("edge", (1, 3, 1, 1)), ("edge", (3, 3, 5, 7))])
def test_odd_sizes_of_what_moves(name: str, shape: tuple[int, ...]) -> None:
    nodes, dims, weights = MOVES[name]
    proto = make(nodes, {"x": dims}, ["y"], weights, opset=19)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(autosched.build(proto, threads=1)(x).numpy(), expected)


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "ReduceLogSumExp", "Softmax"])
@pytest.mark.parametrize("shape", [("r", "c"), (5, "c"), ("r", 70), (5, 70)])
def test_rows_of_infinite_elements(name: str, shape: tuple[object, ...]) -> None:
    """The largest of nothing but -inf is -inf, of any length: what stands behind the end of a row is no larger."""
    options = {"axis": -1} if name.startswith(("Arg", "Soft")) else {"axes": [-1]}
    built = autosched.build(make([node(name, "x", "y", **options)], {"x": shape}, ["y"]), threads=1)
    for columns in (70,) if shape[1] == 70 else (1, 2, 31, 32, 33, 70):
        x = np.full((5, columns), -np.inf, np.float32)
        x[1, columns // 2], x[2, -1], x[3] = 2, 3, np.inf
        for given in (x, -x):
            got = np.asarray(built(given).numpy()).reshape(5, -1)
            with np.errstate(all="ignore"):
                expected = {
                    "ReduceMax": lambda v: v.max(1, keepdims=True),
                    "ReduceMin": lambda v: v.min(1, keepdims=True),
                    "ArgMax": lambda v: v.argmax(1).reshape(5, 1),
                    "ArgMin": lambda v: v.argmin(1).reshape(5, 1),
                    "ReduceLogSumExp": lambda v: np.log(np.exp(v).sum(1, keepdims=True)),
                    "Softmax": lambda v: (
                        np.exp(v - v.max(1, keepdims=True)) / np.exp(v - v.max(1, keepdims=True)).sum(1, keepdims=True)
                    ),
                }[name](given)
            np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=str(given.shape))


def _positions(shape: list[int], below: int) -> np.ndarray:
    return np.random.default_rng(below).integers(-below, below, shape)


# (nodes, shapes and types of inputs, constants, what fills inputs of positions for the sizes n and m)
OPEN_OPERATORS: dict[str, tuple[list[object], dict[str, tuple[object, ...]], dict[str, np.ndarray], object]] = {
    "integer convolution": (
        [node("ConvInteger", "x w z", "y", pads=[1, 1, 1, 1])], {"x": ("n", 3, "m", 8)},
        {"w": np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3), "z": np.uint8(3)}, "uint8",
    ),
    "quantised convolution": (
        [node("QLinearConv", "x xs z w xs wz ys yz", "y", pads=[1, 1, 1, 1])], {"x": ("n", 3, "m", 8)},
        {
            "w": np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3), "xs": np.float32(0.1), "z": np.uint8(3),
            "wz": np.int8(0), "ys": np.float32(30.3), "yz": np.uint8(100),
        }, "uint8",
    ),
    "positions in batches": (
        [node("GatherND", "x i", "y", batch_dims=1)], {"x": ("n", "m", 4), "i": ("n", 3, 1)}, {}, "float32",
    ),
    "pool of open channels": (
        [node("MaxPool", "x", "y", kernel_shape=[2, 3], pads=[0, 1, 1, 1])], {"x": ("n", "m", 4, 5)}, {}, "float32",
    ),
    "mean pool of open channels": (
        [node("AveragePool", "x", "y", kernel_shape=[3], pads=[1, 1])], {"x": ("n", "m", 4)}, {}, "float32",
    ),
    "mean of open channels": ([node("GlobalAveragePool", "x", "y")], {"x": ("n", "m", 4, 5)}, {}, "float32"),
    "mean of integers": ([node("ReduceMean", "x a", "y")], {"x": ("n", "m")}, {"a": np.array([1])}, "int64"),
    "mean of all integers": ([node("ReduceMean", "x", "y", keepdims=0)], {"x": ("n", "m")}, {}, "int32"),
    "hardmax": ([node("Hardmax", "x", "y", axis=-1)], {"x": ("n", "m")}, {}, "float32"),
    "the last largest": (
        [node("ArgMax", "x", "y", axis=1, keepdims=0, select_last_index=1)], {"x": ("n", "m")}, {}, "int8",
    ),
    "neighbours of open channels": ([node("LRN", "x", "y", size=3)], {"x": ("n", "m", 4, 5)}, {}, "float32"),
    "the last of two pieces": (
        [node("Concat", "x x x", "all", axis=1), node("Split", "all", "first y", axis=1, num_outputs=2)],
        {"x": ("n", "m")}, {}, "float32",
    ),
    "transforms of an open batch": ([node("DFT", "x", "y", axis=1, onesided=1)], {"x": ("n", 8, 1)}, {}, "float32"),
    "reversed sequences": (
        [node("ReverseSequence", "x i", "y", time_axis=1, batch_axis=0)], {"x": ("n", "m", 2), "i": ("n",)}, {},
        "float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN_OPERATORS)
def test_operators_over_open_axes_are_compiled_once(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes, shapes, weights, dtype = OPEN_OPERATORS[name]
    proto = make(nodes, shapes, ["y"], weights, opset=18)
    for value in proto.graph.input:
        kind = np.dtype("int64" if value.name == "i" else dtype)
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(kind)
    proto.graph.output[0].ClearField("type")
    built = autosched.build(proto, threads=1)
    assert isinstance(built, DynamicExecutable)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for n, m in ((1, 1), (2, 3), (5, 17), (3, 64)):
        rng = np.random.default_rng(n)
        given = {}
        for key, dims in shapes.items():
            shape = [{"n": n, "m": m}.get(str(d), d) for d in dims]
            if key == "i":
                given[key] = rng.integers(1, m + 1, shape) if len(shape) == 1 else _positions(shape, m)
            elif dtype == "float32":
                given[key] = rng.standard_normal(shape).astype(dtype)
            else:
                given[key] = rng.integers(0 if dtype == "uint8" else -9, 10, shape).astype(dtype)
        (expected,) = session.run(None, given)
        found = built(**given).numpy()
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=f"{n} {m}")


def test_loops_that_end_by_data_are_compiled_once(tmp_path: Path) -> None:
    """With values from outside, sizes of shapes, and a loop inside: equal to ONNX's reference at all sizes."""
    flag, number = (TensorProto.BOOL, []), (TensorProto.INT64, [])

    def body(name: str, nodes: list[object], outputs: list[str]) -> object:
        types = [number, flag, (TensorProto.FLOAT, ["n", 4])]
        given = zip([f"{name}_{part}" for part in ("i", "go", "v")], types, strict=True)
        results = zip(outputs, types[1:], strict=True)
        values = [[helper.make_tensor_value_info(n, *t) for n, t in side] for side in (given, results)]
        return helper.make_graph(nodes, name, *values)

    inner = body("inner", [
        node("Add", "inner_v two_x", "w"), node("ReduceSum", "w", "w_sum", keepdims=0),
        node("Less", "w_sum first", "inner_on"),
    ], ["inner_on", "w"])  # fmt: skip
    outer = body("outer", [
        helper.make_node("Loop", ["", "true", "outer_v"], ["a"], body=inner), node("MatMul", "a weight", "p"),
        node("Tanh", "p", "t"), node("Shape", "outer_v", "s"), node("Expand", "step s", "e"), node("Add", "t e", "u"),
        node("Add", "u a", "z"), node("ReduceSum", "z", "z_sum", keepdims=0), node("Less", "z_sum last", "outer_on"),
    ], ["outer_on", "z"])  # fmt: skip
    loop = helper.make_node("Loop", ["steps", "true", "x"], ["y0"], body=outer)
    weights = {
        "weight": W @ W.T, "step": np.array([0.5], "f4"), "true": np.array(True), "two": np.float32(2),
        "first": np.float32(90), "last": np.float32(300),
    }  # fmt: skip
    nodes = [node("Cast", "count", "steps", to=TensorProto.INT64), node("Mul", "x two", "two_x"), loop]
    proto = make([*nodes, node("Relu", "y0", "y")], {"x": ["n", 4], "count": []}, ["y"], weights)
    onnx.save(proto, tmp_path / "loop.onnx")
    built = autosched.build(tmp_path / "loop.onnx")
    assert isinstance(built, VMExecutable) and not built.symbolic
    built.save(tmp_path / "loop.asx")
    before, reference = counters.COMPILES.value, ReferenceEvaluator(proto)
    for run in (built, autosched.load(tmp_path / "loop.asx")):
        for n, steps in ((3, 4), (1, 9), (17, 1), (2, 0)):
            x = np.random.default_rng(n).random((n, 4), dtype=np.float32)
            (expected,) = reference.run(None, {"x": x, "count": np.float32(steps)})
            np.testing.assert_allclose(run(x, np.float32(steps)).numpy(), expected, rtol=1e-4)
    assert counters.COMPILES.value == before
    assert main(["build", str(tmp_path / "loop.onnx"), "-o", str(tmp_path / "again.asx")]) == 0
    session = autosched.onnx.InferenceSession(tmp_path / "loop.onnx")
    np.testing.assert_allclose(session.run(["y"], {"x": x, "count": np.float32(steps)})[0], expected, rtol=1e-4)
