"""ONNX models whose course or sizes follow from data, built once: equal to ONNX Runtime in each call."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched.cli import main
from autosched.codegen import counters
from autosched.errors import ShapeError
from autosched.runtime.collected import Collected
from autosched.runtime.relax_vm import VMExecutable
from autosched.target.threads import choose_threads
from tests.frontend.onnx_models import node

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def value(name: str, dtype: int, shape: Sequence[object] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


class Model(NamedTuple):
    """Nodes, inputs, outputs, weights, and what it is called with."""

    nodes: Sequence[onnx.NodeProto]
    inputs: dict[str, tuple[int, Sequence[object]]]
    outputs: dict[str, int]
    weights: dict[str, Any]
    calls: Sequence[dict[str, Any]]

    @property
    def proto(self) -> onnx.ModelProto:
        weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in self.weights.items()]
        outputs = [value(o, dtype) for o, dtype in self.outputs.items()]
        graph = helper.make_graph(self.nodes, "g", [value(n, *t) for n, t in self.inputs.items()], outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(f"{name}_y", FLOAT)])


def choice(condition: str, output: str, yes: onnx.GraphProto, no: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", [condition], [output], then_branch=yes, else_branch=no)


def body(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    """Takes v, gives w and collects `each`."""
    types = [value("i", INT64, []), value("go", BOOL, []), value("v", FLOAT)]
    return helper.make_graph(nodes, "body", types, [value("again", BOOL, []), value("w", FLOAT), value("each", FLOAT)])


def scanned(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    """Takes v and slices a and b, gives w and collects `each` and `other`."""
    types, results = [value(n, FLOAT) for n in "vab"], [value(n, FLOAT) for n in ("w", "each", "other")]
    return helper.make_graph(nodes, "scanned", types, results)


INNER = choice(
    "d", "yes_y", branch("a", node("MatMul", "x w", "a_y")),
    branch("b", node("Slice", "x zero two zero", "part"), node("MatMul", "part w", "b_y")),
)  # fmt: skip
DETECTOR = [
    node("Conv", "x k", "f", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "f", "g"), node("Conv", "g kb", "b"),
    node("Conv", "g ks", "s"), node("Reshape", "b as_boxes", "b1"), node("Transpose", "b1", "boxes", perm=[0, 2, 1]),
    node("Reshape", "s as_scores", "s1"), node("Sigmoid", "s1", "scores"),
    node("NonMaxSuppression", "boxes scores most overlap least", "rows"),
    node("Slice", "rows two three one", "at"), node("Squeeze", "at one", "places"),
    node("Gather", "boxes places", "picked", axis=1), node("Mul", "picked picked", "y"),
]  # fmt: skip
DETECTS = {
    "k": array(8, 3, 3, 3) / 5, "kb": array(4, 8, 1, 1), "ks": array(2, 8, 1, 1), "as_boxes": [0, 4, -1],
    "as_scores": [0, 2, -1], "most": [5], "overlap": np.array([0.5], "f4"), "least": np.array([0.5], "f4"), "one": [1],
    "two": [2], "three": [3],
}  # fmt: skip
MODELS = {
    "branches": Model(
        [choice("c", "z", branch("yes", INNER), branch("no", node("Concat", "x x", "xx", axis=0),
         node("MatMul", "xx w", "no_y"))), node("Softmax", "z", "y", axis=-1)],
        {"x": (FLOAT, ["n", 4]), "c": (BOOL, [1]), "d": (BOOL, [])}, {"y": FLOAT},
        {"w": array(4, 6), "zero": [0], "two": [2]},
        [{"x": array(n, 4), "c": np.array([c]), "d": np.array(d)} for n, c, d in
         ((3, True, True), (5, True, False), (8, False, False), (1, True, False))],
    ),
    "collected": Model(
        [helper.make_node("Loop", ["n", "on", "x"], ["y0", "z0"], body=body(
            node("Identity", "go", "again"), node("Add", "v v", "w"), node("Mul", "v x", "each"))),
         node("Neg", "y0", "y"), node("Relu", "z0", "z")],
        {"x": (FLOAT, ["k", 3]), "n": (INT64, [])}, {"y": FLOAT, "z": FLOAT}, {"on": True},
        [{"x": array(k, 3), "n": np.array(n)} for k, n in ((2, 3), (7, 5), (1, 1))],
    ),
    "grown": Model(
        [helper.make_node("Loop", ["", "on", "x"], ["y0", "z"], body=body(
            node("ReduceSum", "v", "s", keepdims=0), node("Reshape", "s one", "s1"),
            node("Concat", "v s1", "w", axis=0), node("ReduceSum", "w", "total", keepdims=0),
            node("Less", "total most", "again"),
            node("ReduceMax", "w", "each", keepdims=0))),
         node("Sqrt", "y0", "y")],
        {"x": (FLOAT, ["k"])}, {"y": FLOAT, "z": FLOAT}, {"on": True, "most": np.float32(100), "one": [1]},
        [{"x": np.abs(array(k)) + 1} for k in (2, 3, 40)],
    ),
    "scanned": Model(
        [helper.make_node("Scan", ["v", "x", "y"], ["last", "all", "others"], num_scan_inputs=2, scan_input_axes=[0, 1],
            scan_input_directions=[0, 1], scan_output_directions=[1, 0], body=scanned(
                node("MatMul", "v m", "vm"), node("Add", "vm a", "w"), node("Mul", "w b", "each"),
                node("Sub", "a b", "other"))),
         node("Slice", "all end most zero", "tail"), node("Squeeze", "tail zero", "z")],
        {"v": (FLOAT, [3]), "x": (FLOAT, ["t", 3]), "y": (FLOAT, [3, "t"])},
        dict.fromkeys(("last", "all", "others", "z"), FLOAT),
        {"m": array(3, 3), "end": [-1], "most": [9999], "zero": [0]},
        [{"v": array(3), "x": array(t, 3), "y": array(3, t)} for t in (4, 1, 9)],
    ),
    "places": Model(
        [node("Greater", "x zero", "c"), node("NonZero", "c", "n"), node("Transpose", "n", "t"),
         node("GatherND", "x t", "g"), node("Exp", "g", "y")],
        {"x": (FLOAT, ["a", 4])}, {"y": FLOAT, "n": INT64}, {"zero": np.float32(0)},
        [{"x": x} for x in (array(2, 4), -np.ones((3, 4), "f4"), array(9, 4))],
    ),
    "kept": Model(
        [node("ReduceMax", "x one", "m", keepdims=0), node("Greater", "m least", "c"),
         node("Compress", "x c", "k", axis=0), node("MatMul", "k w", "y"), node("Slice", "k one most zero", "rest"),
         node("Slice", "k zero last zero", "first"), node("Neg", "first", "z")],
        {"x": (FLOAT, ["a", 4])}, {"y": FLOAT, "rest": FLOAT, "z": FLOAT},
        {"one": [1], "least": np.float32(1), "w": array(4, 6), "most": [9999], "zero": [0], "last": [-1]},
        [{"x": x} for x in (array(12, 4), -np.ones((3, 4), "f4"), array(30, 4), 2 * np.eye(1, 4, dtype="f4"))],
    ),
    "rows": Model(
        [node("NonZero", "c", "n"), node("Transpose", "n", "t"), node("GatherND", "x t", "g"), node("Exp", "g", "e"),
         node("ReduceSum", "g", "total", keepdims=0), node("Slice", "e zero two zero", "first"),
         node("ScatterND", "x t e", "back"), node("Einsum", "g e", "joined", equation="ki,kj->ij")],
        {"x": (FLOAT, ["a", 4]), "c": (BOOL, ["a"])}, dict.fromkeys(("total", "first", "back", "joined"), FLOAT),
        {"zero": [0], "two": [2]},
        [{"x": array(len(c), 4), "c": np.array(c, bool)} for c in ([1, 0, 1, 1], [0, 0, 0], [0, 1])],
    ),
    "regions": Model(
        [node("NonZero", "c", "n"), node("Squeeze", "n zero", "places"), node("Gather", "boxes places", "b"),
         node("ReduceMax", "b one", "far", keepdims=0), node("Greater", "far least", "d"), node("NonZero", "d", "n2"),
         node("Squeeze", "n2 zero", "again"), node("Gather", "b again", "chosen"),
         node("Shape", "chosen", "count", end=1), node("ConstantOfShape", "count", "image",
              value=helper.make_tensor("v", INT64, [1], [0])),
         node("RoiAlign", "x chosen image", "y", output_height=2, output_width=2, sampling_ratio=2,
              spatial_scale=0.5)],
        {"x": (FLOAT, [1, 3, "h", "w"]), "boxes": (FLOAT, ["r", 4]), "c": (BOOL, ["r"])}, {"y": FLOAT},
        {"zero": [0], "one": [1], "least": np.float32(0)},
        [{"x": array(1, 3, h, w), "boxes": array(4, 4) * 20, "c": np.array(c, bool)}
         for h, w, c in ((8, 9, [1, 1, 0, 1]), (17, 5, [0, 0, 0, 0]), (12, 30, [1, 1, 1, 1]))]
        + [{"x": array(1, 3, 4, 4), "boxes": -np.ones((3, 4), "f4"), "c": np.ones(3, bool)}],
    ),
    "best": Model(
        [node("TopK", "x k", "v i", axis=1), node("Softmax", "v", "y", axis=1)],
        {"x": (FLOAT, ["n", 20]), "k": (INT64, [1])}, {"y": FLOAT, "i": INT64}, {},
        [{"x": array(n, 20), "k": np.array([k])} for n, k in ((3, 3), (1, 1), (2, 20))],
    ),
    "detector": Model(
        DETECTOR, {"x": (FLOAT, ["n", 3, "h", "w"])}, {"rows": INT64, "y": FLOAT}, DETECTS,
        [{"x": array(1, 3, h, w)} for h, w in ((16, 16), (24, 16), (8, 40))] + [{"x": np.zeros((1, 3, 8, 8), "f4")}],
    ),
}  # fmt: skip


class Built(NamedTuple):
    program: VMExecutable
    calls: list[tuple[dict[str, Any], list[np.ndarray]]]


@pytest.fixture(scope="module", params=MODELS)
def built(request: pytest.FixtureRequest) -> Built:
    model = MODELS[request.param]
    program = autosched.build(model.proto)
    assert isinstance(program, VMExecutable) and not program.symbolic
    reference = onnxruntime.InferenceSession(model.proto.SerializeToString())
    return Built(program, [(given, reference.run(None, given)) for given in model.calls])


def check(built: Any, calls: Sequence[tuple[dict[str, Any], list[np.ndarray]]]) -> None:
    for given, expected in calls:
        found = built(**given)
        for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)
            assert ours.dtype == str(theirs.dtype)


def test_built_once_for_all_calls(built: Built) -> None:
    before = counters.COMPILES.value
    check(built.program, built.calls)
    assert counters.COMPILES.value == before


def test_files_need_no_compiler(built: Built, tmp_path: Path) -> None:
    built.program.save(tmp_path / "model.asx")
    (tmp_path / "calls").write_bytes(pickle.dumps(built.calls))
    script = f"""
import pathlib, pickle, sys, autosched, numpy as np
folder = pathlib.Path({str(tmp_path)!r})
model = autosched.load(folder / "model.asx")
for given, expected in pickle.loads((folder / "calls").read_bytes()):
    found = model(**given)
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)
heavy = ("numba", "onnx", *(f"autosched.{{part}}" for part in ("codegen", "relax", "tir", "frontend")))
assert not [m for m in sys.modules if m.startswith(heavy)]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_calls_that_find_nothing() -> None:
    """Loops without steps, the 0 best."""
    run = autosched.build(MODELS["collected"].proto)
    y, z = run(array(4, 3), np.array(0))
    np.testing.assert_array_equal(y.numpy(), -array(4, 3))
    assert z.shape == (0, 4, 3)
    y, places = autosched.build(MODELS["best"].proto)(array(3, 20), np.array([0]))
    assert y.shape == places.shape == (3, 0)


def test_counts_that_are_none() -> None:
    run = autosched.build(MODELS["best"].proto)
    with pytest.raises(ValueError, match=r"\[-1\] of a call are no counts"):
        run(array(3, 20), np.array([-1]))
    with pytest.raises(ShapeError, match="is 21"):
        run(array(3, 20), np.array([21]))


def test_scans_over_open_lengths_in_an_old_opset() -> None:
    """Operators of the body are the model's own: softmax is one of all dimensions behind the first."""
    inside = scanned(
        node("Softmax", "a", "s"), node("ReduceSum", "s", "t", axes=[0, 1], keepdims=0), node("Add", "v t", "w"),
        node("Add", "s b", "each"), node("Sub", "a b", "other"),
    )  # fmt: skip
    scan = helper.make_node("Scan", ["v", "x", "y"], ["last", "all", "others"], num_scan_inputs=2, body=inside)
    given: dict[str, tuple[int, Sequence[object]]] = {
        "v": (FLOAT, [3]), "x": (FLOAT, ["t", 2, 2, 3]), "y": (FLOAT, ["u", 2, 2, 3])
    }  # fmt: skip
    calls = [{"v": array(3), "x": array(t, 2, 2, 3), "y": array(t, 2, 2, 3)} for t in (4, 1)]
    proto = Model([scan], given, dict.fromkeys(("last", "all", "others"), FLOAT), {}, calls).proto
    proto.opset_import[0].version = 11
    reference, run = onnxruntime.InferenceSession(proto.SerializeToString()), autosched.build(proto)
    assert isinstance(run, VMExecutable)
    check(run, [(call, reference.run(None, call)) for call in calls])
    for t, u in ((2, 3), (3, 2)):
        with pytest.raises(ShapeError, match="needs u == t"):
            run(v=array(3), x=array(t, 2, 2, 3), y=array(u, 2, 2, 3))


def test_parts_of_several_shapes() -> None:
    kept = Collected().append(autosched.nd.array(array(2))).append(autosched.nd.array(array(3)))
    with pytest.raises(ShapeError, match=r"parts of the shapes \[\[2\], \[3\]\]"):
        kept.stacked((2,), "float32")


def test_the_command_line_names_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.onnx").write_bytes(MODELS["places"].proto.SerializeToString())
    assert main(["build", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "model.asx")]) == 0
    assert "in 2 parts, between which the model branches, loops or learns sizes" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "model.asx"), "--shapes", "x:3x4", "--fill", "ones"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [["y", "12"], ["n", "2x12"]]
    for name in ("model.asx", "model.onnx"):
        assert main(["bench", str(tmp_path / name), "--shapes", "x:3x4", "--runs", "2", "--warmup", "1ms"]) == 0
        assert capsys.readouterr().out.splitlines()[-1].split()[0] == name
    if choose_threads() > 1:
        assert main(["bench", str(tmp_path / "model.asx"), "--shapes", "x:3x4", "--threads", "1"]) == 2
        assert "AUTOSCHED_NUM_THREADS=1" in capsys.readouterr().err
    assert main(["bench", str(tmp_path / "model.asx")]) == 2
    assert "the size 'a' of the inputs is not known" in capsys.readouterr().err


def test_bounds_hold() -> None:
    run = autosched.build(MODELS["places"].proto, shapes={"x": (range(2, 6), 4)})
    assert isinstance(run, VMExecutable)
    check(run, [({"x": np.eye(5, 4, dtype="f4")}, [np.full(4, np.e, "f4"), np.stack(np.nonzero(np.eye(4)))])])
    with pytest.raises(ShapeError, match="'a' is 6, and the model is built for 2 to 5"):
        run(np.ones((6, 4), "f4"))
