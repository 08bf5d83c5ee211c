"""ONNX operators that put elements at places: caches that an update is written to, pooling turned around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autosched
from autosched.driver.build.late import LateModel
from autosched.errors import AutoschedError, ImportModelError, IndexOutOfRangeError
from autosched.frontend.onnx import from_onnx
from autosched.runtime import Executable
from tests.spread import cover

RNG = np.random.default_rng(0)


def model(op: str, arrays: list[np.ndarray], opset: int, known: tuple[int, ...] = (), **attrs: Any) -> onnx.ModelProto:
    """`known` inputs are the model's own."""
    names = [f"x{i}" for i in range(len(arrays))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for i, (n, a) in enumerate(zip(names, arrays, strict=True))
            if i not in known
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(arrays[i], names[i]) for i in known],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def check(made: onnx.ModelProto, *arrays: np.ndarray) -> None:
    """A build is one of kernels and gives what the reference does."""
    feed = {v.name: a for v, a in zip(made.graph.input, arrays, strict=True)}
    (want,) = ReferenceEvaluator(made).run(None, feed)
    built = autosched.build(made, target="cpu", threads=1)
    assert isinstance(built, Executable) or not built.calls
    found = built(*arrays).numpy()
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def numbers(dtype: str, *shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 9).astype(dtype)


# --- TensorScatter ---------------------------------------------------------------------------------------------------


@cover(
    (
        "shape, count, axis, mode, starts",
        [
            ((2, 3, 7, 5), 2, -2, "linear", [5, 0]), ((2, 3, 7, 5), 3, -2, "circular", [6, -15]),
            ((3, 4, 2), 1, 1, "linear", [3, 1, 0]), ((3, 9), 4, 1, "circular", [8, 9, 1]),
            ((2, 3, 5, 2), 5, 2, "linear", [0, 0]), ((2, 3, 5, 2), 5, 2, "circular", [1, 4]),
            ((2, 3, 5), 2, -1, "linear", None), ((2, 3, 5), 0, -1, "linear", [0, 1]),
        ],
    ),
    ("dtype", ["float32", "float64", "float16", "int8", "bool"]),
    together=1,
)  # fmt: skip
def test_updates_of_caches(
    shape: tuple[int, ...], count: int, axis: int, mode: str, starts: list[int] | None, dtype: str
) -> None:
    new = [count if d == axis % len(shape) else n for d, n in enumerate(shape)]
    arrays = [numbers(dtype, *shape), numbers(dtype, *new), *([] if starts is None else [np.array(starts)])]
    check(model("TensorScatter", arrays, 24, mode=mode, axis=axis), *arrays)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_caches_of_open_sizes_are_built_once(mode: str) -> None:
    arrays = [numbers("float32", 2, 3, 7, 5), numbers("float32", 2, 3, 2, 5), np.array([1, 4])]
    for given in (arrays, arrays[:2]):
        made = model("TensorScatter", given, 24, mode=mode)
        for value, names in zip(made.graph.input, (("batch", None, "places"), ("batch", None, "new"), ("batch",))):
            for dim, name in zip(value.type.tensor_type.shape.dim, names):
                if name:
                    dim.dim_param = name
        built = autosched.build(made, target="cpu", threads=1)
        assert not isinstance(built, LateModel)
        for n, places, new in ((1, 7, 2), (2, 5, 1), (2, 7, 1), (2, 6, 2)):
            part = [given[0][:n, :, :places], given[1][:n, :, :new], *(a[:n] for a in given[2:])]
            (want,) = ReferenceEvaluator(made).run(None, {f"x{i}": a for i, a in enumerate(part)})
            np.testing.assert_array_equal(built(*part).numpy(), want)
        wrong = [given[0][:, :, :1], given[1], *given[2:]]
        with pytest.raises(AutoschedError):
            built(*wrong)


def test_a_cache_of_no_batch() -> None:
    arrays = [numbers("float32", 0, 3, 7, 5), numbers("float32", 0, 3, 2, 5), np.zeros(0, np.int64)]
    check(model("TensorScatter", arrays, 24), *arrays)


@pytest.mark.parametrize("start", [6, -1])
def test_starts_out_of_range_are_reported(start: int) -> None:
    arrays = [numbers("float32", 1, 7, 5), numbers("float32", 1, 2, 5), np.array([start])]
    built = autosched.build(model("TensorScatter", arrays, 24), target="cpu", threads=1)
    with pytest.raises(IndexOutOfRangeError, match=f"index {start} is out of range"):
        built(*arrays)


def test_updates_that_do_not_fit_are_refused() -> None:
    for new in ((1, 8, 5), (1, 2, 4), (2, 2, 5)):
        arrays = [numbers("float32", 1, 7, 5), numbers("float32", *new), np.array([0])]
        with pytest.raises(ImportModelError):
            from_onnx(model("TensorScatter", arrays, 24))


def test_caches_as_onnx_runtime() -> None:
    ort = pytest.importorskip("onnxruntime")
    arrays = [numbers("float16", 2, 3, 7, 5), numbers("float16", 2, 3, 3, 5), np.array([6, 3])]
    made = model("TensorScatter", arrays, 24, mode="circular")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {f"x{i}": a for i, a in enumerate(arrays)})
    np.testing.assert_array_equal(autosched.build(made, target="cpu", threads=1)(*arrays).numpy(), want)


# --- MaxUnpool -------------------------------------------------------------------------------------------------------


def pooled(shape: tuple[int, ...], dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Maxima of windows of two side by side, and where they lie in the flattened image."""
    x = numbers("float32", *shape)
    cut = tuple(slice(n) if d < 2 else slice(n // 2 * 2) for d, n in enumerate(shape))
    numbered = np.arange(x.size).reshape(shape)[cut]
    parts = [n for d, s in enumerate(numbered.shape) for n in ((s,) if d < 2 else (s // 2, 2))]
    order = [0, 1, *range(2, len(parts), 2), *range(3, len(parts), 2)]
    windows = numbered.reshape(parts).transpose(order)
    windows = windows.reshape(*windows.shape[: len(shape)], -1)
    best = np.take_along_axis(windows, x.reshape(-1)[windows].argmax(-1)[..., None], -1)[..., 0]
    return x.reshape(-1)[best].astype(dtype), best.astype(np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(2, 3, 6, 8), (1, 2, 10), (1, 2, 4, 6, 2), (1, 1, 2, 2)])
def test_pooling_turned_around(shape: tuple[int, ...], dtype: str) -> None:
    values, places = pooled(shape, dtype)
    window = [2] * (len(shape) - 2)
    for opset in (11, 22):
        made = model("MaxUnpool", [values, places], opset, kernel_shape=window, strides=window)
        check(made, values, places)


def test_a_shape_of_the_result() -> None:
    values, places = pooled((2, 3, 6, 8))
    arrays = [values, places, np.array([2, 3, 7, 9])]
    made = model("MaxUnpool", arrays, 22, (2,), kernel_shape=[2, 2], strides=[2, 2])
    check(made, values, places)
    built = autosched.build(model("MaxUnpool", arrays, 22, kernel_shape=[2, 2], strides=[2, 2]), target="cpu")
    assert isinstance(built, LateModel)  # the shape is an input
    (want,) = ReferenceEvaluator(made).run(None, {"x0": values, "x1": places})
    np.testing.assert_array_equal(built(*arrays).numpy(), want)
    arrays[2] = np.array([2, 3, 5, 9])
    with pytest.raises(ImportModelError, match="were pooled from"):
        from_onnx(model("MaxUnpool", arrays, 22, (2,), kernel_shape=[2, 2], strides=[2, 2]))


def test_padding_of_the_pool_and_no_images() -> None:
    places = np.array([[[[0, 3], [9, 11]]]])
    values = numbers("float32", 1, 1, 2, 2)
    made = model("MaxUnpool", [values, places], 22, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 0, 1])
    check(made, values, places)
    values, places = numbers("float32", 0, 1, 2, 2), np.zeros((0, 1, 2, 2), np.int64)
    check(model("MaxUnpool", [values, places], 22, kernel_shape=[2, 2], strides=[2, 2]), values, places)


@pytest.mark.parametrize("wrong", [16, -1])
def test_places_out_of_range_are_reported(wrong: int) -> None:
    values, places = pooled((1, 1, 4, 4))
    built = autosched.build(
        model("MaxUnpool", [values, places], 22, kernel_shape=[2, 2], strides=[2, 2]), target="cpu", threads=1
    )
    places[0, 0, 1, 1] = wrong
    with pytest.raises(AutoschedError, match=f"index {wrong} is out of range"):
        built(values, places)


# --- GPUs ------------------------------------------------------------------------------------------------------------


def cache() -> onnx.ModelProto:
    return model("TensorScatter", [numbers("float32", 2, 5, 3), numbers("float32", 2, 2, 3), np.array([1, 3])], 24)


def unpool() -> onnx.ModelProto:
    return model("MaxUnpool", [*pooled((1, 2, 6, 4))], 22, kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("make", [cache, unpool])
def test_their_kernels_for_a_gpu(make: Callable[[], onnx.ModelProto]) -> None:
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
    pytest.importorskip("torch", reason="the networks beside it are written in PyTorch")
    from autosched.driver import extract_tasks
    from tests.cuda_networks import TARGET, problems_of

    tasks = extract_tasks(from_onnx(make()), TARGET)
    assert tasks and not [problem for task in tasks for problem in problems_of(task)]
