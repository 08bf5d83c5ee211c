"""Weights of few bits on GPUs: few rows by words, more rows of halves on tensor cores."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

from autosched import te, topi
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, templates_for
from autosched.templates.accuracy import with_strict
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from autosched.tuner.measure.make_reference import make_reference

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("autosched.codegen.cuda.emulate")

TARGET = Target("cuda -arch=sm_90a")


def product(m: int, n: int, k: int, bits: int, dtype: str, zeros: str | None, block: int = 32) -> PrimFunc:
    x, words = te.placeholder((m, k), dtype, name="x"), te.placeholder((n, k * bits // 32), "uint32", name="w")
    scales = te.placeholder((n, k // block), dtype, name="s")
    zero = [te.placeholder((n, k // block), zeros, name="z")] if zeros else []
    made = topi.relu(topi.matmul_nbits(x, words, scales, zero[0] if zero else None, bits, block))
    return create_prim_func([x, words, scales, *zero, topi.cast(made, dtype) if dtype != "float32" else made])


@pytest.mark.parametrize(
    "func, template, knobs",
    [
        (product(1, 16, 512, 4, "float16", "uint8"), "matmul_nbits", {}),
        (product(3, 10, 288, 8, "float32", None), "matmul_nbits", {"columns": 2, "warps": 1}),
        (product(6, 40, 160, 4, "float16", "float16"), "tensor_contraction", {}),
    ],
    ids=["a row", "few rows", "tensor cores"],
)
def test_products(func: PrimFunc, template: str, knobs: dict[str, int]) -> None:
    config = default_config(func, TARGET).with_knobs(**knobs)
    assert config.template == template
    scheduled = apply_config(func, config, TARGET).func
    reference = make_reference(func)
    out = np.full(func.buffers[-1].const_shape(), np.nan, func.buffers[-1].dtype)
    for way, (found,) in run_in_all_ways(scheduled, TARGET, [np.asarray(x) for x in reference.inputs], [out]):
        wanted = reference.outputs[0].reshape(found.shape).astype("float64")
        far = np.abs(found.astype("float64") - wanted).max() / np.abs(wanted).max()
        assert far < (1e-5 if found.dtype == np.float32 else 2e-3), way


def test_strict_products_keep_their_weight() -> None:
    func = product(20, 64, 512, 4, "bfloat16", None)
    assert templates_for(func, TARGET)[0][0].name == "tensor_contraction"
    assert "tensor_contraction" not in {template.name for template, _ in templates_for(with_strict(func), TARGET)}
