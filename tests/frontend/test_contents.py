"""Models of unknown origin: what does not fit is refused in one line that names the node, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched import relax
from autosched.driver.build.graph import prepare
from autosched.errors import AutoschedError, ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.frontend.onnx.model_file import read_model
from autosched.target import Target

TARGET = Target("llvm -mcpu=x86-64-v3")


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def node(op: str, *inputs: str, out: Sequence[str] = ("y",), **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(out), **attrs)


def model(shape: Sequence[int], nodes: Sequence[onnx.NodeProto], **weights: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


IMAGE, KERNEL = (1, 3, 8, 8), {"w": np.zeros((4, 3, 3, 3), "f")}
SLICE = node("Slice", "x", "a", "b", "c", "d")
BAD: Mapping[str, tuple[Any, str]] = {
    "stride of 0": (model(IMAGE, [node("Conv", "x", "w", strides=[0, 1])], **KERNEL), r"strides \[0, 1\]"),
    "negative stride": (model(IMAGE, [node("MaxPool", "x", kernel_shape=[2, 2], strides=[-1, 1])]), "strides"),
    "few strides": (model(IMAGE, [node("Conv", "x", "w", strides=[1])], **KERNEL), "strides"),
    "negative pads": (model(IMAGE, [node("MaxPool", "x", kernel_shape=[2, 2], pads=[-1, 0, 0, 0])]), "pads"),
    "another kernel": (model(IMAGE, [node("Conv", "x", "w", kernel_shape=[5, 5])], **KERNEL), "kernel_shape"),
    "no such auto_pad": (model(IMAGE, [node("Conv", "x", "w", auto_pad="SAME")], **KERNEL), "auto_pad 'SAME'"),
    "groups": (model(IMAGE, [node("Conv", "x", "w", group=0)], **KERNEL), "0 groups"),
    "step of 0": (model((8,), [SLICE], a=ints(0), b=ints(8), c=ints(0), d=ints(0)), "steps"),
    "axis of a slice": (model((8,), [SLICE], a=ints(0), b=ints(8), c=ints(3), d=ints(1)), "axis 3"),
    "nothing is left": (model((8,), [SLICE], a=ints(5), b=ints(2), c=ints(0), d=ints(1)), "no elements"),
    "sizes of a split": (model((8,), [node("Split", "x", "s", out=("y", "z"))], s=ints(3, 3)), r"sizes \[3, 3\]"),
    "negative split": (model((8,), [node("Split", "x", "s", out=("y", "z"))], s=ints(-1, 9)), "sizes"),
    "many pieces": (model((3,), [node("Split", "x", out=tuple("yabc"), num_outputs=4)]), "4 pieces"),
    "huge pad": (model((8,), [node("Pad", "x", "p")], p=ints(2**62, 2**62)), "larger than any memory"),
    "pad of few": (model((8,), [node("Pad", "x", "p")], p=ints(1)), "1 widths"),
    "huge expand": (model((1,), [node("Expand", "x", "s")], s=ints(2**40, 2**22)), "larger than any memory"),
    "negative expand": (model((1,), [node("Expand", "x", "s")], s=ints(-3)), "Expand"),
    "huge tile": (model((4,), [node("Tile", "x", "s")], s=ints(2**61)), "larger than any memory"),
    "negative tile": (model((4,), [node("Tile", "x", "s")], s=ints(-1)), "negative size"),
    "huge constant": (model((4,), [node("ConstantOfShape", "s")], s=ints(2**35)), "is not made at import"),
    "huge range": (model((4,), [node("Range", "a", "b", "c")], a=0, b=2**50, c=1), "is not made at import"),
    "range that stands": (model((4,), [node("Range", "a", "b", "c")], a=0, b=5, c=0), "steps of 0"),
    "flatten": (model((4, 4), [node("Flatten", "x", axis=9)]), "axis 9"),
    "softmax": (model((4, 4), [node("Softmax", "x", axis=-3)]), "axis -3"),
    "the -1 best": (model((4,), [node("TopK", "x", "k", out=("y", "i"))], k=ints(-1)), "-1 best"),
    "blocks of 0": (model((1, 4, 4, 4), [node("DepthToSpace", "x", blocksize=0)]), "blocks of 0"),
    "norm over 0": (model((1, 4, 4, 4), [node("LRN", "x", size=0)]), "0 channels"),
    "image of nothing": (
        model((1, 3, 4, 4), [node("Resize", "x", "", "s")], s=np.array([1, 1, 0, 0], "f")),
        r"scales of \[1.0, 1.0, 0.0, 0.0\]",
    ),
    "scale that is no number": (
        model((1, 3, 4, 4), [node("Resize", "x", "", "s")], s=np.array([1, 1, np.nan, 1], "f")), "Resize",
    ),
    "no such type": (model((4,), [node("Cast", "x", to=99)]), "Cast"),
    "text for a number": (model((4, 4), [node("Flatten", "x", axis="one")]), "'axis' is no INT but STRING"),
    "needed attribute": (model((4,), [node("Cast", "x")]), "'to' is missing"),
    "needed input": (model((4,), [node("Add", "x")]), "1 inputs, 2 needed"),
    "70 dimensions": (model([1] * 70, [node("Relu", "x")]), "70 dimensions"),
    "an axis of none": (model((2, 3), [node("Hardmax", "x", axis=2)]), "axis 2 of 2 dimensions"),
    "70 dimensions made": (model((1,), [node("Unsqueeze", "x", "a")], a=ints(*range(70))), "71 dimensions"),
    "dimension of 0": (model((0, 3), [node("Relu", "x")]), "shape 0x3 has no elements"),
    "a shape that doubles": (
        model((2,), [
            node("Shape", "x", out=("s0",)),
            *(node("Concat", f"s{n}", f"s{n}", out=(f"s{n + 1}",), axis=0) for n in range(60)),
            node("Cast", "s60", to=1),
        ]),
        "larger than any memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name: str) -> None:
    made, part = BAD[name]
    with pytest.raises(AutoschedError, match=part) as caught:
        prepare(from_onnx(made), TARGET, {})
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_the_sum_of_nothing_is_zero() -> None:
    made = model(
        (8,), [node("Slice", "x", "a", "b", out="s"), node("ReduceSum", "s", keepdims=0)], a=ints(5), b=ints(2)
    )
    assert relax.evaluate(from_onnx(made), {"x": np.ones(8, "f4")}) == 0


def test_a_size_of_zero_is_no_open_one() -> None:
    with pytest.raises(ImportModelError, match="2x3 does not fit"):
        from_onnx(model((0, 3), [node("Relu", "x")]), {"x": (2, 3)})


def test_the_last_piece_of_an_uneven_split_is_smaller() -> None:
    split = node("Split", "x", out=("a", "b", "c"), num_outputs=3)
    module = from_onnx(model((8,), [split, node("Concat", "c", "a", axis=0)]))
    assert module["main"].ret_struct_info.static_shape == (5,)


@pytest.mark.parametrize(
    ("dims", "data", "kind"),
    [((3, 3), bytes(12), 1), ((3,), bytes(13), 1), ((3,), bytes(12), 0), ((-3,), bytes(12), 1)],
)
def test_tensors_whose_bytes_do_not_fit(dims: tuple[int, ...], data: bytes, kind: int) -> None:
    made = model((3,), [node("Add", "x", "w")])
    made.graph.initializer.add(name="w", dims=dims, raw_data=data, data_type=kind)
    with pytest.raises(ImportModelError, match="tensor 'w'"):
        from_onnx(made)


def test_two_thousand_nodes_and_inputs() -> None:
    chain = [node("Relu", f"v{n}" if n else "x", out=(f"v{n + 1}" if n < 1999 else "y",)) for n in range(2000)]
    prepare(from_onnx(model((4,), chain)), TARGET, {})
    prepare(from_onnx(model((4,), [node("Concat", *["x"] * 2000, axis=0)])), TARGET, {})


def test_a_value_that_is_used_twice_sixty_times() -> None:
    doubled = [node("Add", *[f"v{n}" if n else "x"] * 2, out=(f"v{n + 1}" if n < 59 else "y",)) for n in range(60)]
    prepare(from_onnx(model((4,), doubled)), TARGET, {})


def external(folder: Path, location: str) -> Path:
    made = model((4,), [node("Add", "x", "w")])
    tensor = made.graph.initializer.add(name="w", dims=[4], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_external_data_lies_in_the_model_s_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "parts" / "w").write_bytes(np.arange(4, dtype="f").tobytes())
    module = from_onnx(read_model(external(folder, "parts/w")))
    assert "main" in [gv.name for gv in module.functions]
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "way").symlink_to(tmp_path)
    for location in (
        "../secret",
        str(tmp_path / "secret"),
        "parts/../../secret",
        "link",
        "way/secret",
        "",
        "parts/w\0",
    ):
        with pytest.raises(ImportModelError, match="of the model's folder"):
            read_model(external(folder, location))
