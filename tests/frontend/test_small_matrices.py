"""Determinants and mel matrices of ONNX models, against onnx's reference and NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autosched
from autosched import relax
from autosched.driver.build.late import LateModel
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.runtime import Executable
from tests.spread import cover

RNG = np.random.default_rng(0)


def det(x: np.ndarray, opset: int = 22) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Det", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [onnx.ValueInfoProto(name="y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@cover(
    ("dtype, limit", [("float32", 1e-5), ("float64", 1e-13), ("float16", 1e-2)]),
    ("shape", [(1, 1), (2, 2), (7, 3, 3), (2, 5, 4, 4), (3, 1, 1)]),
    together=1,
)
def test_small_determinants(shape: tuple[int, ...], dtype: str, limit: float) -> None:
    x = RNG.standard_normal(shape).astype(dtype)
    for opset in (11, 22):
        built = autosched.build(det(x, opset), target="cpu", threads=1)
        assert isinstance(built, Executable)
        found = built(x).numpy()
        assert found.dtype == dtype and found.shape == shape[:-2]
        np.testing.assert_allclose(found, np.linalg.det(x.astype("f8")), rtol=limit, atol=limit)


def test_exact_where_numbers_are_small_integers() -> None:
    x = RNG.integers(-4, 5, (50, 4, 4)).astype("f4")
    x[0, 1] = x[0, 2]
    found = autosched.build(det(x), target="cpu", threads=1)(x).numpy()
    assert found[0] == 0
    np.testing.assert_array_equal(found, np.round(np.linalg.det(x.astype("f8"))))


def test_larger_ones_are_a_librarys() -> None:
    x = RNG.standard_normal((2, 6, 6)).astype("f4")
    built = autosched.build(det(x), target="cpu", threads=1)
    assert isinstance(built, LateModel)
    np.testing.assert_allclose(built(x).numpy(), np.linalg.det(x), rtol=1e-4)
    empty = np.zeros((0, 3, 3), "f4")
    assert autosched.build(det(empty), target="cpu", threads=1)(empty).numpy().shape == (0,)


def test_determinants_for_a_gpu() -> None:
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
    pytest.importorskip("torch", reason="the networks beside it are written in PyTorch")
    from autosched.driver import extract_tasks
    from tests.cuda_networks import TARGET, problems_of

    tasks = extract_tasks(from_onnx(det(np.zeros((5, 3, 3), "f4"))), TARGET)
    assert tasks and not [problem for task in tasks for problem in problems_of(task)]


def mel(
    bands: int, length: int, rate: int, low: float, high: float, kind: int = TensorProto.FLOAT, known: bool = True
) -> onnx.ModelProto:
    arrays = {"bands": np.array(bands), "length": np.array(length), "rate": np.array(rate)}
    arrays |= {"low": np.array(low, "f4"), "high": np.array(high, "f4")}
    graph = helper.make_graph(
        [helper.make_node("MelWeightMatrix", [*arrays], ["y"], output_datatype=kind)],
        "g",
        [] if known else [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in arrays.items()
        ],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()] if known else [],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


MELS = [(8, 16, 8192, 0, 4096), (40, 512, 16000, 20, 7600), (80, 400, 16000, 0, 8000), (128, 256, 22050, 50, 11000),
        (3, 7, 100, 10, 30), (4, 32, 8000, 3000, 100)]  # fmt: skip


@pytest.mark.parametrize("numbers", MELS)
def test_mel_matrices(numbers: tuple[int, ...]) -> None:
    for kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        made = mel(*numbers, kind=kind)
        (want,) = ReferenceEvaluator(made).run(None, {})
        found = relax.evaluate(from_onnx(made), {})
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_mel_matrices_of_numbers_that_come_late_and_of_impossible_ones() -> None:
    made = mel(*MELS[0], known=False)
    built = autosched.build(made, target="cpu", threads=1)
    given = [np.array(n) for n in MELS[0][:3]] + [np.array(n, "f4") for n in MELS[0][3:]]
    (want,) = ReferenceEvaluator(made).run(None, dict(zip(("bands", "length", "rate", "low", "high"), given)))
    np.testing.assert_allclose(built(*given).numpy(), want, rtol=1e-6)
    for wrong in ((8, 16, 8192, 0, 9000), (8, 16, 0, 0, 4000), (8, 16, 8192, -900, 4000)):
        with pytest.raises(ImportModelError):
            from_onnx(mel(*wrong))
