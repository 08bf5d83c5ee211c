"""Kernels for all batches on a GPU: compiled once, right on the emulator for sizes that no tile divides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

from autosched import te, tir, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.errors import ShapeError
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import schedule_sizes
from autosched.tir import PrimFunc
from autosched.topi.attention import attention
from autosched.topi.sort import cumsum
from tests.spread import spread

TARGET = Target("cuda -arch=sm_90a")
SIZES = (1, 2, 16, 33, 130)
FEW = (1, 2, 5)  # of parts that many threads compute
RNG = np.random.default_rng(0)


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Tensor:
    return te.placeholder([tir.const(s, "int64") if isinstance(s, int) else s for s in shape], dtype=dtype, name=name)


def n() -> tir.Var:
    return te.var("n", dtype="int64")


def of(shape: Sequence[int], compute: Callable[[Tensor], Tensor], dtype: str = "float32") -> PrimFunc:
    x = tensor("x", n(), *shape, dtype=dtype)
    return create_prim_func([x, compute(x)])


def dense(k: int, columns: int, dtype: str = "float32") -> PrimFunc:
    a, b = tensor("a", n(), k, dtype=dtype), tensor("b", k, columns, dtype=dtype)
    bias = tensor("bias", columns, dtype=dtype)
    return create_prim_func([a, b, bias, topi.nn.relu(topi.add(topi.matmul(a, b), bias))])


def products(k: int, columns: int) -> PrimFunc:
    batch = n()
    a, b = tensor("a", batch, 5, k), tensor("b", batch, k, columns)
    return create_prim_func([a, b, topi.nn.batch_matmul(a, b, transpose_b=False)])


def convolution(channels: int, out: int, size: int) -> PrimFunc:
    x, w = tensor("x", n(), channels, size, size), tensor("w", out, channels, 1, 1)
    return create_prim_func([x, w, topi.nn.conv2d(x, w, 2, 0, 1, "NCHW")])


def from_behind(x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda i: x[i] * (x.shape[0] - i).astype("float32"), name="y")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(length: int, d: int, dtype: str) -> PrimFunc:
    batch = n()
    q, k, v = (tensor(name, batch, length, 2, d, dtype=dtype) for name in "qkv")
    return create_prim_func([q, k, v, attention(q, k, v, None, d**-0.5, "TopLeft")])


def attention_of(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal."""
    scores = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    scores[..., ~np.tri(q.shape[1], dtype=bool)] = -np.inf
    return np.asarray(np.einsum("bhij,bjhd->bihd", softmax(scores), v))


def pointwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of stride 2."""
    return np.asarray(np.einsum("nchw,oc->nohw", x[:, :, ::2, ::2], w[..., 0, 0]))


CASES: dict[str, tuple[Callable[[], PrimFunc], Callable[..., np.ndarray]]] = {
    "matmul": (lambda: dense(64, 48), lambda a, b, c: np.maximum(a @ b + c, 0)),
    "matmul of odd sizes": (lambda: dense(37, 29), lambda a, b, c: np.maximum(a @ b + c, 0)),
    "tensor cores": (lambda: dense(64, 48, "float16"), lambda a, b, c: np.maximum(a @ b + c, 0)),
    "batched matmul": (lambda: products(19, 11), np.matmul),
    "convolution": (lambda: convolution(4, 8, 7), pointwise),
    "element-wise": (lambda: of((7,), lambda x: topi.nn.relu(topi.add(x, x))), lambda x: np.maximum(x + x, 0)),
    "halves": (lambda: of((64,), lambda x: topi.add(x, x), "float16"), lambda x: x + x),
    "one axis": (lambda: of((), lambda x: topi.add(x, x)), lambda x: x + x),
    "softmax": (lambda: of((70,), lambda x: topi.nn.softmax(x, -1)), softmax),
    "row sums": (lambda: of((70,), lambda x: topi.sum(x, -1)), lambda x: x.sum(-1)),
    "sums over the batch": (lambda: of((12,), lambda x: topi.sum(x, 0)), lambda x: x.sum(0)),
    "running sums": (lambda: of((100,), lambda x: cumsum(x, 1, False)), lambda x: x.cumsum(1)),
    "turned parts": (lambda: of((35, 40), lambda x: topi.transpose(x, (0, 2, 1))), lambda x: x.transpose(0, 2, 1)),
    "attention": (lambda: attended(7, 16, "float32"), attention_of),
    "attention of odd sizes": (lambda: attended(19, 9, "float32"), attention_of),
    "attention on tensor cores": (lambda: attended(37, 16, "float16"), attention_of),
    "values of sizes": (lambda: of((), from_behind), lambda x: x * np.arange(len(x), 0, -1)),
}  # fmt: skip


def compiled(func: PrimFunc, target: Target = TARGET) -> CudaKernel:
    made = compile_func(schedule_sizes(func, target).func, target, name="kernel").kernel
    assert isinstance(made, CudaKernel)
    return made


@spread(6, "case", CASES)
def test_one_kernel_is_right_for_all_sizes(case: str) -> None:
    make, reference = CASES[case]
    kernel = compiled(make())
    for size in FEW if case.startswith("attention") or case == "turned parts" else SIZES:
        at = kernel.at((size,))
        assert at.images is kernel.images
        inputs = [RNG.standard_normal(a.shape).astype(a.dtype) for a in at.inputs]
        expected = reference(*(x.astype("float64") for x in inputs))
        for order in ("late", "ahead"):
            out = np.full(at.outputs[0].shape, np.nan, at.outputs[0].dtype)
            run_kernel(at, [*inputs, out], order=order)
            near = 2e-3 if out.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(out, expected, rtol=near, atol=10 * near, err_msg=f"n = {size}")


def test_the_grid_is_an_expression() -> None:
    kernel = compiled(dense(37, 29))
    assert kernel.takes_sizes and kernel.sized is not None and kernel.sized.names == ("n",)
    rows = int(kernel.source.split("(n + ")[1].split(")")[0]) + 1
    for size in (1, rows, rows + 1, 1000):
        assert kernel.at((size,)).launches[0].grid[1] == -(-size // rows)
    assert kernel.at((10,)).flops * 100 == kernel.at((1000,)).flops > 0


def test_it_becomes_machine_code_for_all_devices() -> None:
    archs = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
    assert len(add_images(compiled(dense(37, 29), Target("cuda -arch=sm_75")), archs).images) == len(archs)


def test_it_is_saved_with_its_sizes() -> None:
    kernel = compiled(dense(37, 29))
    again = Kernel.from_manifest(kernel.to_manifest(), kernel.code)
    assert again == kernel and again.at((5,)).launches == kernel.at((5,)).launches  # type: ignore[attr-defined]
    damaged = kernel.to_manifest()
    damaged["sized"][2] = []  # no grids
    with pytest.raises(ValueError, match="sizes of it"):
        CudaKernel.check_manifest("it", damaged)


@spread(3, "size", [0, -3, 1 << 25])
def test_sizes_beyond_what_it_counts_are_refused(size: int) -> None:
    with pytest.raises(ShapeError, match=f"'n' is {size}"):
        compiled(dense(37, 29)).at((size,))


def test_two_sizes_together_are_not_more_than_it_counts() -> None:
    batch, rows = n(), te.var("m", dtype="int64")
    a, b = tensor("a", batch, rows, 19), tensor("b", batch, 19, 11)
    kernel = compiled(create_prim_func([a, b, topi.nn.batch_matmul(a, b, transpose_b=False)]))
    at = kernel.at((3, 41))
    x, y = (RNG.standard_normal(a.shape).astype("float32") for a in at.inputs)
    out = np.full((3, 41, 11), np.nan, "float32")
    run_kernel(at, [x, y, out])
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="has more than"):
        kernel.at((1 << 12, 1 << 14))


def test_grids_beyond_a_device_are_refused() -> None:
    kernel = compiled(products(2, 3))
    assert kernel.at((65535,)).launches[0].grid[2] == 65535
    with pytest.raises(ShapeError, match="65536 blocks along z"):
        kernel.at((65536,))


def m() -> tir.Var:
    return te.var("m", dtype="int64")


def open_attention(dtype: str = "float32", causal: str | None = None, queries: Any = None) -> PrimFunc:
    """Of m queries, or so many, with n keys; of n of both where it is causal."""
    batch, keys = te.var("b", dtype="int64"), n()
    count = keys if causal else queries or m()
    q, k, v = (tensor(name, batch, c, 2, 16, dtype=dtype) for name, c in (("q", count), ("k", keys), ("v", keys)))
    return create_prim_func([q, k, v, attention(q, k, v, None, 0.25, causal)])


def all_seen(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    weights = softmax(np.einsum("bihd,bjhd->bhij", q, k) * 0.25)
    return np.asarray(np.einsum("bhij,bjhd->bihd", weights, v))


def with_mask() -> PrimFunc:
    batch, keys, queries = te.var("b", dtype="int64"), n(), m()
    q, k, v = (tensor(name, batch, c, 2, 16) for name, c in (("q", queries), ("k", keys), ("v", keys)))
    mask = tensor("mask", batch, 1, queries, keys)
    return create_prim_func([q, k, v, mask, attention(q, k, v, mask, 0.25, None)])


def masked_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    weights = softmax(np.einsum("bihd,bjhd->bhij", q, k) * 0.25 + mask)
    return np.asarray(np.einsum("bhij,bjhd->bihd", weights, v))


def sums_before(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x.cumsum(0) - x, 0))


def of_two(compute: Callable[[Tensor], Tensor], *between: int) -> PrimFunc:
    """Of [n, …, m]."""
    x = tensor("x", n(), *between, m())
    return create_prim_func([x, compute(x)])


def joined() -> PrimFunc:
    """A cache of n entries and m new ones."""
    x, y = tensor("x", 2, n(), 12), tensor("y", 2, m(), 12)
    return create_prim_func([x, y, topi.concatenate([x, y], axis=1)])


def masked() -> PrimFunc:
    rows, columns = n(), m()
    x, y = tensor("x", 2, 3, rows, columns), tensor("y", 2, 1, 1, columns)
    return create_prim_func([x, y, topi.add(x, y)])


def of_images(channels: int, out: int, kernel: int, groups: int = 1) -> PrimFunc:
    """Convolutions of n x m pixels."""
    x, w = tensor("x", 2, channels, n(), m()), tensor("w", out, channels // groups, kernel, kernel)
    if groups == 1:
        made = topi.nn.conv2d(x, w, 1, kernel // 2, 1, "NCHW")
    else:
        made = topi.nn.group_conv2d_nchw(x, w, 1, kernel // 2, 1, groups)
    return create_prim_func([x, w, topi.nn.relu(made)])


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(_sums(x, w), 0))


def _sums(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    size, groups = w.shape[-1], x.shape[1] // w.shape[1]
    padded = np.pad(x, ((0, 0), (0, 0), *((size // 2, size // 2),) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    windows = windows.reshape(len(x), groups, -1, *windows.shape[2:])
    weights = w.reshape(groups, -1, *w.shape[1:])
    made = np.einsum("bgchwij,gocij->bgohw", windows, weights)
    return np.asarray(made.reshape(len(x), -1, *made.shape[3:]))


def pooled(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2)))


def normed(x: Tensor) -> Tensor:
    total = topi.sum(topi.multiply(x, x), -1, True)
    return topi.divide(x, topi.sqrt(topi.add(total, tir.const(1.0, "float32"))))


def pool(x: Tensor) -> Tensor:
    return topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")


INNER: dict[str, tuple[Callable[[], PrimFunc], Callable[..., np.ndarray]]] = {
    "softmax": (lambda: of_two(lambda x: topi.nn.softmax(x, -1), 3), softmax),
    "softmax of one row": (lambda: create_prim_func([x := tensor("x", 1, n()), topi.nn.softmax(x, -1)]), softmax),
    "softmax across": (
        lambda: of_two(lambda x: topi.nn.softmax(x, 1), 5), lambda x: softmax(x.swapaxes(1, -1)).swapaxes(1, -1),
    ),
    "softmax across an open size": (
        lambda: create_prim_func([x := tensor("x", m(), n(), 7), topi.nn.softmax(x, 1)]),
        lambda x: softmax(x.swapaxes(1, -1)).swapaxes(1, -1),
    ),
    "norm": (lambda: of_two(normed), lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + 1)),
    "row sums": (lambda: of_two(lambda x: topi.sum(x, -1, True)), lambda x: x.sum(-1, keepdims=True)),
    "largest of rows": (lambda: of_two(lambda x: topi.argmax(x, 1)), lambda x: x.argmax(1)),
    "mask": (masked, lambda x, y: x + y),
    "transposed": (lambda: of_two(lambda x: topi.transpose(x, (1, 0))), lambda x: x.T),
    "open size inside": (
        lambda: create_prim_func([x := tensor("x", 2, n(), 3, 8), topi.transpose(x, (0, 2, 1, 3))]),
        lambda x: x.transpose(0, 2, 1, 3),
    ),
    "joined": (joined, lambda x, y: np.concatenate([x, y], 1)),
    "running sums": (lambda: of_two(lambda x: cumsum(x, 1, False)), lambda x: x.cumsum(1)),
    "running sums across": (lambda: of_two(lambda x: topi.nn.relu(cumsum(x, 0, True)), 3), sums_before),
    "attention": (open_attention, all_seen),
    "attention of one query": (lambda: open_attention(queries=1), all_seen),
    "attention of three queries": (lambda: open_attention(queries=3), all_seen),
    "attention of one query on tensor cores": (lambda: open_attention("float16", queries=1), all_seen),
    "attention with a mask": (with_mask, masked_attention),
    "causal attention": (lambda: open_attention(causal="TopLeft"), attention_of),
    "attention on tensor cores": (lambda: open_attention("float16"), all_seen),
    "causal attention on tensor cores": (lambda: open_attention("float16", "TopLeft"), attention_of),
    "convolution": (lambda: of_images(4, 9, 3), convolved),
    "many channels": (lambda: of_images(16, 16, 3), convolved),
    "pixels alone": (lambda: of_images(16, 24, 1), convolved),
    "depthwise": (lambda: of_images(6, 6, 3, 6), convolved),
    "pool": (lambda: create_prim_func([x := tensor("x", 2, 3, n(), m()), pool(x)]), pooled),
}  # fmt: skip
OPEN_SIZES = ((1, 1), (2, 1), (1, 5), (7, 3), (33, 19), (5, 130))


@spread(6, "case", INNER)
def test_inner_sizes_come_with_the_call(case: str) -> None:
    make, reference = INNER[case]
    kernel = compiled(make())
    assert kernel.sized is not None
    for sizes in OPEN_SIZES if "conv" not in case else OPEN_SIZES[:5]:
        given = dict(zip("nm", sizes), b=2)
        at = kernel.at(tuple(given[name] for name in kernel.sized.names))
        inputs = [RNG.standard_normal(a.shape).astype(a.dtype) for a in at.inputs]
        expected = reference(*(x.astype("float64") for x in inputs))
        for order in ("late", "ahead"):
            out = np.full(
                at.outputs[0].shape, np.nan if at.outputs[0].dtype.startswith("f") else -1, at.outputs[0].dtype
            )
            run_kernel(at, [*inputs, out], order=order)
            near = 2e-3 if out.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(out, expected, rtol=near, atol=10 * near, err_msg=f"{given}")


@spread(6, "case", INNER, first=3)
def test_inner_sizes_become_machine_code_without_a_stack(case: str) -> None:
    """What needs a stack or spills registers is refused by the assembler."""
    archs = ["sm_75", "sm_80", "sm_90a", "sm_120"]
    arch = "sm_80" if "tensor cores" in case else "sm_75"
    assert add_images(compiled(INNER[case][0](), Target(f"cuda -arch={arch}")), archs[archs.index(arch) :]).images


def images(shape: str, channels: int, out: int, kernel: int, dtype: str, groups: int = 1) -> PrimFunc:
    """A convolution with a bias; `shape` has images, height and width, those with names are open."""
    sizes = [te.var(s, dtype="int64") if s.isalpha() else tir.const(int(s), "int64") for s in shape.split()]
    x = te.placeholder([sizes[0], tir.const(channels, "int64"), *sizes[1:]], dtype=dtype, name="x")
    w = tensor("w", out, channels // groups, kernel, kernel, dtype=dtype)
    wide = "int32" if dtype == "int8" else dtype
    bias = tensor("bias", out, 1, 1, dtype=wide)
    if groups == 1:
        made = topi.nn.conv2d(x, w, 1, kernel // 2, 1, "NCHW", out_dtype=wide)
    else:
        made = topi.nn.group_conv2d_nchw(x, w, 1, kernel // 2, 1, groups)
    return create_prim_func([x, w, bias, topi.nn.relu(topi.add(made, bias))])


@spread(
    2,
    "shape, channels, out, kernel, dtype, groups",
    [
        ("b h w", 16, 24, 3, "float16", 1),
        ("b 9 11", 32, 24, 3, "bfloat16", 1),
        ("2 6 w", 32, 40, 3, "float16", 1),
        ("b h w", 64, 40, 1, "float16", 1),
        ("b 8 8", 64, 40, 1, "float16", 1),
        ("1 h w", 64, 64, 3, "float16", 2),
        ("b h w", 32, 24, 3, "int8", 1),
    ],
)
def test_convolutions_of_open_images_are_on_tensor_cores(
    shape: str, channels: int, out: int, kernel: int, dtype: str, groups: int
) -> None:
    """Small whole numbers, whose sums are exact; pixels of several images share a tile, the last one is ragged."""
    target = Target("cuda -arch=sm_80")
    applied = schedule_sizes(images(shape, channels, out, kernel, dtype, groups), target)
    made = compile_func(applied.func, target, name="kernel").kernel
    assert isinstance(made, CudaKernel) and made.sized is not None and "mma.sync" in made.ptx
    assert kernel == 1 or any(applied.packs)
    for sizes in ({"b": 1, "h": 1, "w": 1}, {"b": 3, "h": 8, "w": 16}, {"b": 2, "h": 17, "w": 9}):
        numbers = [int(sizes.get(s, s)) for s in shape.split()]
        at = made.at(tuple(sizes[name] for name in made.sized.names))
        x, w, bias = (
            RNG.integers(-1, 2, given).astype("float64")
            for given in ((numbers[0], channels, *numbers[1:]), (out, channels // groups, kernel, kernel), (out, 1, 1))
        )
        expected = np.maximum(_sums(x, w) + bias, 0)
        wide = at.outputs[0].dtype
        given = [x.astype(dtype), w.astype(dtype), bias.astype(wide)]
        packed = [a if p is None else p.pack(a) for a, p in zip(given, applied.packs, strict=False)]
        for order in ("late", "ahead"):
            result = np.full(expected.shape, 99).astype(wide)
            run_kernel(at, [*packed, result], order=order)
            np.testing.assert_array_equal(result, expected.astype(wide))


def test_windows_in_shared_memory_take_an_open_number_of_images() -> None:
    """A packed weight is what all images read."""
    target = Target("nvidia/nvidia-h200")
    applied = schedule_sizes(images("b 56 56", 64, 64, 3, "float16"), target)
    made = compile_func(applied.func, target, name="kernel").kernel
    assert isinstance(made, CudaKernel) and "mma.sync" in made.ptx
    assert [packed is not None for packed in applied.packs] == [False, True, False, False]
    assert made.at((3,)).launches[0].grid[0] == 3 * made.at((1,)).launches[0].grid[0]


@spread(2, "shape, axis", [("n", 0), ("m n", 1), ("n 3", 0)], first=1)
def test_long_lines_of_running_sums_are_shared_by_blocks(shape: str, axis: int) -> None:
    """Short lines have one launch; the parts of long ones are as many as there are tiles, or as SMs want."""
    open_sizes = {"n": n(), "m": m()}
    x = tensor("x", *(open_sizes[s] if s in open_sizes else int(s) for s in shape.split()), dtype="int32")
    kernel = compiled(create_prim_func([x, cumsum(x, axis, True)]))
    assert kernel.sized is not None
    tile = 1024 if axis == len(shape.split()) - 1 else 256
    for length in (1, 4 * tile, 4 * tile + 1, 9 * tile):
        at = kernel.at(tuple({"n": length, "m": 3}[name] for name in kernel.sized.names))
        grids = [at.launches[call[0]].grid[0] for call in at.calls]
        lines, parts = 3 if "m" in shape else 1, -(-length // tile)
        if "m" not in shape:
            assert grids == ([1] if length <= 4 * tile else [parts, 1, parts])
        else:
            assert grids == [lines] or grids[1] == lines
        given = RNG.integers(-3, 4, at.inputs[0].shape).astype("int32")
        for order in ("late", "ahead"):
            out = np.full_like(given, 99)
            run_kernel(at, [given, out], order=order)
            np.testing.assert_array_equal(out, given.cumsum(axis) - given)
    most = {"n": 1 << 24, "m": 1}
    at = kernel.at(tuple(most[name] for name in kernel.sized.names))
    assert TARGET.gpu.sm_count < at.launches[next(iter(at.calls))[0]].grid[0] <= 2 * TARGET.gpu.sm_count
    if "m" in shape:  # lines enough for all SMs
        at = kernel.at(tuple({"n": 5000, "m": 3000}[name] for name in kernel.sized.names))
        assert len(list(at.calls)) == 1


def test_one_of_an_open_number_of_queries_has_launches_of_its_own() -> None:
    kernel = compiled(open_attention())
    assert kernel.sized is not None

    def launched(queries: int) -> list[int]:
        numbers = {"b": 2, "n": 5000, "m": queries}
        return [i for i, _ in kernel.at(tuple(numbers[name] for name in kernel.sized.names)).calls]

    alone, others = launched(1), launched(2)
    assert alone and others and not {*alone} & {*others} and launched(700) == others
    assert len(kernel.launches) == len(alone) + len(others)


def test_many_heads_are_no_long_axis_of_a_grid() -> None:
    kernel = compiled(open_attention())
    assert kernel.sized is not None
    numbers = tuple({"b": 40000, "n": 3, "m": 2}[name] for name in kernel.sized.names)
    assert 80000 in [launch.grid[0] for launch in kernel.at(numbers).launches]


def test_an_image_that_a_pool_leaves_nothing_of_is_refused() -> None:
    x = tensor("x", 1, 2, n(), 8)
    kernel = compiled(create_prim_func([x, topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")]))
    assert kernel.at((2,)).outputs[0].shape == (1, 2, 1, 4)
    with pytest.raises(ShapeError, match="0 blocks along x"):
        kernel.at((1,))


def test_memory_between_launches_grows_with_the_sizes() -> None:
    """Element i of the second launch's input was computed by another thread of the first one."""
    x = tensor("x", n(), 4)
    doubled = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="doubled")
    turned = te.compute(x.shape, lambda i, j: doubled[x.shape[0] - 1 - i, 3 - j] + 1.0, name="turned")
    again = te.compute(x.shape, lambda i, j: turned[x.shape[0] - 1 - i, j] + doubled[i, j], name="again")
    sch = tir.Schedule(create_prim_func([x, again]))
    for block in ("doubled", "turned", "again"):
        rows, columns = sch.get_loops(block)
        sch.bind(rows, "blockIdx.x")
        sch.bind(columns, "threadIdx.x")
    kernel = compile_func(sch.func, TARGET, name="kernel").kernel
    assert isinstance(kernel, CudaKernel) and len(kernel.launches) == 3
    for size in SIZES:
        at = kernel.at((size,))
        assert at.scratch_bytes == 2 * -(-16 * size // 64) * 64
        given, out = RNG.standard_normal((size, 4)).astype("float32"), np.full((size, 4), np.nan, "float32")
        run_kernel(at, [given, out])
        np.testing.assert_allclose(out, 2 * given[:, ::-1] + 1 + 2 * given, rtol=1e-6)
    with pytest.raises(ShapeError, match="bytes between launches"):
        kernel.at((1 << 25,))
