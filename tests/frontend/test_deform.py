"""Deformable convolutions of ONNX models, against sums written out and against ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autosched
from autosched import relax
from autosched.driver.build.late import LateModel
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.ir import IRModule
from autosched.runtime import Executable
from autosched.tir.evaluate import evaluate

RNG = np.random.default_rng(0)


def model(arrays: list[np.ndarray | None], opset: int = 19, **attrs: Any) -> onnx.ModelProto:
    """Weights and bias are the model's own."""
    names = ["" if a is None else n for n, a in zip(("x", "w", "offset", "b", "mask"), arrays)]
    graph = helper.make_graph(
        [helper.make_node("DeformConv", names, ["y"], **attrs)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays)
            if a is not None and n not in ("w", "b")
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, n) for n, a in zip(names, arrays) if a is not None and n in ("w", "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def draw(
    size: tuple[int, ...], channels: int, results: int, dtype: str = "float32", n: int = 2, spread: float = 1.5,
    parts: str = "bm", kernel: int = 3, **attrs: Any,
) -> tuple[list[np.ndarray | None], dict[str, Any]]:  # fmt: skip
    """Arrays for an operator of these attributes, which have a number for all dimensions."""
    rank, groups, offset_groups = len(size), attrs.get("group", 1), attrs.get("offset_group", 1)
    stride, pad, dilation = attrs.get("strides", 1), attrs.get("pads", 0), attrs.get("dilations", 1)
    found = tuple((s + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for s in size)
    taps = kernel**rank

    def numbers(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (RNG.standard_normal(shape) * scale).astype(dtype)

    arrays: list[np.ndarray | None] = [
        numbers(n, channels, *size), numbers(results, channels // groups, *[kernel] * rank, scale=0.3),
        numbers(n, offset_groups * taps * rank, *found, scale=spread),
        numbers(results) if "b" in parts else None,
        RNG.random((n, offset_groups * taps, *found)).astype(dtype) if "m" in parts else None,
    ]  # fmt: skip
    counts = {"strides": rank, "pads": 2 * rank, "dilations": rank}
    return arrays, {name: [v] * counts[name] if name in counts else v for name, v in attrs.items()}


def evaluated(module: IRModule, inputs: dict[str, np.ndarray]) -> np.ndarray:
    found = relax.evaluate(module, inputs, run_tir=lambda func, values: evaluate(func, values)[0])
    assert isinstance(found, np.ndarray)
    return found


def expected(arrays: list[np.ndarray | None], **attrs: Any) -> np.ndarray:
    """Tap by tap, in float64."""
    x, w, offset, b, mask = (None if a is None else a.astype("float64") for a in arrays)
    assert x is not None and w is not None and offset is not None
    (n, channels, *size), (results, per_group, *kernel), found = x.shape, w.shape, offset.shape[2:]
    rank, groups, offset_groups = len(size), attrs.get("group", 1), attrs.get("offset_group", 1)
    strides, dilations = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    pads = attrs.get("pads", [0] * 2 * rank)
    offset = offset.reshape(n, offset_groups, *kernel, rank, *found)
    mask = (
        np.ones((n, offset_groups, *kernel, *found))
        if mask is None
        else mask.reshape(n, offset_groups, *kernel, *found)
    )
    y = np.zeros((n, results, *found)) + (0 if b is None else b.reshape(-1, *[1] * rank))
    for image, c, tap in itertools.product(range(n), range(channels), np.ndindex(*kernel)):
        own = c // (channels // offset_groups)
        column = np.zeros(found)
        for place in np.ndindex(*found):
            at = [
                place[d] * strides[d] - pads[d] + tap[d] * dilations[d] + offset[(image, own, *tap, d, *place)]
                for d in range(rank)
            ]
            low = [int(np.floor(p)) for p in at]
            for side in itertools.product((0, 1), repeat=rank):
                corner = [f + s for f, s in zip(low, side)]
                if all(0 <= i < s for i, s in zip(corner, size)):
                    share = np.prod([1 - abs(p - i) for p, i in zip(at, corner)])
                    column[place] += x[(image, c, *corner)] * share
        column *= mask[(image, own, *tap)]
        group = c // per_group
        rows = slice(group * results // groups, (group + 1) * results // groups)
        y[image, rows] += w[rows, c % per_group][(slice(None), *tap)].reshape(-1, *[1] * rank) * column
    return y


CASES = [
    ((6, 5), 4, 8, {"pads": 1}), ((7, 9), 4, 6, {"strides": 2, "pads": 1, "offset_group": 2}),
    ((8, 7), 6, 4, {"dilations": 2, "group": 2, "parts": "m"}), ((5, 6), 6, 6, {"group": 3, "offset_group": 2}),
    ((5, 5), 5, 5, {"group": 5, "pads": 1}), ((6, 4), 4, 4, {"group": 4, "offset_group": 2, "parts": ""}),
    ((5, 5), 3, 2, {"kernel": 1, "parts": "b"}), ((1, 1), 2, 2, {"pads": 1}), ((9,), 4, 3, {"pads": 1}),
    ((4, 5, 3), 2, 4, {"offset_group": 2, "pads": 1, "n": 1}), ((6, 5), 2, 2, {"spread": 40.0, "pads": 2}),
]  # fmt: skip


@pytest.mark.parametrize("size, channels, results, attrs", CASES)
def test_taps_are_summed(size: tuple[int, ...], channels: int, results: int, attrs: dict[str, Any]) -> None:
    arrays, attrs = draw(size, channels, results, **attrs)
    made = from_onnx(model(arrays, **attrs))
    relax.verify(made)
    found = evaluated(
        made, {n: a for n, a in zip(["x", "w", "offset", "b", "mask"], arrays) if n not in "wb" and a is not None}
    )
    np.testing.assert_allclose(found, expected(arrays, **attrs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, limit", [("float32", 1e-5), ("float64", 1e-12), ("float16", 2e-2)])
def test_a_build_is_one_of_kernels(dtype: str, limit: float) -> None:
    arrays, attrs = draw((6, 7), 4, 6, dtype, pads=1, offset_group=2)
    for opset in (19, 22):
        built = autosched.build(model(arrays, opset, **attrs), target="cpu", threads=1)
        assert isinstance(built, Executable)
        found = built(arrays[0], arrays[2], arrays[4]).numpy()
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected(arrays, **attrs), rtol=limit, atol=limit)


@pytest.mark.parametrize("size, channels, results, attrs", CASES[:4] + CASES[-1:])
def test_as_onnx_runtime(size: tuple[int, ...], channels: int, results: int, attrs: dict[str, Any]) -> None:
    ort = pytest.importorskip("onnxruntime")
    arrays, attrs = draw(size, channels, results, **attrs)
    made = model(arrays, **attrs)
    feed = {n: a for n, a in zip(["x", "w", "offset", "b", "mask"], arrays) if n not in "wb" and a is not None}
    want = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)[0]
    np.testing.assert_allclose(evaluated(from_onnx(made), feed), want, rtol=1e-4, atol=1e-4)


def test_what_lies_outside_is_zero_and_what_is_no_number_stays_one() -> None:
    """Positions that no integer holds too, beside elements that are infinite."""
    arrays, attrs = draw((3, 3), 1, 1, kernel=1, n=1, parts="")
    x, w, offset = arrays[:3]
    assert x is not None and w is not None and offset is not None
    x[:], w[:] = np.inf, 1.0
    offset[:] = np.array([3e38, -3e38, -1, 3, 1e10, -1e10, -2.5, 7.5, 0], "f4").reshape(3, 3)
    offset[0, 0, 2, 2], offset[0, 1, 2, 2] = np.nan, 0
    built = autosched.build(model(arrays, **attrs), target="cpu", threads=1)
    found = built(x, offset).numpy().reshape(-1)
    assert np.isnan(found[-1]) and not found[[0, 1, 4, 5, 6, 7]].any()


def test_other_shapes_are_refused_or_a_librarys() -> None:
    arrays, attrs = draw((6, 5), 4, 8, pads=1)
    arrays[2] = arrays[2][:, :, :-1] if arrays[2] is not None else None
    with pytest.raises(ImportModelError, match="input 2 has shape"):
        from_onnx(model(arrays, **attrs))
    arrays, attrs = draw((6, 5), 4, 8, n=0, pads=1)
    built = autosched.build(model(arrays, **attrs), target="cpu", threads=1)
    assert built(arrays[0], arrays[2], arrays[4]).numpy().shape == (0, 8, 6, 5)


def test_sizes_that_only_a_call_knows() -> None:
    arrays, attrs = draw((6, 5), 4, 8, pads=1)
    made = model(arrays, **attrs)
    for value in made.graph.input:
        for d in (0, 2, 3):
            value.type.tensor_type.shape.dim[d].Clear()
    built = autosched.build(made, target="cpu", threads=1)
    assert isinstance(built, LateModel)
    found = built(arrays[0], arrays[2], arrays[4]).numpy()
    np.testing.assert_allclose(found, expected(arrays, **attrs), rtol=1e-4, atol=1e-4)


def test_its_kernels_for_a_gpu() -> None:
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
    pytest.importorskip("torch", reason="the networks beside it are written in PyTorch")
    from autosched.driver import extract_tasks
    from tests.cuda_networks import TARGET, problems_of

    arrays, attrs = draw((4, 5), 4, 8, n=1, pads=1)
    tasks = extract_tasks(from_onnx(model(arrays, **attrs)), TARGET)
    assert not [problem for task in tasks for problem in problems_of(task)]
