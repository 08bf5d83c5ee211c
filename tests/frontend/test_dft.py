"""Fourier transforms of ONNX models: as products, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched.driver.build.late import LateModel
from autosched.runtime import Executable
from tests.spread import cover

RNG = np.random.default_rng(0)


def model(x: np.ndarray, length: int | None, axis: int, opset: int, **attrs: Any) -> onnx.ModelProto:
    weights = {} if length is None else {"length": np.array(length, "i8")}
    names = ["x", "" if length is None else "length"]
    if opset >= 20:
        weights["axis"] = np.array(axis, "i8")
        names.append("axis")
    else:
        attrs["axis"] = axis
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("DFT", names, ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def expected(x: np.ndarray, length: int | None, axis: int, inverse: int = 0, onesided: int = 0) -> np.ndarray:
    z = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    found = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis)
    if onesided:
        found = np.take(found, np.arange((length or x.shape[axis]) // 2 + 1), axis)
    return np.stack([found.real, found.imag], -1)


@cover(
    ("shape, length, axis, attrs", [
        ((2, 5, 7, 2), None, 1, {}), ((2, 5, 7, 2), 9, 2, {}), ((2, 5, 7, 1), 3, 1, {}), ((6, 1), 6, 0, {}),
        ((3, 16, 1), None, 1, {"onesided": 1}), ((3, 7, 1), 12, 1, {"onesided": 1}), ((1, 1, 2), None, 1, {}),
        ((2, 5, 7, 2), None, 0, {"inverse": 1}), ((5, 7, 2), 9, 1, {"inverse": 1}), ((400, 2), None, 0, {}),
    ]),
    ("dtype", ["float32", "float64"]),
    together=1,
)  # fmt: skip
def test_products_are_transforms(
    shape: tuple[int, ...], length: int | None, axis: int, attrs: dict[str, int], dtype: str
) -> None:
    x = RNG.standard_normal(shape).astype(dtype)
    want = expected(x, length, axis, **attrs)
    for opset, place in ((17, axis), (20, axis - len(shape))):
        built = autosched.build(model(x, length, place, opset, **attrs), target="cpu", threads=1)
        assert isinstance(built, Executable)
        found = built(x).numpy()
        assert found.dtype == dtype and found.shape == want.shape
        np.testing.assert_allclose(found, want, atol=(1e-6 if dtype == "float32" else 1e-14) * np.abs(want).max())


def test_long_and_narrow_ones_are_a_librarys() -> None:
    for x in (RNG.standard_normal((3000, 2)).astype("f4"), RNG.standard_normal((8, 2)).astype("f2")):
        built = autosched.build(model(x, None, 0, 17), target="cpu", threads=1)
        assert isinstance(built, LateModel) and [call.op_name for call in built.calls] == ["DFT"]
        found = built(x).numpy()
        np.testing.assert_allclose(found, expected(x, None, 0), atol=1e-4 * 3000 if x.dtype == "f4" else 0.05)


def frames_model(
    x: np.ndarray, size: int | str, step: int, window: np.ndarray | None, length: int | None, **attrs: Any
) -> Any:
    weights = {"step": np.array(step, "i8")}
    weights |= {} if window is None else {"window": window}
    weights |= {} if length is None else {"length": np.array(length, "i8")}
    names = ["x", "step", "" if window is None else "window", "" if length is None else "length"]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("STFT", names, ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", kind, (x.shape[0], size, x.shape[2]))],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def expected_frames(x: np.ndarray, step: int, window: np.ndarray | None, length: int, onesided: int) -> np.ndarray:
    z = x[..., 0].astype("f8") + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    frames = np.lib.stride_tricks.sliding_window_view(z, length, axis=1)[:, ::step]
    found = np.fft.fft(frames * (1 if window is None else window.astype("f8")))
    found = found[..., : length // 2 + 1] if onesided else found
    return np.stack([found.real, found.imag], -1)


@cover(
    (
        "parts, step, windowed, length, onesided",
        [(1, 7, True, 32, 1), (1, 1, False, 5, 0), (2, 16, True, 16, 0), (1, 40, True, 128, 1), (1, 9, False, 200, 1)],
    ),
    ("dtype", ["float32", "float64"]),
    together=1,
)
def test_frames(parts: int, step: int, windowed: bool, length: int, onesided: int, dtype: str) -> None:
    x = RNG.standard_normal((2, 200, parts)).astype(dtype)
    window = np.hanning(length).astype(dtype) if windowed else None
    want = expected_frames(x, step, window, length, onesided)
    for size in (200, "samples"):
        proto = frames_model(x, size, step, window, None if windowed else length, onesided=onesided)
        built = autosched.build(proto, target="cpu", threads=1)
        found = built(x).numpy()
        assert found.dtype == dtype and found.shape == want.shape
        np.testing.assert_allclose(found, want, atol=(2e-6 if dtype == "float32" else 1e-14) * np.abs(want).max())


def test_frames_of_real_signals_without_a_dimension_of_parts() -> None:
    x, window = RNG.standard_normal((2, 200)).astype("f4"), np.hanning(32).astype("f4")
    proto = frames_model(x[..., None], 200, 8, window, None)
    del proto.graph.input[0].type.tensor_type.shape.dim[2]
    want = expected_frames(x[..., None], 8, window, 32, 1)
    np.testing.assert_allclose(autosched.build(proto, threads=1)(x).numpy(), want, atol=2e-6 * np.abs(want).max())


def test_frames_of_signals_that_are_too_short_or_complex_are_a_librarys() -> None:
    x = RNG.standard_normal((1, 64, 1)).astype("f4")
    built = autosched.build(frames_model(x, 64, 8, None, 3000), target="cpu", threads=1)
    assert isinstance(built, LateModel) and [call.op_name for call in built.calls] == ["STFT"]
