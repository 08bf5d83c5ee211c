"""erf and normcdf of float32 on GPUs: all ranges, infinities, NaN, subnormal numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")

TARGET = Target("cuda -arch=sm_80")
LEAST = 2.0**-149  # the smallest float32 above 0


def arguments() -> np.ndarray:
    rng = np.random.default_rng(0)
    any_size = 10.0 ** rng.uniform(-44, 38, 500) * rng.choice([-1, 1], 500)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, LEAST, -LEAST, 0.927734375, 14.4, -14.4, -14.2, 3e38, -3e38]
    return np.concatenate([np.linspace(-15, 15, 1483), any_size, special]).astype(np.float32)


def computed(name: str, x: np.ndarray) -> np.ndarray:
    data = te.placeholder(x.shape, name="x")
    func = create_prim_func([data, te.compute(x.shape, lambda i: getattr(te, name)(data(i)))])
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name=name).kernel
    assert "__nv_" not in kernel.ptx
    out = np.zeros_like(x)
    emulate.run_kernel(kernel, [x, out])
    return out


def units(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How far numbers are apart, in units in the last place."""
    unit = np.maximum(np.spacing(np.abs(expected.astype(np.float32))).astype(float), LEAST)
    return np.abs(found - expected) / unit


@pytest.mark.parametrize("name, most", [("erf", 2), ("normcdf", 8)])
def test_each_number_is_right_to_its_last_digits(name: str, most: int) -> None:
    truth = {"erf": math.erf, "normcdf": lambda v: math.erfc(-v / math.sqrt(2)) / 2}[name]
    x = arguments()
    found, expected = computed(name, x), np.array([truth(v) for v in x.astype(float)])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    there = ~np.isnan(x)
    assert units(found[there].astype(float), expected[there]).max() <= most
    if name == "erf":
        np.testing.assert_array_equal(np.signbit(found[there]), np.signbit(x[there]))
