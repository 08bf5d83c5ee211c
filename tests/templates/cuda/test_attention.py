"""Attention in one pass over the keys: defaults and drawn configurations against NumPy, masks and odd sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.topi.attention import attention

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")
SCALE = 0.3


@dataclass(frozen=True)
class Case:
    """Sizes of an attention and its mask; `bias` is a shape that broadcasts to [B, H, M, T]."""

    m: int
    t: int
    d: int
    e: int = 0
    batch: int = 1
    heads: int = 2
    bias: tuple[int, ...] | None = None
    causal: str | None = None
    window: int | None = None
    layouts: Sequence[str] = ("BSHD",) * 4
    dtype: str = "float32"

    def shape(self, layout: str, length: int, width: int) -> tuple[int, ...]:
        sizes = {"B": self.batch, "S": length, "H": self.heads, "D": width}
        return tuple(sizes[a] for a in layout)

    def func(self) -> PrimFunc:
        e = self.e or self.d
        lengths = ((self.m, self.d), (self.t, self.d), (self.t, e))
        q, k, v = (
            te.placeholder(self.shape(a, *size), self.dtype, name=name)
            for a, size, name in zip(self.layouts, lengths, "QKV", strict=False)
        )
        bias = None if self.bias is None else te.placeholder(self.bias, self.dtype, name="M")
        out = attention(q, k, v, bias, SCALE, self.causal, self.window, self.layouts)
        return create_prim_func([x for x in (q, k, v, bias, out) if x is not None])

    def expected(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        def order(x: np.ndarray, source: str, target: str) -> np.ndarray:
            return x.transpose([source.index(a) for a in target])

        q, k, v = (order(x.astype("d"), a, "BHSD") for x, a in zip((q, k, v), self.layouts, strict=False))
        scores = q @ k.swapaxes(-1, -2) * SCALE
        scores = scores if bias is None else scores + bias.astype("d")
        if self.causal:
            last = np.arange(self.m)[:, None] + (self.t - self.m if self.causal == "BottomRight" else 0)
            seen = np.arange(self.t) <= last
            if self.window is not None:
                seen &= np.arange(self.t) > last - self.window
            scores = np.where(seen, scores, -np.inf)
        with np.errstate(invalid="ignore"):
            powers = np.exp(scores - scores.max(-1, keepdims=True))
        return order(powers / powers.sum(-1, keepdims=True) @ v, "BHSD", self.layouts[3])


def inputs_of(case: Case, func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(b.const_shape()).astype("e" if b.dtype == "float16" else "f") for b in func.buffers[:-1]
    ]


SMALL = Config("attention", {"rows": 8, "keys": 16, "threads_m": 4, "threads_n": 8})  # little code: soon compiled


def check_serially(case: Case, config: Config = SMALL) -> None:
    func = case.func()
    assert default_config(func, TARGET).template == "attention"
    inputs = inputs_of(case, func)
    out = np.full(func.buffers[-1].const_shape(), 7, np.float32)
    run_serially(apply_config(func, config, TARGET).func, *inputs, out)
    np.testing.assert_allclose(out, case.expected(*inputs), rtol=1e-4, atol=1e-5, err_msg=str(config))


CASES = {
    "odd": Case(19, 37, 11, 13),
    "bias": Case(9, 40, 8, bias=(2, 1, 1, 40), batch=2),
    "causal": Case(40, 40, 16, causal="TopLeft"),
    "cache": Case(3, 70, 16, causal="BottomRight"),
    "hidden rows": Case(40, 9, 8, causal="BottomRight"),
    "window": Case(50, 50, 8, causal="TopLeft", window=7),
    "layouts": Case(6, 33, 8, 12, layouts=("BHSD", "BHDS", "BSHD", "BHSD")),
    "one query": Case(1, 100, 24),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    check_serially(CASES[name])


def test_drawn_configurations() -> None:
    case = Case(21, 45, 20, causal="BottomRight")
    (config,) = [c for c in space_for(case.func(), TARGET).sample(3, 9) if c.template == "attention"][:1]
    check_serially(case, config)


@pytest.mark.parametrize("order", ["late", "ahead"])
def test_as_the_device_runs_it(order: str) -> None:
    case = Case(37, 70, 24, causal="TopLeft")
    func = case.func()
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="a").kernel
    assert len(kernel.launches) == 1
    assert kernel.scratch_bytes == 0  # no score reaches memory
    inputs = inputs_of(case, func)
    out = np.zeros(func.buffers[-1].const_shape(), np.float32)
    emulate.run_kernel(kernel, [*inputs, out], order=order)
    np.testing.assert_allclose(out, case.expected(*inputs), rtol=1e-4, atol=1e-5)
