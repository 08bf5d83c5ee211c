"""Schedules and code for vectors of 16 lanes, run on any machine: LLVM cuts the vectors into those that it has.

What only AVX-512 has (its masks, its shuffles) is run by `make check-avx512`.
"""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config, space_for

from .cases import CASES
from .test_templates import check


class _Wide(Target):
    """This machine as if its vectors had 512 bits and there were 32 of them."""

    __slots__ = ()

    @property
    def vector_bits(self) -> int:
        return 512

    @property
    def num_registers(self) -> int:
        return 32


WIDE = _Wide({"kind": "llvm", "mcpu": host_cpu().mcpu, "model": "16 lanes"})  # the model keeps it apart in caches
QUICK = (
    "dense", "conv3", "conv_first", "depthwise_tiles", "conv_plain", "max_pool", "softmax", "attention_ragged",
    "transpose_squares",
)  # fmt: skip
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_default(name: str) -> None:
    func = CASES[name][1]()
    config = default_config(func, WIDE)
    check(func, config, WIDE, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_random_configurations(name: str) -> None:
    func = CASES[name][1]()
    for config in space_for(func, WIDE).sample(np.random.default_rng(4), 2):
        check(func, config, WIDE)


def test_the_code_has_sixteen_lanes() -> None:
    func = CASES["dense"][1]()
    kernel = compile_func(apply_config(func, default_config(func, WIDE), WIDE).func, WIDE, name="k")
    assert "<16 x float> @llvm.fma.v16f32" in kernel.llvm
