"""Attention in one pass over the keys: defaults and drawn configurations against NumPy, masks and odd sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.trace import Trace
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.topi.attention import attention
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
ml_dtypes = pytest.importorskip("ml_dtypes")
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
    zero_rows: str | None = None
    shared: int = 1
    softcap: float | None = None

    def shape(self, layout: str, length: int, heads: int, width: int) -> tuple[int, ...]:
        sizes = {"B": self.batch, "S": length, "H": heads, "D": width}
        return tuple(sizes[a] for a in layout)

    def func(self) -> PrimFunc:
        e = self.e or self.d
        few = self.heads // self.shared
        lengths = ((self.m, self.heads, self.d), (self.t, few, self.d), (self.t, few, e))
        q, k, v = (
            te.placeholder(self.shape(a, *size), self.dtype, name=name)
            for a, size, name in zip(self.layouts, lengths, "QKV", strict=False)
        )
        bias = None if self.bias is None else te.placeholder(self.bias, self.dtype, name="M")
        out = attention(
            q, k, v, bias, SCALE, self.causal, self.window, self.layouts, self.zero_rows,
            softcap=self.softcap, shared=self.shared,
        )  # fmt: skip
        return create_prim_func([x for x in (q, k, v, bias, out) if x is not None])

    def expected(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        def order(x: np.ndarray, source: str, target: str) -> np.ndarray:
            return x.transpose([source.index(a) for a in target])

        q, k, v = (order(x.astype("d"), a, "BHSD") for x, a in zip((q, k, v), self.layouts, strict=False))
        k, v = (x.repeat(self.shared, 1) for x in (k, v))
        scores = q @ k.swapaxes(-1, -2) * SCALE
        scores = np.tanh(scores / self.softcap) * self.softcap if self.softcap else scores
        scores = scores if bias is None else scores + bias.astype("d")
        if self.causal:
            last = np.arange(self.m)[:, None] + (self.t - self.m if self.causal == "BottomRight" else 0)
            seen = np.arange(self.t) <= last
            if self.window is not None:
                seen &= np.arange(self.t) > last - self.window
            scores = np.where(seen, scores, -np.inf)
        with np.errstate(invalid="ignore"):
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            weights = powers / powers.sum(-1, keepdims=True)
        weights = weights if self.zero_rows is None else np.nan_to_num(weights)
        return order(weights @ v, "BHSD", self.layouts[3])


def inputs_of(case: Case, func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(b.const_shape()).astype("e" if b.dtype == "float16" else "f") for b in func.buffers[:-1]
    ]


SMALL = Config(
    "attention", {"rows": 8, "keys": 16, "threads_m": 4, "threads_n": 8, "splits": 1}
)  # little code: soon compiled


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
    "cache": Case(3, 70, 16, causal="BottomRight", softcap=1.5),
    "hidden rows": Case(40, 9, 8, causal="BottomRight"),
    "hidden rows of 0": Case(40, 9, 8, causal="BottomRight", zero_rows="nan"),
    "masked rows of 0": Case(40, 9, 8, causal="BottomRight", zero_rows="masked"),
    "window": Case(50, 50, 8, causal="TopLeft", window=7),
    "layouts": Case(6, 33, 8, 12, layouts=("BHSD", "BHDS", "BSHD", "BHSD"), shared=2),
    "one query": Case(1, 100, 24),
}


@spread(6, "name", CASES)
def test_values(name: str) -> None:
    check_serially(CASES[name])


SPLIT = {
    "odd": 4, "bias": 2, "cache": 4, "window": 4, "layouts": 2, "one query": 8, "hidden": 2,
}  # fmt: skip


@spread(3, "name", SPLIT)
def test_keys_in_parts(name: str) -> None:
    """Parts that the last keys do not fill, and parts of which a query sees none, are in it."""
    case = Case(40, 20, 8, causal="BottomRight", zero_rows="nan") if name == "hidden" else CASES[name]
    knobs = {"rows": 8, "keys": 8, "threads_m": 4, "threads_n": 8, "splits": SPLIT[name]}
    check_serially(case, Config("attention", knobs))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_few_queries_of_a_long_cache_are_shared_by_the_whole_device(dtype: str) -> None:
    """Keys whose elements lie apart are left to shared memory."""
    case = Case(2, 530, 16, causal="BottomRight", dtype=dtype, layouts=("BSHD", "BHDS", "BSHD", "BSHD"))
    func = case.func()
    config = default_config(func, TARGET)
    assert config.template == "attention" and config["splits"] > 1
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="a").kernel
    assert len(kernel.launches) == 2
    assert kernel.launches[0].grid[2] == config["splits"]
    assert all(x.spill_bytes == x.stack_bytes == 0 for x in kernel.resources.launches)
    inputs = inputs_of(case, func)
    results = []
    for order in ("late", "ahead"):
        out = np.full(func.buffers[-1].const_shape(), 7, dtype)
        emulate.run_kernel(kernel, [*inputs, out], order=order)
        results.append(out)
    assert results[0].tobytes() == results[1].tobytes()
    tolerance = 1e-4 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(results[0], case.expected(*inputs), rtol=tolerance, atol=tolerance)


QUERY_CASES = {
    "one": (Case(1, 500, 128, heads=3, layouts=("BHSD",) * 4, dtype="float16"), None),
    "odd": (Case(3, 530, 20, 13), (2, 2, 4)),
    "lanes without elements": (Case(3, 530, 36, 100, dtype="float16"), (4, 2, 8)),
    "cache": (Case(2, 530, 16, causal="BottomRight", dtype="bfloat16"), None),
    "parts without keys": (Case(4, 300, 16, causal="TopLeft", dtype="float16"), (2, 1, 4)),
    "window": (Case(4, 130, 16, causal="BottomRight", window=7), (2, 1, 8)),
    "rows of 0": (Case(4, 130, 16, causal="TopLeft", window=7, zero_rows="nan"), (1, 2, 1)),
    "bias": (Case(1, 200, 64, bias=(2, 1, 1, 200), batch=2, layouts=("BHSD",) * 4, shared=2), (4, 4, 2)),
    "wide": (Case(1, 200, 256, 200, layouts=("BHSD",) * 4), (4, 4, 1)),
    "many parts": (Case(1, 600, 8, layouts=("BHDS", "BHSD", "BSHD", "BSHD")), (1, 1, 64)),
}


@spread(3, "name, order", [*zip(QUERY_CASES, ("late", "ahead") * 5, strict=True)])
def test_keys_from_memory_to_registers(name: str, order: str) -> None:
    case, knobs = QUERY_CASES[name]
    func = case.func()
    config = default_config(func, TARGET)
    assert config.template == "query_attention"
    if knobs is not None:
        config = Config("query_attention", dict(zip(("keys", "warps", "splits"), knobs, strict=True)))
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="a").kernel
    assert len(kernel.launches) == (1 if config["splits"] == 1 else 2)
    kind = np.dtype(getattr(ml_dtypes, case.dtype, case.dtype))
    inputs = [x.astype(kind) for x in inputs_of(case, func)]
    out = np.full(func.buffers[-1].const_shape(), 7).astype(kind)
    raw = [x.view(np.uint16) if case.dtype == "bfloat16" else x for x in (*inputs, out)]
    emulate.run_kernel(kernel, raw, order=order)
    tolerance = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[case.dtype]
    np.testing.assert_allclose(
        out.astype("d"), case.expected(*(x.astype("d") for x in inputs)), rtol=tolerance, atol=tolerance
    )


def test_one_query_keeps_loads_of_16_bytes_under_way() -> None:
    func = Case(1, 8192, 128, heads=16, layouts=("BHSD",) * 4, dtype="float16").func()
    target = Target("nvidia/nvidia-h200")
    config = default_config(func, target)
    kernel = compile_func(apply_config(func, config, target).func, target, name="a").kernel
    (blocks, heads, _), _ = (launch.grid for launch in kernel.launches)
    assert blocks * heads > 2 * target.gpu.sm_count
    assert kernel.ptx.count("ld.global.nc.v4") >= 2 * config["keys"]
    assert all(x.spill_bytes == x.stack_bytes == 0 for x in kernel.resources.launches)


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


TENSOR_CASES = {
    "odd": (Case(19, 45, 20, 13, dtype="bfloat16"), {"rows": 16, "keys": 32, "warps": 1, "stages": 2}),
    "causal": (Case(40, 70, 16, causal="BottomRight", dtype="float16", softcap=1.5), None),
    "bias": (
        Case(33, 40, 32, bias=(1, 2, 1, 40), layouts=("BHSD",) * 4, dtype="float16", shared=2),
        {"rows": 32, "keys": 16, "warps": 1, "stages": 3},
    ),
    "hidden rows": (Case(40, 20, 16, causal="BottomRight", heads=1, dtype="float16"), None),
    "rows of 0": (Case(40, 20, 16, causal="BottomRight", heads=1, dtype="float16", zero_rows="nan"), None),
}


@spread(2, "name, order", [*zip(TENSOR_CASES, ("late", "ahead", "late", "ahead", "late"), strict=True)])
def test_on_tensor_cores(name: str, order: str) -> None:
    case, knobs = TENSOR_CASES[name]
    func = case.func()
    config = default_config(func, TARGET) if knobs is None else Config("tensor_attention", knobs)
    assert config.template == "tensor_attention"
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="a").kernel
    assert "mma.sync" in kernel.ptx
    assert kernel.scratch_bytes == 0
    kind = np.dtype(getattr(ml_dtypes, case.dtype, case.dtype))
    inputs = [x.astype(kind) for x in inputs_of(case, func)]
    out = np.zeros(func.buffers[-1].const_shape(), kind)
    raw = [x.view(np.uint16) if case.dtype == "bfloat16" else x for x in (*inputs, out)]
    emulate.run_kernel(kernel, raw, order=order)
    tolerance = 2e-2 if case.dtype == "bfloat16" else 3e-3
    np.testing.assert_allclose(
        out.astype("d"), case.expected(*(x.astype("d") for x in inputs)), rtol=tolerance, atol=tolerance
    )


def test_a_warp_alone_copies_small_tiles() -> None:
    """Few queries of long rows: the assembler refused the default for its registers."""
    func = Case(100, 200, 128, heads=2, dtype="float16", layouts=("BHSD",) * 4).func()
    config = default_config(func, TARGET)
    assert config.template == "tensor_attention" and config["warps"] == 1
    (used,) = compile_func(apply_config(func, config, TARGET).func, TARGET, name="a").kernel.resources.launches
    assert used.spill_bytes == 0


def test_old_devices_have_the_cores_only() -> None:
    func = Case(40, 40, 16, dtype="float16").func()
    assert default_config(func, Target("cuda -arch=sm_75")).template == "attention"


def test_shared_memory_is_read_without_bank_conflicts() -> None:
    case = Case(64, 64, 64, heads=1, layouts=("BHSD",) * 4, dtype="float16")
    func = case.func()
    config = Config("tensor_attention", {"rows": 64, "keys": 64, "warps": 4, "stages": 2})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="a").kernel
    (trace,) = traces = [Trace()]
    emulate.run_kernel(kernel, [np.zeros(b.const_shape(), np.float16) for b in func.buffers], traces=traces)
    for use in trace.accesses():
        assert use.efficiency == (1.0 if use.space == "shared" or not use.writes else 0.5), use
