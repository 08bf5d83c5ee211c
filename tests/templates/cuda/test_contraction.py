"""Convolutions and long products as matrix products of gathered operands, on the emulator, against NumPy."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.templates.cuda.product_form import find_matrix_form
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from autosched.tir.interpret import interpret
from autosched.topi.conv_nd import Spatial, conv_nd, conv_transpose_nd
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")


@dataclass(frozen=True)
class Conv:
    """A convolution of [2, c, *size] with o channels and a bias behind it."""

    c: int
    size: tuple[int, ...]
    o: int
    kernel: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    dtype: str = "float32"

    def func(self) -> PrimFunc:
        rank = len(self.size)
        outer = (self.c, self.o // self.groups) if self.transposed else (self.o, self.c // self.groups)
        data = te.placeholder((2, self.c, *self.size), self.dtype, name="D")
        weight = te.placeholder((*outer, *[self.kernel] * rank), self.dtype, name="W")
        bias = te.placeholder((self.o,), self.dtype, name="B")
        g = Spatial((self.stride,) * rank, (self.pad,) * (2 * rank), (self.dilation,) * rank)
        if self.transposed:
            made = conv_transpose_nd(data, weight, g, (0,) * rank, self.groups)
        else:
            made = conv_nd(data, weight, g, self.groups)
        out = te.compute(made.shape, lambda n, f, *p: made(n, f, *p) + bias(f), name="biased")
        return create_prim_func([data, weight, bias, out])

    def expected(self, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        rank = len(self.size)
        stride, pads = self.stride, [(self.pad, self.pad)] * rank
        if self.transposed:  # a convolution of data with zeros between, by the flipped window
            spread = np.zeros((*x.shape[:2], *((n - 1) * stride + 1 for n in self.size)))
            spread[(..., *[slice(None, None, stride)] * rank)] = x
            w = w.reshape(self.groups, -1, *w.shape[1:]).swapaxes(1, 2)
            w = np.flip(w.reshape(-1, *w.shape[2:]), tuple(range(2, 2 + rank)))
            reach = (self.kernel - 1) * self.dilation - self.pad
            x, stride, pads = spread, 1, [(reach, reach)] * rank
        x = np.pad(x, ((0, 0), (0, 0), *pads))
        reach, axes = (self.kernel - 1) * self.dilation + 1, tuple(range(2, 2 + rank))
        windows = np.lib.stride_tricks.sliding_window_view(x, (reach,) * rank, axes)
        windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]
        windows = windows[(..., *[slice(None, None, self.dilation)] * rank)]
        parts = []
        for g in range(self.groups):
            own = windows[:, g * self.c // self.groups : (g + 1) * self.c // self.groups]
            weights = w[g * self.o // self.groups : (g + 1) * self.o // self.groups]
            own = np.moveaxis(own, 1, 1 + rank).reshape(*own.shape[:1], *own.shape[2 : 2 + rank], -1)
            parts.append(np.moveaxis(own @ weights.reshape(len(weights), -1).T, -1, 1))
        return np.concatenate(parts, 1) + b.reshape(-1, *[1] * rank)


def run(func: PrimFunc, config: Config, inputs: list[np.ndarray], order: str = "late") -> tuple[np.ndarray, object]:
    """The result of a configuration on the emulated device, and its kernel."""
    applied = apply_config(func, config, TARGET)
    kernel = compile_func(applied.func, TARGET, name="contraction").kernel
    given = [x if p is None else p.pack(x) for x, p in zip(inputs, applied.packs, strict=False)]
    out = np.zeros(func.buffers[-1].const_shape(), func.buffers[-1].dtype)
    emulate.run_kernel(kernel, [*given, out], order=order)
    return out, kernel


def drawn(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(-9, 9, b.const_shape()).astype(b.dtype)
        if b.dtype == "int8"
        else rng.standard_normal(b.const_shape()).astype(b.dtype)
        for b in func.buffers[:-1]
    ]


CONVOLUTIONS = {
    "strided": Conv(9, (9, 11), 24, 3, stride=2, pad=1, dtype="float16"),
    "grouped, dilated": Conv(16, (9, 9), 32, 3, pad=2, dilation=2, groups=2, dtype="float16"),
    "float32": Conv(10, (9, 7), 12, 3, pad=1),
    "of a row": Conv(12, (20,), 16, 5, stride=2, pad=2),
    "of a volume": Conv(4, (5, 6, 4), 8, 3, pad=1, dtype="float16"),
    "transposed": Conv(8, (5, 6), 12, 3, stride=2, pad=1, transposed=True),
    "transposed, grouped": Conv(16, (9,), 32, 4, stride=2, pad=1, groups=2, transposed=True, dtype="float16"),
    "1x1": Conv(32, (4, 8), 24, 1, dtype="float16"),
}


@spread(2, "name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    conv = CONVOLUTIONS[name]
    func = conv.func()
    config = default_config(func, TARGET)
    on_tensor_cores = conv.dtype == "float16"
    names = ("tensor_contraction", "tensor_window") if on_tensor_cores else ("contraction",)
    assert config.template in names
    inputs = drawn(func)
    out, kernel = run(func, config, inputs)
    assert ("mma.sync" in kernel.ptx) == on_tensor_cores  # type: ignore[attr-defined]
    tolerance = 2e-2 if on_tensor_cores else 1e-4
    expected = conv.expected(*(x.astype("d") for x in inputs))
    np.testing.assert_allclose(out.astype("d"), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["float32", "strided"])
def test_drawn_configurations_in_parts(name: str) -> None:
    conv = CONVOLUTIONS[name]
    func = conv.func()
    template = "contraction" if conv.dtype == "float32" else "tensor_contraction"
    found = [c for c in space_for(func, TARGET).sample(5, 40) if c.template == template][0]
    config = Config(template, {**found.knobs, "step": 16, "splits": 2})
    inputs = drawn(func)
    out, kernel = run(func, config, inputs, "ahead")
    assert len(kernel.launches) == 2  # type: ignore[attr-defined]
    tolerance = 1e-4 if conv.dtype == "float32" else 2e-2
    expected = conv.expected(*(x.astype("d") for x in inputs))
    np.testing.assert_allclose(out.astype("d"), expected, rtol=tolerance, atol=tolerance)


def test_parts_fill_the_device() -> None:
    """256 x 256 results are four large tiles, or sixteen small ones."""
    a, b = te.placeholder((256, 4096), name="A"), te.placeholder((4096, 256), name="B")
    config = default_config(create_prim_func([a, b, topi.matmul(a, b)]), TARGET)
    assert config.template == "contraction" and config["splits"] > 1
    x, y = te.placeholder((35, 200), name="A"), te.placeholder((200, 37), name="B")
    func = create_prim_func([x, y, topi.matmul(x, y)])
    small = {"rows": 32, "columns": 32, "per_row": 4, "per_column": 4, "step": 16, "stages": 2, "splits": 3}
    inputs = drawn(func)
    for order in ("late", "ahead"):
        out, kernel = run(func, Config("contraction", small), inputs, order)
        assert len(kernel.launches) == 2
        np.testing.assert_allclose(out, inputs[0].astype("d") @ inputs[1], rtol=1e-4, atol=1e-4)


@spread(2, "rows, dtype", [(13, "float16"), (13, "float32"), (2, "float16"), (4, "float16")])
def test_long_products_of_few_results_are_summed_in_parts(rows: int, dtype: str) -> None:
    a, b = te.placeholder((rows, 1040), dtype, name="A"), te.placeholder((1040, 40), dtype, name="B")
    func = create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])
    config = default_config(func, TARGET).with_knobs(splits=3 if rows == 13 else 4, shares=1)
    assert space_for(func, TARGET).contains(config)
    x, y = drawn(func)
    results = [run(func, config, [x, y], order)[0] for order in ("late", "ahead")]
    assert results[0].tobytes() == results[1].tobytes()  # parts are added up in their order
    np.testing.assert_allclose(
        results[0].astype("d"), np.maximum(x.astype("d") @ y.astype("d"), 0), rtol=1e-2, atol=0.1
    )


@dataclass(frozen=True)
class Few:
    """A product whose sums warps of a block share, in tiles of 32 x 64 on cores and of 16 x 32 on tensor cores."""

    sizes: tuple[int, int, int]
    dtype: str
    shares: int
    step: int
    stages: int
    splits: int = 1
    warps: tuple[int, int] = (1, 1)

    @property
    def config(self) -> Config:
        cuts = {"step": self.step, "stages": self.stages, "splits": self.splits, "shares": self.shares}
        if self.dtype == "float32":
            return Config("contraction", {"rows": 32, "columns": 64, "per_row": 4, "per_column": 8, **cuts})
        rows, columns = (16 * w for w in self.warps)
        warps = dict(zip(("warps_m", "warps_n"), self.warps, strict=True))
        return Config("tensor_contraction", {"rows": rows, "columns": max(32, columns), **warps, **cuts})


SHARED = {
    "float32": Few((17, 701, 101), "float32", 4, 16, 2),
    "float32, parts": Few((40, 600, 36), "float32", 2, 8, 3, splits=2),
    "one row": Few((1, 2052, 40), "float16", 4, 16, 2),
    "few rows": Few((3, 700, 104), "bfloat16", 8, 32, 3),
    "parts": Few((16, 1030, 72), "float16", 2, 32, 1, splits=3),
    "warps along both sides": Few((40, 700, 100), "float16", 2, 32, 3, warps=(2, 2)),
}


@spread(2, "name", SHARED)
@pytest.mark.parametrize("turned", [False, True])
def test_a_block_adds_up_the_sums_of_its_warps(name: str, turned: bool) -> None:
    """In shared memory, in the order of the warps."""
    case, config = SHARED[name], SHARED[name].config
    m, k, n = case.sizes
    turned |= m == 1  # else it is a reduction
    a = te.placeholder((m, k), case.dtype, name="A")
    b = te.placeholder((n, k) if turned else (k, n), case.dtype, name="B")
    at = te.reduce_axis((0, k), "k")
    sums = te.compute((m, n), lambda i, j: te.sum(a[i, at] * (b[j, at] if turned else b[at, j]), axis=at), name="sums")
    func = create_prim_func([a, b, topi.nn.relu(sums)])
    assert space_for(func, TARGET).contains(config)
    x, y = drawn(func)
    results = [run(func, config, [x, y], order) for order in ("late", "ahead")]
    assert results[0][0].tobytes() == results[1][0].tobytes()
    assert all(len(kernel.launches) == min(case.splits, 2) for _, kernel in results)  # type: ignore[attr-defined]
    expected = np.maximum(x.astype("d") @ (y.T if turned else y).astype("d"), 0)
    tolerance = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}[case.dtype] * np.abs(expected).max()
    np.testing.assert_allclose(results[0][0].astype("d"), expected, rtol=0, atol=tolerance)


def test_few_rows_have_several_blocks_on_each_multiprocessor() -> None:
    target = Target("nvidia/nvidia-h200")
    for rows in (2, 4, 16):
        a, b = te.placeholder((rows, 4096), "float16", name="A"), te.placeholder((4096, 4096), "float16", name="B")
        func = create_prim_func([a, b, topi.matmul(a, b)])
        config = default_config(func, target)
        kernel = compile_func(apply_config(func, config, target).func, target).kernel
        assert math.prod(kernel.launches[0].grid) > 3 * target.gpu.sm_count  # type: ignore[attr-defined]
        used = kernel.resources.launches[0]  # type: ignore[attr-defined]
        assert used.occupancy * target.gpu.max_threads_per_sm >= 4 * kernel.launches[0].threads  # type: ignore[attr-defined]


def test_one_row_of_weights_that_lie_side_by_side_is_a_reduction() -> None:
    a, b = te.placeholder((1, 4096), "float16", name="A"), te.placeholder((4096, 4096), "float16", name="B")
    func = create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])
    assert default_config(func, TARGET).template == "reduction"
    k = te.reduce_axis((0, 4096), "k")
    turned = te.compute((1, 4096), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="turned")
    assert default_config(create_prim_func([a, b, turned]), TARGET).template == "tensor_contraction"


def test_one_launch_for_few_rows_on_cores() -> None:
    a, b = te.placeholder((4, 4096), name="A"), te.placeholder((4096, 4096), name="B")
    config = default_config(create_prim_func([a, b, topi.matmul(a, b)]), TARGET)
    assert config["splits"] == 1 and config["shares"] > 1


def test_copies_of_products_with_wide_axes_are_asynchronous() -> None:
    """`topi.matmul` has axes of 64 bits, the templates' own loops have 32."""
    a, b = te.placeholder((16, 512), "float16", name="A"), te.placeholder((512, 64), "float16", name="B")
    func = create_prim_func([a, b, topi.matmul(a, b)])
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET).kernel
    assert "ld.global" not in kernel.ptx and "cp.async.cg" in kernel.ptx  # type: ignore[attr-defined]


def test_large_products_have_templates_of_their_own() -> None:
    a, b = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
    assert default_config(create_prim_func([a, b, topi.matmul(a, b)]), TARGET).template == "matmul"


def test_int8() -> None:
    data, weight = te.placeholder((1, 24, 6, 6), "int8", name="D"), te.placeholder((16, 24, 3, 3), "int8", name="W")
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 1, 1, "NCHW", out_dtype="int32")])
    config = default_config(func, TARGET)
    assert config.template == "tensor_contraction"
    x, w = drawn(func)
    out, _ = run(func, config, [x, w])
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    np.testing.assert_array_equal(out, np.einsum("nchwij,ocij->nohw", windows.astype("i4"), w.astype("i4")))


def test_a_weight_that_is_not_known_at_build_is_packed_by_a_function() -> None:
    conv = CONVOLUTIONS["grouped, dilated"]
    func = conv.func()
    form = find_matrix_form(func)
    assert form is not None
    pack = form.packing(32, 80)
    weight = drawn(func)[1]
    packed = np.zeros(pack.packed_shape, np.float16)
    interpret(pack.func("float16"), [weight, packed])
    np.testing.assert_array_equal(packed, pack.pack(weight))


def test_terms_of_one_place_of_the_window_are_neighbours() -> None:
    """So that the edge of an image is checked once for a step of channels, and its index divides by nothing."""
    func = Conv(64, (10, 10), 32, 3, pad=1, dtype="float16").func()
    form = find_matrix_form(func)
    assert form is not None and [n for _, n in form.terms] == [3, 3, 64]
    template, anchor = next(x for x in templates_for(func, TARGET) if x[0].name == "tensor_contraction")
    config = template.default(anchor, TARGET)
    source = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel.source
    (gather,) = (line for line in source.splitlines() if "columns[" in line and "D[" in line)
    assert "// 9" not in gather and "// 3 % 3" not in gather


def test_parts_are_as_many_as_make_the_busiest_multiprocessor_least_busy() -> None:
    """200 tiles of 64 x 64 keep 132 of them busy for two turns, of which the second is half empty."""
    data, weight = (
        te.placeholder((32, 512, 7, 7), "float16", name="D"),
        te.placeholder((512, 512, 3, 3), "float16", name="W"),
    )
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 1, 1, "NCHW")])
    target = Target("nvidia/nvidia-h200")
    template, anchor = next(x for x in templates_for(func, target) if x[0].name == "tensor_contraction")
    config = template.default(anchor, target)
    tiles = -(-512 // config["rows"]) * -(-32 * 49 // config["columns"]) * config["splits"]
    assert config["splits"] > 1 and tiles % 132 > 0.9 * 132


def test_four_pixels_whose_image_has_a_hundred(capfd: pytest.CaptureFixture[str]) -> None:
    """Digits of four places at once, which libnvvm joins to one remainder; it is wrong where it divides vectors."""
    data, weight = te.placeholder((8, 16, 10, 10), name="data"), te.placeholder((32, 16, 1, 1), name="weight")
    func = te.create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 0, 1, "NCHW")])
    config = default_config(func, TARGET)
    assert config.template == "contraction" and config["per_column"] == 4
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((8, 16, 10, 10)).astype("f"), rng.standard_normal((32, 16, 1, 1)).astype("f")
    start = [np.full((8, 32, 10, 10), 7, "float32")]
    for way, (out,) in run_in_all_ways(apply_config(func, config, TARGET).func, TARGET, [x, w], start):
        np.testing.assert_allclose(out, np.einsum("bchw,oc->bohw", x, w[:, :, 0, 0]), rtol=1e-4, atol=1e-4, err_msg=way)
    assert not capfd.readouterr().err  # libnvvm tells stderr what it refuses


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pixels_of_an_image_lie_side_by_side(dtype: str) -> None:
    """Its rows of 14 are no whole vectors, but all of its pixels are: four of them are copied and stored at once."""
    data, weight = te.placeholder((2, 32, 14, 14), dtype, name="D"), te.placeholder((40, 32, 1, 1), dtype, name="W")
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 0, 1, "NCHW")])
    knobs = {"rows": 32, "columns": 64, "step": 16, "stages": 2, "splits": 1, "shares": 1}
    if dtype == "float32":
        config, copied = Config("contraction", {**knobs, "per_row": 4, "per_column": 4}), 16
    else:
        config, copied = Config("tensor_contraction", {**knobs, "warps_m": 2, "warps_n": 2}), 8
    inputs = drawn(func)
    for order in ("late", "ahead"):
        out, kernel = run(func, config, inputs, order)
        x, w = (a.astype("d") for a in inputs)
        np.testing.assert_allclose(out, np.einsum("bchw,oc->bohw", x, w[:, :, 0, 0]), rtol=2e-2, atol=2e-2)
    ptx: str = kernel.ptx  # type: ignore[attr-defined]
    sizes = [int(n) for n in re.findall(r"cp\.async\.c\w\.shared\.global \S+ \S+ (\d+)", ptx)]
    assert copied in sizes and min(sizes) == (4 if dtype == "float32" else 8)
    assert dtype == "float16" or "st.global.v4.f32" in ptx


@pytest.mark.parametrize("channels, kernel, step", [(256, 1, 64), (256, 3, 32), (96, 1, 32)])
def test_steps_are_long_where_copies_are_vectors(channels: int, kernel: int, step: int) -> None:
    """And only where the terms are whole steps."""
    data = te.placeholder((1, channels, 28, 28), "float16", name="D")
    weight = te.placeholder((64, channels, kernel, kernel), "float16", name="W")
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, kernel // 2, 1, "NCHW")])
    template, anchor = next(x for x in templates_for(func, TARGET) if x[0].name == "tensor_contraction")
    config = template.default(anchor, TARGET)
    assert config["step"] == step and config["stages"] > 1
    assert config in template.space(anchor, TARGET)
