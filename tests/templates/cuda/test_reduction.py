"""The `reduction` template where its results are those of several rows, and where axes have a single element."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.tuner.measure.make_reference import make_reference

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")

TARGET = Target("cuda -arch=sm_80")


def a_product() -> PrimFunc:
    a, b = te.placeholder((7, 67), name="A"), te.placeholder((67, 13), name="B")
    return create_prim_func([a, b, topi.relu(topi.matmul(a, b))])


def a_strided_convolution() -> PrimFunc:
    data, weight = te.placeholder((1, 40, 9, 9), name="data"), te.placeholder((5, 40, 1, 1), name="weight")
    return create_prim_func([data, weight, topi.relu(topi.nn.conv2d(data, weight, 2, 0, 1, "NCHW"))])


@pytest.mark.parametrize("func", [a_product(), a_strided_convolution()], ids=["rows", "single elements"])
@pytest.mark.parametrize("knobs", [(1, 64, 1), (8, 64, 1), (32, 32, 1), (4, 128, 4)])
def test_results_behind_a_sum_stay_with_their_threads(func: PrimFunc, knobs: tuple[int, int, int]) -> None:
    config = Config("reduction", dict(zip(("shared", "block_size", "vector"), knobs, strict=True)))
    scheduled = apply_config(func, config, TARGET).func
    kernel = compile_func(scheduled, TARGET, name="kernel").kernel
    assert kernel.resources.shared_bytes <= 4 * config["block_size"]  # a part of a sum for each thread at most
    reference = make_reference(func)
    inputs = [np.asarray(x) for x in reference.inputs]
    for order in ("serially", "late", "ahead"):
        out = np.full(func.buffers[-1].const_shape(), np.nan, np.float32)
        if order == "serially":
            run_serially(scheduled, *inputs, out)
        else:
            emulate.run_kernel(kernel, [*inputs, out], order=order)
        np.testing.assert_allclose(out, reference.outputs[0].reshape(out.shape), rtol=1e-4, atol=1e-5)
