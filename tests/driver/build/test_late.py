"""ONNX models whose sizes or values are known only when they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched.driver.build.late import LateModel
from autosched.errors import ImportModelError, InvalidTypeError, ShapeError, UsageError, WrongInputError
from autosched.runtime import Executable
from autosched.runtime.dynamic import DynamicExecutable
from autosched.target import Target

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("f4")


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()],
        [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def numbers(result: Any) -> Any:
    return result.numpy() if hasattr(result, "numpy") else result


def late(*args: Any, shapes: Any = None, **more: Any) -> LateModel:
    """A model in stages, also where the VM could run it whole."""
    built = LateModel(model(*args, **more), autosched.build, Target("cpu").to_json(), shapes)
    built.prepare()
    return built


def test_a_model_whose_course_is_known_is_built_at_once() -> None:
    built = autosched.build(model([node("Relu", "x", "y")], {"x": (FLOAT, [2, 3, 4])}, ["y"]))
    assert isinstance(built, Executable)
    np.testing.assert_array_equal(built(X).numpy(), np.maximum(X, 0))


@pytest.fixture
def each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dimensions without a name are not taken for symbols, so that models of them are compiled for each size."""
    monkeypatch.setattr("autosched.frontend.onnx.model_inputs.with_names", lambda model: model)


@pytest.mark.usefixtures("each_size")
def test_sizes_are_compiled_once_each_and_checked() -> None:
    inputs = {"x": (FLOAT, ["batch", 3]), "z": (FLOAT, ["batch", None])}
    built = late([node("Concat", "x z", "c", axis=1), node("Relu", "c", "y")], inputs, ["y"])
    for batch, columns in ((2, 4), (5, 1), (2, 4)):
        x, z = X[0, :1, :3].repeat(batch, 0), X[0, :1].repeat(batch, 0)[:, :columns]
        np.testing.assert_array_equal(built(x, z).numpy(), np.maximum(np.hstack([x, z]), 0))
    assert len(built.executables) == 2
    with pytest.raises(ShapeError, match="share the dimension 'batch'"):
        built(X[0, :2, :3], X[0, :1])
    with pytest.raises(ShapeError, match="instead of"):
        built(X[0], X[0])
    with pytest.raises(InvalidTypeError, match="float64"):
        built(X[0, :2, :3].astype("f8"), X[0, :2])
    with pytest.raises(InvalidTypeError, match="'z' is missing"):
        built(X[0, :2, :3])


def test_axes_that_are_an_input() -> None:
    nodes = [node("Relu", "x", "r"), node("ReduceSum", "r axes", "y")]
    built = late(nodes, {"x": (FLOAT, [2, 3, 4]), "axes": (INT64, [1])}, ["y"])
    for axis in (0, 2, 0):
        np.testing.assert_allclose(
            built(X, np.array([axis])).numpy(), np.maximum(X, 0).sum(axis, keepdims=True), rtol=1e-6
        )
    assert len(built.executables) == 2  # the contents are part of what is looked up
    with pytest.raises(ImportModelError):
        built(X, np.array([7]))


def test_a_size_that_is_computed_from_an_input() -> None:
    """The shape computation is folded; nothing but the last stage is compiled."""
    nodes = [node("Mul", "n two", "m"), node("Concat", "m minus", "s", axis=0), node("Reshape", "x s", "y")]
    weights = {"two": np.array([2], "i8"), "minus": np.array([-1], "i8")}
    built = late(nodes, {"x": (FLOAT, [2, 3, 4]), "n": (INT64, [1])}, ["y"], weights)
    np.testing.assert_array_equal(built(X, np.array([3])).numpy(), X.reshape(6, 4))
    np.testing.assert_array_equal(built(X, np.array([1])).numpy(), X.reshape(2, 12))


def test_sizes_that_follow_from_data() -> None:
    nodes = [node("Exp", "x", "e"), node("Greater", "x zero", "c"), node("NonZero", "c", "n"),
             node("Transpose", "n", "t"), node("GatherND", "e t", "g"), node("Neg", "g", "y")]  # fmt: skip
    built = late(nodes, {"x": (FLOAT, [2, 3, 4])}, ["y", "n"], {"zero": np.zeros((), "f4")})
    for x in (X, -X, X):
        y, n = map(numbers, built(x))
        np.testing.assert_allclose(y, -np.exp(x[x > 0]), rtol=1e-5)
        np.testing.assert_array_equal(n, np.stack(np.nonzero(x > 0)))
    y, n = map(numbers, built(-np.ones_like(X)))
    assert y.shape == (0,) and n.shape == (3, 0)
    assert [call.op_name for call in built.calls] == ["NonZero"]


def test_a_loop_whose_end_is_data() -> None:
    """x doubles until its sum is above 100."""
    body = helper.make_graph(
        [node("Add", "v v", "w"), node("ReduceSum", "w", "s", keepdims=0), node("Less", "s limit", "go_on")],
        "body",
        [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", FLOAT, [3])],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), helper.make_tensor_value_info("w", FLOAT, [3])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)]
    weights = {"true": np.array(True), "limit": np.array(100, "f4")}
    built = late(nodes, {"x": (FLOAT, [3])}, ["y"], weights)
    np.testing.assert_array_equal(built(np.array([1, 2, 3], "f4")).numpy(), np.array([32, 64, 96], "f4"))
    np.testing.assert_array_equal(built(np.array([99, 2, 3], "f4")).numpy(), np.array([198, 4, 6], "f4"))


def test_a_loop_may_have_no_step() -> None:
    """What it collects has no elements then, and the shape that each step's part would have."""
    body = helper.make_graph(
        [node("Identity", "go", "again"), node("Add", "v v", "w"), node("Identity", "v", "each")],
        "body",
        [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", FLOAT, None)],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []), helper.make_tensor_value_info("w", FLOAT, None),
         helper.make_tensor_value_info("each", FLOAT, None)],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y", "z"], body=body)]
    built = late(nodes, {"x": (FLOAT, [2, 3]), "n": (INT64, [])}, ["y", "z"])
    x = X[0, :2, :3].copy()
    for steps in (0, 2, 0):
        y, z = map(numbers, built(x, np.array(steps)))
        np.testing.assert_array_equal(y, x * 2**steps)
        np.testing.assert_array_equal(z, np.array([x * 2**k for k in range(steps)], "f4").reshape(steps, 2, 3))


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", FLOAT, None)])


def test_branches_over_open_sizes_are_compiled_once_each() -> None:
    """Decoders have one for the first call and one for those with keys and values of earlier calls."""
    yes, no = branch("yes", node("Concat", "p x", "yes_y", axis=0)), branch("no", node("Relu", "x", "no_y"))
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]
    built = late(nodes, {"x": (FLOAT, ["n"]), "p": (FLOAT, ["m"]), "c": (TensorProto.BOOL, [1])}, ["y"])
    for i, (n, m, c) in enumerate([(2, 1, False), (4, 3, False), (5, 4, True), (6, 9, True), (7, 3, False)]):
        if i == 3:
            made = len(built.steps)
        x, p = RNG.standard_normal(n).astype("f4"), RNG.standard_normal(m).astype("f4")
        want = np.concatenate([p, x]) if c else np.maximum(x, 0)
        np.testing.assert_array_equal(built(x, p, np.array([c])).numpy(), want)
    assert len(built.steps) == made


def test_a_choice_over_open_sizes_is_built_at_once() -> None:
    yes, no = branch("yes", node("Neg", "x", "yes_y")), branch("no", node("Relu", "x", "no_y"))
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]
    built = autosched.build(model(nodes, {"x": (FLOAT, ["n", 3]), "c": (TensorProto.BOOL, [1])}, ["y"]))
    assert isinstance(built, DynamicExecutable)
    for x, c in ((X[0, :, :3], True), (X[0, :2, :3], False)):
        np.testing.assert_array_equal(built(x.copy(), np.array([c])).numpy(), -x if c else np.maximum(x, 0))


def test_branches_of_different_shapes() -> None:
    yes = branch("yes", node("ReduceSum", "x", "yes_y", keepdims=0))
    no = branch("no", node("Relu", "x", "no_y"))
    nodes = [node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m one", "c"),
             helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]  # fmt: skip
    built = late(nodes, {"x": (FLOAT, [2, 3, 4])}, ["y"], {"one": np.array(1, "f4")})
    np.testing.assert_allclose(built(X).numpy(), X.sum(), rtol=1e-5)
    np.testing.assert_array_equal(built(X / 10).numpy(), np.maximum(X / 10, 0))


def test_tensors_without_elements() -> None:
    nodes = [node("Relu", "x", "r"), node("Concat", "r z", "c", axis=0), node("MatMul", "t r", "p"),
             node("ReduceMax", "x axes", "m")]  # fmt: skip
    inputs = {"x": (FLOAT, [0, 3]), "z": (FLOAT, [2, 3]), "t": (FLOAT, [4, 0])}
    built = late(nodes, inputs, ["r", "c", "p", "m"], {"axes": np.array([0], "i8")})
    z = X[:, :, 0]
    r, c, p, m = map(numbers, built(np.zeros((0, 3), "f4"), z, np.zeros((4, 0), "f4")))
    assert r.shape == (0, 3) and r.dtype == np.float32
    np.testing.assert_array_equal(c, z)
    np.testing.assert_array_equal(p, np.zeros((4, 3), "f4"))
    np.testing.assert_array_equal(m, np.full((1, 3), -np.inf, "f4"))
    best = [helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1)]
    values, places = late(best, {"x": (FLOAT, [0, 3])}, ["v", "i"], {"k": np.array([2])})(np.zeros((0, 3), "f4"))
    assert (values.shape, places.shape, places.dtype) == ((0, 2), (0, 2), "int64")


def test_parts_without_elements_count_where_they_are_joined() -> None:
    """They add to a dimension of the result, which has no elements for another one's sake."""
    nodes = [node("Concat", "x z", "c", axis=0), node("NonZero", "c", "n")]
    built = late(nodes, {"x": (FLOAT, ["a", "b"]), "z": (FLOAT, ["c", "b"])}, ["c", "n"])
    for a, b, c in ((2, 0, 5), (2, 3, 5), (0, 3, 5), (0, 0, 1)):
        assert built(np.zeros((a, b), "f4"), np.zeros((c, b), "f4"))[0].shape == (a + c, b)


def test_an_output_between_others_may_be_left_out() -> None:
    nodes = [helper.make_node("Unique", ["x"], ["u", "", "back", "counts"])]
    built = late(nodes, {"x": (FLOAT, [6])}, ["u", "back", "counts"])
    u, back, counts = map(numbers, built(np.array([3, 1, 3, 3, 7, 1], "f4")))
    assert u.tolist() == [1, 3, 7] and back.tolist() == [1, 0, 1, 1, 2, 0] and counts.tolist() == [2, 3, 1]


def test_texts_and_sequences() -> None:
    nodes = [node("StringConcat", "a b", "s"), node("SequenceConstruct", "x r", "q"), node("Relu", "x", "r")]
    built = late(nodes, {"a": (STRING, [2]), "b": (STRING, [1]), "x": (FLOAT, [2, 3, 4])}, ["s", "q"], opset=20)
    s, q = built(np.array(["p", "q"], object), ["z"], X)
    assert s.tolist() == ["pz", "qz"]
    assert isinstance(q, list)
    for got, want in zip(q, (X, np.maximum(X, 0)), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_weights_of_four_bits_are_read_at_import() -> None:
    import ml_dtypes

    w = np.arange(-6, 6).reshape(3, 4)
    nodes = [node("DequantizeLinear", "w s", "d"), node("MatMul", "x d", "y")]
    weights = {"w": w.astype(ml_dtypes.int4), "s": np.array(0.5, "f4")}
    built = autosched.build(model(nodes, {"x": (FLOAT, [2, 3])}, ["y"], weights, opset=21))
    assert isinstance(built, Executable)
    np.testing.assert_allclose(built(X[:, :, 0]).numpy(), X[:, :, 0] @ (w * 0.5), rtol=1e-5, atol=1e-5)


def test_a_saved_model_is_compiled_where_it_is_called(tmp_path: Path) -> None:
    pool = node("MaxPool", "x", "y", kernel_shape=[1], strides=[2], auto_pad="SAME_UPPER")
    built = late([pool], {"x": (FLOAT, ["n", 1, "m"])}, ["y"])
    built.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    np.testing.assert_array_equal(loaded(X[:, :1, :3]).numpy(), X[:, :1, :3:2])


def test_what_no_later_stage_can_do_is_refused() -> None:
    with pytest.raises(ImportModelError, match="Nonsense"):
        autosched.build(model([node("Nonsense", "x", "y")], {"x": (FLOAT, [None])}, ["y"]))
    with pytest.raises(ImportModelError, match="Add: input 1 is tensor"):  # NumPy would convert one of them
        autosched.build(model([node("Add", "x n", "y")], {"x": (FLOAT, [1]), "n": (INT64, [1])}, ["y"]))
    built = late([node("StringSplit", "a", "y n")], {"a": (FLOAT, ["n"])}, ["y"], opset=20)
    with pytest.raises(ImportModelError, match="StringSplit"):
        built(X[0, 0])


def test_a_library_that_fails_names_the_node() -> None:
    weights = {"p": np.array(["("], object)}
    nodes = [helper.make_node("RegexFullMatch", ["a"], ["y"], name="match", pattern="(")]
    built = late(nodes, {"a": (STRING, ["n"])}, ["y"], weights, opset=20)
    with pytest.raises(WrongInputError, match="node 'match'"):
        built(np.array(["x"], object))


def test_remainders_by_infinity() -> None:
    x = np.array([0, -0.0, 3, -3, -1, 1, np.inf, 1, np.nan, 5, -5], "f4")
    y = np.array([2, np.inf, np.inf, np.inf, -np.inf, -np.inf, 2, 0, 2, 3, 3], "f4")
    built = autosched.build(model([node("Mod", "x y", "z", fmod=0)], {"x": (FLOAT, [11]), "y": (FLOAT, [11])}, ["z"]))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(built(x, y).numpy(), np.mod(x, y))


@pytest.mark.usefixtures("each_size")
def test_calls_of_known_forms_are_as_the_first_one() -> None:
    """The second call of a form takes a shorter way: the same checks, results of its own, any layout of inputs."""
    built = late(
        [node("Add", "x y", "s"), node("Neg", "s", "z")],
        {"x": (FLOAT, ["n", None]), "y": (FLOAT, ["n", None])},
        ["s", "z"],
    )
    a, b = X[:, :, 0].copy(), X[:, :, 1].copy()
    kept = built(a, b)
    for x, y in ((a * 2, b), (np.asfortranarray(a * 3), X[:, :, 1]), (a.astype("f4")[:1], b[:1])):
        for _ in range(2):
            s, z = built(x, y)
            np.testing.assert_array_equal(s.numpy(), x + y)
            np.testing.assert_array_equal(z.numpy(), -(x + y))
    np.testing.assert_array_equal(kept[0].numpy(), a + b)
    assert len(built._direct) == 2 and len(built.steps) == 2
    with pytest.raises(InvalidTypeError):
        built(a.astype("f8"), b)
    with pytest.raises(InvalidTypeError):
        built(a.astype(">f4"), b)
    with pytest.raises(ShapeError):
        built(a, b[:1])
    with pytest.raises(InvalidTypeError):
        built(a)
    np.testing.assert_array_equal(built(y=b, x=a)[0].numpy(), a + b)


@pytest.mark.usefixtures("each_size")
def test_outputs_that_are_one_value_or_an_input_are_arrays_of_their_own() -> None:
    built = late(
        [node("Identity", "x", "y"), node("Neg", "x", "z"), node("Identity", "z", "w")],
        {"x": (FLOAT, [None])},
        ["y", "z", "w"],
    )
    x = np.arange(3, dtype="f4")
    for _ in range(3):
        y, z, w = built(x)
        z[:] = np.full(3, 7, "f4")
        y[:] = np.full(3, 8, "f4")
        np.testing.assert_array_equal(w.numpy(), -np.arange(3, dtype="f4"))
        np.testing.assert_array_equal(x, np.arange(3, dtype="f4"))


def test_bounds_hold_for_models_that_are_compiled_when_called(tmp_path: Path) -> None:
    graph = [node("NonZero", "x", "y"), node("Unique", "y", "z")], {"x": (FLOAT, ["n", 4])}, ["y", "z"]
    built = autosched.build(model(*graph), shapes={"x": (range(2, 6), 4)})
    assert isinstance(built, LateModel)
    built.save(tmp_path / "late.asx")
    for one in (built, autosched.load(tmp_path / "late.asx")):
        x = np.eye(5, 4, dtype="f4")
        np.testing.assert_array_equal(numbers(one(x)[0]), np.nonzero(x))
        for n in (1, 6):
            with pytest.raises(ShapeError, match=f"input 'x': 'n' is {n}, and the model is built for 2 to 5"):
                one(np.ones((n, 4), "f4"))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (range(1, 3), 4)}, "no input 'z'"),
        ({"x": (range(1, 3),)}, "not 1 of them"),
        ({"x": (3, range(1, 5))}, "its dimension 4 is no size"),
    ],
)
def test_bounds_that_fit_no_input_are_refused(shapes: Any, message: str) -> None:
    graph = model([node("NonZero", "x", "y")], {"x": (FLOAT, ["n", 4])}, ["y"])
    with pytest.raises((ShapeError, UsageError), match=message):
        autosched.build(graph, shapes=shapes)


# --- stages for all sizes --------------------------------------------------------------------------------------------


def compiles_nothing_from_the_third_call(built: LateModel, calls: Sequence[tuple[Sequence[np.ndarray], Any]]) -> None:
    """Results are right, and no stage is made for the sizes of later calls."""
    for number, (given, wanted) in enumerate(calls):
        if number == 2:
            made = len(built.steps)
        results = built(*given)
        for result, want in zip(results if isinstance(results, tuple) else (results,), wanted, strict=True):
            assert numbers(result).dtype == want.dtype
            np.testing.assert_allclose(numbers(result), want, rtol=1e-5, atol=1e-6)
    assert len(built.steps) == made


def test_as_many_as_data_says() -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((8, 5)).astype("f4")
    nodes = [node("Greater", "s zero", "c"), node("NonZero", "c", "n"), node("Squeeze", "n first", "i"),
             node("Gather", "x i", "g", axis=0), node("MatMul", "g w", "p"), node("Softmax", "p", "y"),
             node("Transpose", "n", "t"), node("ScatterND", "x t r", "z"), node("Neg", "g", "r")]  # fmt: skip
    inputs = {"x": (FLOAT, [40, 8]), "s": (FLOAT, [40])}
    built = late(nodes, inputs, ["y", "z"], {"zero": np.zeros((), "f4"), "first": np.array([0]), "w": weight})
    calls = []
    for _ in range(6):
        x, s = rng.standard_normal((40, 8)).astype("f4"), rng.standard_normal(40).astype("f4")
        e = np.exp(x[s > 0] @ weight)
        calls.append(((x, s), (e / e.sum(1, keepdims=True), np.where((s > 0)[:, None], -x, x))))
    compiles_nothing_from_the_third_call(built, calls)
    none = built(calls[0][0][0], -np.ones(40, "f4"))
    assert none[0].shape == (0, 5)
    np.testing.assert_array_equal(numbers(none[1]), calls[0][0][0])


def test_nothing_is_compiled_late_where_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("NonZero", "c", "n"), node("Transpose", "n", "t"), node("GatherND", "x t", "y")]
    built = late(nodes, {"x": (FLOAT, [4]), "c": (TensorProto.BOOL, [4])}, ["y"])
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    with pytest.raises(UsageError, match="never called with such values"):
        built(np.ones(4, "f4"), np.array([True, False, True, False]))


def test_two_counts_of_one_condition_are_one_size() -> None:
    nodes = [node("NonZero", "c", "n"), node("NonZero", "c", "m"), node("Transpose", "n", "t"),
             node("Transpose", "m", "u"), node("GatherND", "x t", "a"), node("GatherND", "z u", "b"),
             node("Mul", "a b", "y")]  # fmt: skip
    built = late(nodes, {"x": (FLOAT, [12, 3]), "z": (FLOAT, [12, 3]), "c": (TensorProto.BOOL, [12])}, ["y"])
    x, z = X[0, 0, 0] + np.arange(36, dtype="f4").reshape(12, 3), np.arange(36, dtype="f4").reshape(12, 3) - 9
    conditions = [np.arange(12) % k == 0 for k in (2, 3, 4, 5)]
    compiles_nothing_from_the_third_call(built, [((x, z, c), (x[c] * z[c],)) for c in conditions])


def test_stages_behind_stages_for_all_sizes() -> None:
    """Each of three filters says how many rows the next one sees."""
    nodes, last = [], "x"
    for i in range(3):
        nodes += [node("ReduceSum", f"{last} second", f"s{i}", keepdims=0), node("Greater", f"s{i} zero", f"c{i}"),
                  node("NonZero", f"c{i}", f"n{i}"), node("Squeeze", f"n{i} first", f"i{i}"),
                  node("Gather", f"{last} i{i}", f"g{i}", axis=0), node("MatMul", f"g{i} w", f"x{i}")]  # fmt: skip
        last = f"x{i}"
    turn = np.array([[0, -1], [1, 0]], "f4")
    weights = {"zero": np.zeros((), "f4"), "first": np.array([0]), "second": np.array([1]), "w": turn}
    built = late(nodes, {"x": (FLOAT, [200, 2])}, [last], weights)
    calls = []
    for seed in range(6):
        x = wanted = np.random.default_rng(seed).standard_normal((200, 2)).astype("f4")
        for _ in range(3):
            wanted = wanted[wanted.sum(1) > 0] @ turn
        calls.append(((x,), (wanted,)))
    compiles_nothing_from_the_third_call(built, calls)


def test_the_k_best_of_an_input() -> None:
    built = late([node("TopK", "x k", "v i", axis=1)], {"x": (FLOAT, [6, 9]), "k": (INT64, [1])}, ["v", "i"])
    x = np.random.default_rng(2).permutation(54).reshape(6, 9).astype("f4")
    order = np.argsort(-x, 1)
    ks = (3, 5, 1, 9, 4)
    wanted = [(np.take_along_axis(x, order[:, :k], 1), order[:, :k]) for k in ks]
    compiles_nothing_from_the_third_call(built, [((x, np.array([k])), w) for k, w in zip(ks, wanted)])
    assert numbers(built(x, np.array([0]))[0]).shape == (6, 0)
    with pytest.raises((ImportModelError, ShapeError)):
        built(x, np.array([10]))


def test_pieces_and_slices_whose_sizes_are_inputs() -> None:
    nodes = [node("Relu", "x", "r"), node("Split", "r s", "a b", axis=0), node("Neg", "b", "z"),
             node("Slice", "r from to first", "d"), node("MatMul", "d w", "y")]  # fmt: skip
    inputs = {"x": (FLOAT, [20, 4]), "s": (INT64, [2]), "from": (INT64, [1]), "to": (INT64, [1])}
    w = X[0, :, :].T.copy()
    built = late(nodes, inputs, ["a", "z", "y"], {"first": np.array([0]), "w": w})
    x = np.random.default_rng(3).standard_normal((20, 4)).astype("f4")
    r = np.maximum(x, 0)
    for a, begin, end in ((5, 2, 9), (7, 3, 11), (1, 1, 20), (19, 8, 10), (6, 5, 17), (0, 0, 4), (20, -3, 99)):
        given = (x, np.array([a, 20 - a]), np.array([begin]), np.array([end]))
        for result, wanted in zip(built(*given), (r[:a], -r[a:], r[begin:end] @ w), strict=True):
            np.testing.assert_allclose(numbers(result), wanted, rtol=1e-5, atol=1e-6)
    for sizes in ([5, 14], [5, 16], [-1, 21]):
        with pytest.raises((ImportModelError, ShapeError)):
            built(x, np.array(sizes), np.array([2]), np.array([9]))


def test_a_condition_that_keeps_rows() -> None:
    built = late(
        [node("Compress", "x c", "y", axis=0)], {"x": (FLOAT, [6, 3]), "c": (TensorProto.BOOL, [6])}, ["y"]
    )  # fmt: skip
    x = np.arange(18, dtype="f4").reshape(6, 3)
    for c in (x[:, 0] > 5, x[:, 0] > 11, x[:, 0] > 99):
        np.testing.assert_array_equal(numbers(built(x, c)), x[c])
