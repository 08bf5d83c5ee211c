"""The sections of `make gpu-check`: what each measures, against whom, and the bar that it is held against."""

from __future__ import annotations

import contextlib
import functools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched import te, topi
from autosched.errors import AutoschedError
from autosched.records import FallbackContext
from autosched.runtime import array, cuda
from autosched.runtime.cuda.devices import driver_of
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.tir import PrimFunc

ROUNDS, ROUND_S = 7, 0.01
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Row:
    """One line of a table: seconds of ours and of the peer, and a rate in units of its own."""

    what: str
    ours_s: float | None = None
    peer_s: float | None = None
    rate: str = ""
    note: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def read(document: dict[str, Any]) -> Row:
        return Row(**{name: document[name] for name in ("what", "ours_s", "peer_s", "rate", "note")})

    def cells(self) -> list[str]:
        ratio = f"{self.peer_s / self.ours_s:.3f}" if self.ours_s and self.peer_s else "—"
        return [self.what, _time(self.ours_s), _time(self.peer_s), ratio, self.rate or "—", self.note or "—"]


def _time(seconds: float | None) -> str:
    return "—" if seconds is None else f"{seconds * 1e6:.2f} µs"


@dataclass(frozen=True)
class Case:
    """One measurement of a section."""

    name: str
    run: Callable[[Bench], list[Row]]


@dataclass(frozen=True)
class Section:
    """Cases with a time limit for all together; `bar` is what the ratio, peer's time over ours, has to reach."""

    title: str
    bar: str
    limit_s: float
    cases: Callable[[Bench], Iterable[Case]]


@dataclass(frozen=True)
class Bench:
    """Where things run; `is_tiny`: on the emulator, for the code's sake."""

    target_text: str
    is_tiny: bool = False

    @property
    def target(self) -> Target:
        return Target(self.target_text)

    def size(self, full: int, tiny: int = 16) -> int:
        """A size of a workload."""
        return tiny if self.is_tiny else full

    @functools.cached_property
    def torch(self) -> Any:
        """PyTorch, where it sees the device; None elsewhere."""
        if self.is_tiny:
            return None
        with contextlib.suppress(ImportError):
            import torch

            return torch if torch.cuda.is_available() else None
        return None


def normal(shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(tuple(shape)).astype(dtype)


def prepared(bench: Bench, func: PrimFunc) -> tuple[Any, list[Any]]:
    """A built function and its arguments on the device: inputs of normal numbers, outputs of zeros."""
    module = autosched.build(func, target=bench.target, records=FallbackContext())
    function = module.entry_func
    arrays = [
        array(normal(arg.shape, arg.dtype) if arg.role == "input" else np.zeros(arg.shape, arg.dtype), cuda(0))
        for arg in function.args
    ]
    return function, arrays


def torch_seconds(torch: Any, call: Callable[[], Any], number: int) -> float:
    """The device's time of so many calls."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(number):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) * 1e-3


def in_turn(bench: Bench, ours: Callable[[int], float], peer: Callable[[int], float] | None) -> tuple[float, Any]:
    """Median seconds of a call of both, measured in turn."""
    ours(1)
    number = 1 if bench.is_tiny else max(1, min(1000, int(ROUND_S / max(ours(3) / 3, 1e-7))))
    if peer is not None:
        peer(2)
    times: tuple[list[float], list[float]] = [], []
    for _ in range(2 if bench.is_tiny else ROUNDS):
        times[0].append(ours(number) / number)
        if peer is not None:
            times[1].append(peer(number) / number)
    return statistics.median(times[0]), statistics.median(times[1]) if peer is not None else None


def against(
    bench: Bench, name: str, func: PrimFunc, peer: Callable[[Any, list[Any]], Callable[[], Any]] | None,
    flops: float = 0, size_bytes: float = 0,
) -> list[Row]:  # fmt: skip
    """A function beside PyTorch's on the same data: `peer` gives, of torch and its inputs, what is called."""
    function, arrays = prepared(bench, func)
    torch, call = bench.torch, None
    if torch is not None and peer is not None:
        tensors = [torch.from_dlpack(a) for a in arrays[:-1]]
        call = peer(torch, tensors)
    timed = None if call is None else functools.partial(torch_seconds, torch, call)
    ours, theirs = in_turn(bench, lambda number: function.seconds(arrays, number), timed)
    rate = (
        f"{flops / ours / 1e12:.2f} TFLOP/s" if flops else f"{size_bytes / ours / 1e9:.0f} GB/s" if size_bytes else ""
    )
    return [Row(name, ours, theirs, rate)]


# Functions


def matmul_func(m: int, k: int, n: int, dtype: str = "float32") -> PrimFunc:
    a, b = te.placeholder((m, k), dtype=dtype, name="A"), te.placeholder((k, n), dtype=dtype, name="B")
    return create_prim_func([a, b, topi.matmul(a, b)])


def conv_func(batch: int, channels: int, size: int, out: int, kernel: int, stride: int, dtype: str) -> PrimFunc:
    data = te.placeholder((batch, channels, size, size), dtype=dtype, name="data")
    weight = te.placeholder((out, channels, kernel, kernel), dtype=dtype, name="weight")
    return create_prim_func([data, weight, topi.nn.conv2d(data, weight, stride, kernel // 2, 1, "NCHW")])


def of(shape: Sequence[int], compute: Callable[[Any], Any], dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(tuple(shape), dtype=dtype, name="x")
    return create_prim_func([x, compute(x)])


# Sections


def correctness(bench: Bench) -> Iterable[Case]:
    s = bench.size
    cases: dict[str, tuple[PrimFunc, Callable[..., np.ndarray]]] = {
        "matmul float32": (matmul_func(s(1024), s(1024), s(1024)), lambda a, b: a @ b),
        "matmul odd sizes": (matmul_func(s(701, 7), s(67, 9), s(1311, 11)), lambda a, b: a @ b),
        "matmul float16": (matmul_func(s(1024), s(1024), s(1024), "float16"), lambda a, b: a @ b),
        "softmax": (of((s(4096, 3), s(1000, 37)), lambda x: topi.softmax(x, -1)), _softmax),
        "sum of rows": (of((s(4096, 5), s(4097, 41)), lambda x: topi.sum(x, -1)), lambda x: x.sum(-1)),
        "sum of columns": (of((s(4097, 41), s(1000, 7)), lambda x: topi.sum(x, 0)), lambda x: x.sum(0)),
        "exp": (of((s(1 << 22, 301),), topi.exp), np.exp),
        "transpose": (of((s(1000, 5), s(3000, 33)), lambda x: topi.transpose(x, (1, 0))), np.transpose),
        "conv2d": (conv_func(1, s(64, 4), s(56, 6), s(64, 5), 3, 1, "float32"), _conv),
    }
    for name, (func, truth) in cases.items():
        yield Case(name, functools.partial(_check, name=name, func=func, truth=truth))
    yield Case("compute-sanitizer", _sanitize)


def _check(bench: Bench, name: str, func: PrimFunc, truth: Callable[..., np.ndarray]) -> list[Row]:
    function, arrays = prepared(bench, func)
    function(*arrays)
    *inputs, found = (a.numpy() for a in arrays)
    expected = truth(*(x.astype("float64") for x in inputs))
    error = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
    allowed = {"float16": 5e-3}.get(str(found.dtype), 1e-5)
    verdict = "right" if np.isfinite(found).all() and error <= allowed else "WRONG"
    return [Row(name, rate=f"error {error:.1e}", note=verdict)]


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _conv(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    pad = weight.shape[2] // 2
    padded = np.pad(data, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True))


def _sanitize(bench: Bench) -> list[Row]:
    """A sample of kernels under compute-sanitizer's three tools."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return [Row("compute-sanitizer", note="not installed")]
    rows = []
    code = (
        "from benchmarks.gpu_sections import *\n"
        f"b = Bench({bench.target_text!r})\n"
        "for f in (matmul_func(70, 67, 131), of((33, 1000), lambda x: topi.softmax(x, -1)), of((1001,), topi.exp)):\n"
        "    function, arrays = prepared(b, f); function(*arrays); arrays[-1].numpy()\n"
    )
    for name in ("memcheck", "racecheck", "synccheck"):
        command = [tool, "--tool", name, "--error-exitcode", "7", sys.executable, "-c", code]
        folder = Path(__file__).parents[1]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False, cwd=folder)
            verdict = "clean" if done.returncode == 0 else f"exit {done.returncode}: {done.stdout[-200:]}"
        except subprocess.TimeoutExpired:
            verdict = "no answer after 40 s"
        rows.append(Row(name, note=verdict))
    return rows


def _matmul_case(name: str, m: int, k: int, n: int, dtype: str, tf32: bool = False) -> Case:
    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = tensors
        out = torch.empty((m, n), dtype=a.dtype, device="cuda")
        return lambda: torch.matmul(a, b, out=out)

    return Case(name, lambda bench: against(bench, name, matmul_func(m, k, n, dtype), peer, flops=2.0 * m * n * k))


def simt(bench: Bench) -> Iterable[Case]:
    for n in (1024, 2048, 4096, 8192):
        n = bench.size(n, n // 64)
        yield _matmul_case(f"float32 {n}³", n, n, n, "float32")


def tensor_cores(bench: Bench) -> Iterable[Case]:
    for dtype in ("float16", "bfloat16"):
        for n in (4096, 8192):
            n = bench.size(n, n // 128)
            yield _matmul_case(f"{dtype} {n}³", n, n, n, dtype)


def small_m(bench: Bench) -> Iterable[Case]:
    n = bench.size(4096, 32)
    for m in (1, 4, 16, 64):
        yield _matmul_case(f"float16 {m}×{n}²", m, n, n, "float16")


RESNET50 = ((3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (256, 56, 128, 1, 1), (128, 28, 128, 3, 1),
            (512, 28, 256, 1, 1), (256, 14, 256, 3, 1), (1024, 14, 512, 1, 1), (512, 7, 512, 3, 1))  # fmt: skip


def convolutions(bench: Bench) -> Iterable[Case]:
    for dtype in ("float32", "float16"):
        for batch in (1, 32):
            for channels, size, out, kernel, stride in RESNET50:
                shape = (bench.size(batch, 1), bench.size(channels, 4), bench.size(size, 8), bench.size(out, 4))
                yield _conv_case(*shape, kernel, stride, dtype)
                if bench.is_tiny:
                    break


def _conv_case(batch: int, channels: int, size: int, out: int, kernel: int, stride: int, dtype: str) -> Case:
    name = f"{dtype} n{batch} {channels}-{out} {size}² k{kernel} s{stride}"
    flops = 2.0 * batch * out * channels * kernel**2 * (size // stride) ** 2

    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
        data, weight = tensors
        return lambda: torch.nn.functional.conv2d(data, weight, stride=stride, padding=kernel // 2)

    func = functools.partial(conv_func, batch, channels, size, out, kernel, stride, dtype)
    return Case(name, lambda bench: against(bench, name, func(), peer, flops=flops))


def attention(bench: Bench) -> Iterable[Case]:
    for length in (1024, 8192):
        for width in (64, 128):
            for causal in (False, True):
                yield _attention_case(bench.size(length, 8), bench.size(width, 8), causal)


def _attention_case(length: int, width: int, causal: bool) -> Case:
    name, heads = f"float16 {length} d{width}{' causal' if causal else ''}", 2 if length < 64 else 16

    def run(bench: Bench) -> list[Row]:
        shape = (1, heads, length, width)
        q, k, v = (te.placeholder(shape, dtype="float16", name=x) for x in "qkv")
        made = topi.attention(q, k, v, None, width**-0.5, "TopLeft" if causal else None, layouts=("BHSD",) * 4)
        func = create_prim_func([q, k, v, made])

        def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
            return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)

        flops = 4.0 * heads * length * length * width / (2 if causal else 1)
        return against(bench, name, func, peer, flops=flops)

    return Case(name, run)


def memory_bound(bench: Bench) -> Iterable[Case]:
    s = bench.size
    rows, width = s(8192, 8), s(4096, 64)
    yield Case("copy (the device's own)", functools.partial(_copy, size_bytes=4 * rows * width))
    shape, size = (rows, width), 4.0 * rows * width
    cases: dict[str, tuple[Callable[[Any], Any], Any, float]] = {
        "softmax": (lambda x: topi.softmax(x, -1), lambda t, x: t.softmax(x, -1), 2 * size),
        "gelu": (topi.gelu, lambda t, x: t.nn.functional.gelu(x), 2 * size),
        "transpose": (lambda x: topi.transpose(x, (1, 0)), lambda t, x: x.t().contiguous(), 2 * size),
        "sum of rows": (lambda x: topi.sum(x, -1), lambda t, x: x.sum(-1), size),
        "sum of columns": (lambda x: topi.sum(x, 0), lambda t, x: x.sum(0), size),
    }
    for name, (compute, torch_call, moved) in cases.items():

        def peer(torch: Any, tensors: list[Any], call: Any = torch_call) -> Callable[[], Any]:
            return lambda: call(torch, tensors[0])

        func = functools.partial(of, shape, compute)
        yield Case(name, lambda b, n=name, f=func, p=peer, m=moved: against(b, n, f(), p, size_bytes=m))  # type: ignore[misc]


def _copy(bench: Bench, size_bytes: int) -> list[Row]:
    driver = driver_of(0)
    a, b = driver.allocate(size_bytes), driver.allocate(size_bytes)

    def ours(number: int) -> float:
        first = driver.record()
        for _ in range(number):
            driver.copy_on(b.address, a.address, size_bytes)
        return driver.seconds_between(first, driver.record())

    driver.fill(a.address, 0, size_bytes)
    seconds, _ = in_turn(bench, ours, None)
    return [Row("copy (the device's own)", seconds, rate=f"{2 * size_bytes / seconds / 1e9:.0f} GB/s")]


def models(bench: Bench) -> Iterable[Case]:
    names = ("mlp",) if bench.is_tiny else ("resnet18", "mobilenet_v2", "bert")
    for name in names:
        for batch in (1,) if bench.is_tiny else (1, 32):
            yield Case(f"{name} batch {batch}", functools.partial(_model, name=name, batch=batch))


def _model(bench: Bench, name: str, batch: int) -> list[Row]:
    try:
        import torch

        from autosched.frontend.torch import from_exported_program
        from benchmarks import torch_models
    except ImportError as error:
        return [Row(name, note=f"{error.name} is missing")]
    module = getattr(torch_models, name)().eval()
    example = torch_models.example(name, batch)
    exported = torch.export.export(module, (example,))
    imported = from_exported_program(exported, unwrap_unit_return_tuple=True)
    model = autosched.build(imported, target=bench.target, records=FallbackContext())
    executor = model.create_executor()
    executor.set_input(model.inputs[0].name, example.numpy())
    peer = None
    if bench.torch is not None:
        compiled = torch.compile(module.cuda(), mode="max-autotune")
        given = example.cuda()

        def peer(number: int) -> float:
            with torch.no_grad():
                return torch_seconds(torch, lambda: compiled(given), number)

    ours, theirs = in_turn(bench, executor.program.seconds, peer)
    return [Row(f"{name} batch {batch}", ours, theirs, note=f"{len(model.kernels)} kernels")]


def overhead(bench: Bench) -> Iterable[Case]:
    yield Case("a graph of 100 kernels", _overhead)


def _overhead(bench: Bench) -> list[Row]:
    """The executor's own part of a chain of kernels that do next to nothing: the host's time of giving them out."""
    from autosched.runtime.cuda.program import CudaProgram
    from autosched.runtime.graph import Graph, Node, Storage, Value

    n, size = 4 if bench.is_tiny else 100, 64
    module = autosched.build(of((size,), topi.exp), target=bench.target, records=FallbackContext())
    (key, kernel), *_ = module.kernels.items()
    places = [Storage("input", 0), *(Storage("arena", 256 * (i % 2)) for i in range(n - 1)), Storage("output", 0)]
    values = tuple(Value(f"v{i}", (size,), "float32", place) for i, place in enumerate(places))
    nodes = tuple(Node(f"n{i}", key, (i,), (i + 1,)) for i in range(n))
    program = CudaProgram(Graph(values, nodes, (0,), (n,), 512), {key: kernel}, (), cuda(0))
    program.allocate(0)
    program.allocate(n)
    for _ in range(3):
        program.run()
    program.synchronize()
    start, repeats = time.perf_counter(), 2 if bench.is_tiny else 50
    for _ in range(repeats):
        program.run()
    host_s = (time.perf_counter() - start) / repeats / n
    program.synchronize()
    return [Row("host, a kernel", host_s), Row("device, a kernel", program.seconds(repeats) / repeats / n)]


def tuning(bench: Bench) -> Iterable[Case]:
    yield Case("matmul", _tune)


def _tune(bench: Bench) -> list[Row]:
    """Trials a second of compiling and measuring, and the best of them beside the default."""
    from autosched.templates import apply_config, default_config, space_for

    size, wanted = bench.size(2048, 16), 2 if bench.is_tiny else 60
    func = matmul_func(size, size, size)
    configs = [default_config(func, bench.target), *space_for(func, bench.target).sample(0, wanted)]
    times: list[tuple[float, Any]] = []
    start, failed = time.monotonic(), 0
    for config in configs:
        try:
            module = autosched.build(
                apply_config(func, config, bench.target).func, target=bench.target, records=FallbackContext()
            )
            arrays = [array(normal(arg.shape, arg.dtype), cuda(0)) for arg in module.entry_func.args]
            seconds, _ = in_turn(bench, lambda number, m=module, a=arrays: m.entry_func.seconds(a, number), None)
            times.append((seconds, config))
        except AutoschedError:
            failed += 1
        if time.monotonic() - start > 45:
            break
    spent = time.monotonic() - start
    done = len(times) + failed
    if not times:
        return [Row("trials", note=f"all of {failed} failed")]
    best, chosen = min(times, key=lambda pair: pair[0])
    return [
        Row("trials, one process", rate=f"{done / spent:.1f} a second", note=f"{failed} failed"),
        Row("default / best", best, times[0][0], rate=f"{times[0][0] / best:.2f}", note=str(chosen)[:150]),
    ]


SECTIONS: dict[str, Section] = {
    "correctness": Section("All templates at full sizes, and compute-sanitizer", "all clean", 90, correctness),
    "simt": Section("float32 without tensor cores / cuBLAS", "≥ 0.95", 60, simt),
    "tensor": Section("f16, bf16 / cuBLAS", "≥ 0.90", 60, tensor_cores),
    "small-m": Section("Few rows, f16 / cuBLAS", "≥ 1.1", 30, small_m),
    "conv": Section("Convolutions of ResNet-50 / cuDNN's best algorithm", "≥ 1.0 geometric mean", 90, convolutions),
    "attention": Section("Attention / the best of PyTorch's", "≥ 0.90", 40, attention),
    "memory": Section("Bound by memory / PyTorch, and the copy bandwidth", "≥ 0.92 of the copy", 30, memory_bound),
    "models": Section("Models / torch.compile max-autotune", "≥ 1.2 at batch 1, ≥ 1.0 at 32", 120, models),
    "overhead": Section("A graph of 100 kernels", "≤ 1 µs a kernel", 15, overhead),
    "tuning": Section("Tuning a matmul", "≥ 10 trials a second; default / best ≤ 1.25", 60, tuning),
}
