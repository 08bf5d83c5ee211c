"""The sections of `make gpu-check`: what each measures, against whom, and the bar that it is held against."""

from __future__ import annotations

import contextlib
import copy
import functools
import gzip
import itertools
import math
import operator
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched import relax, te, topi
from autosched.driver import TuneOptions
from autosched.errors import AutoschedError
from autosched.records import FallbackContext
from autosched.relax.op.registry import get_op
from autosched.runtime import array, cuda
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.dynamic import DynamicExecutable
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.templates.base import Estimates
from autosched.templates.tf32 import SHARE, TF32, allows_tf32, with_tf32
from autosched.tir import PrimFunc, Var
from autosched.topi.sort import argsort, cumsum, take_along
from benchmarks.machine import RESULTS

ROUNDS, ROUND_S, MOST_CALLS = 7, 0.01, 200
AROUND_S = 8.0  # for the configurations near one default
PEER_ERROR = 2e-2  # of the largest number: sums of float16 in another order are within it
SANITIZER_S = 30  # for each of its tools
TUNING_S = 12.0  # the budget of a function
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
    run: Callable[[Bench], Iterable[Row]]  # each is written as soon as it is there


@dataclass(frozen=True)
class Section:
    """Cases with a time limit for all together; `bar` is what the ratio, peer's time over ours, has to reach."""

    title: str
    bar: str
    limit_s: float
    cases: Callable[[Bench], Iterable[Case]]


class Prepared(Exception):
    """What a case builds is in the kernel cache now."""


@dataclass(frozen=True)
class Bench:
    """Where things run.

    is_tiny      on the emulator, for the code's sake
    only_builds  cases end, by `Prepared`, as soon as their kernels are built
    around       how many configurations near the defaults are measured besides
    rows         a regular expression that the names of cases hold
    """

    target_text: str
    is_tiny: bool = False
    only_builds: bool = False
    around: int = 0
    rows: str = ""

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
    return RNG.standard_normal(tuple(shape), dtype="float32").astype(dtype)


def prepared(bench: Bench, func: PrimFunc) -> tuple[Any, list[Any]]:
    """A built function and its arguments on the device: inputs of normal numbers, outputs of zeros."""
    module = autosched.build(func, target=bench.target, records=FallbackContext())
    if bench.only_builds:
        raise Prepared
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


def replayed(function: Any, arrays: Sequence[Any]) -> Callable[[int], float]:
    """The device's time of so many calls of ours in one CUDA graph, so that no launch waits for the host."""
    function(*arrays)
    program, driver = function.program, driver_of(0)
    nodes = range(len(program.graph.nodes))

    @functools.cache
    def graph(number: int) -> Callable[[], None]:
        made = driver.capture(lambda: program.run_nodes(nodes, number))
        assert made is not None, "every device has graphs"
        made()
        return made

    def seconds(number: int) -> float:
        replay, first = graph(number), driver.record()
        replay()
        return driver.seconds_between(first, driver.record())

    return seconds


def torch_replayed(torch: Any, call: Callable[[], Any]) -> Callable[[int], float]:
    """The same for PyTorch's."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()

    @functools.cache
    def graph(number: int) -> Any:
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            for _ in range(number):
                call()
        made.replay()
        return made

    return lambda number: torch_seconds(torch, graph(number).replay, 1)


def in_turn(
    bench: Bench, ours: Callable[[int], float], peer: Callable[[int], float] | None, rounds: int = ROUNDS
) -> tuple[float, Any]:
    """Median seconds of a call of both, measured in turn."""
    ours(1)
    number = 1 if bench.is_tiny else max(1, min(MOST_CALLS, int(ROUND_S / max(ours(3) / 3, 1e-7))))
    ours(number)
    if peer is not None:
        peer(number)
    times: tuple[list[float], list[float]] = [], []
    for _ in range(2 if bench.is_tiny else rounds):
        times[0].append(ours(number) / number)
        if peer is not None:
            times[1].append(peer(number) / number)
    return statistics.median(times[0]), statistics.median(times[1]) if peer is not None else None


def difference(torch: Any, ours: Any, theirs: Any) -> str:
    """How far two results are apart, over the largest number of the second: what is more than rounding says so."""
    ours, theirs = (x.detach().to("cuda", torch.float64) for x in (ours, theirs))
    most = float(theirs.abs().max())
    error = float((ours - theirs).abs().max()) / max(most, 1e-30)
    return f"{error:.1e} from the peer's" + ("" if error <= PEER_ERROR else ": WRONG")


def against(
    bench: Bench, name: str, func: PrimFunc, peer: Callable[[Any, list[Any]], Callable[[], Any]] | None,
    flops: float = 0, size_bytes: float = 0,
) -> list[Row]:  # fmt: skip
    """A function beside PyTorch's on the same data: `peer` gives, of torch and its inputs, what is called."""
    if bench.only_builds:
        for _ in _measure_around(bench, name, func, []):
            pass
    function, arrays = prepared(bench, func)
    torch, timed, note = bench.torch, None, ""
    if torch is not None and peer is not None:
        call = peer(torch, [torch.from_dlpack(a) for a in arrays[:-1]])
        function(*arrays)
        note = difference(torch, torch.from_dlpack(arrays[-1]), call())
        timed = torch_replayed(torch, call)
    ours, theirs = in_turn(bench, replayed(function, arrays), timed)
    rate = (
        f"{flops / ours / 1e12:.2f} TFLOP/s" if flops else f"{size_bytes / ours / 1e9:.0f} GB/s" if size_bytes else ""
    )
    return [Row(name, ours, theirs, rate, note), *_measure_around(bench, name, func, arrays)]


def _measure_around(bench: Bench, name: str, func: PrimFunc, arrays: list[Any]) -> Iterator[Row]:
    """Configurations near the defaults of the templates that match, on the same data; wrong ones say so."""
    torch, deadline = bench.torch, time.monotonic() + AROUND_S
    expected = torch.from_dlpack(arrays[-1]).clone() if torch is not None and bench.around else None
    for config in near_defaults(func, bench.target, bench.around):
        what, note = f"{name}: {config}", ""
        try:
            scheduled = apply_config(func, config, bench.target).func
            entry = autosched.build(scheduled, target=bench.target, records=FallbackContext()).entry_func
            if bench.only_builds:
                continue
            given = [
                a if a.shape == arg.shape else array(normal(arg.shape, arg.dtype), cuda(0))
                for a, arg in zip(arrays, entry.args, strict=True)
            ]
            if expected is not None and all(map(operator.is_, given, arrays)):
                entry(*arrays)
                note = difference(torch, torch.from_dlpack(arrays[-1]), expected)
            yield Row(what, in_turn(bench, replayed(entry, given), None, rounds=3)[0], note=note)
        except AutoschedError as problem:
            yield Row(what, note=f"{type(problem).__name__}: {problem.line[:150]}")
        if not bench.only_builds and time.monotonic() > deadline:
            return


def near_defaults(func: PrimFunc, target: Target, most: int) -> list[Config]:
    """At most so many configurations that differ from a template's default in one knob or two.

    Templates take turns, but for those whose default is estimated to take more than twice the time of the best. Weights
    that a configuration packs are drawn anew, packed.
    """
    matches = templates_for(func, target) if most else ()
    defaults = [(t, anchor, t.default(anchor, target)) for t, anchor in matches]
    cycles = [t.estimate(a, config, target) if isinstance(t, Estimates) else math.inf for t, a, config in defaults]
    queues = [
        _near(template.space(anchor, target), config)
        for (template, anchor, config), estimate in zip(defaults, cycles, strict=True)
        if estimate <= 2 * min(cycles)
    ]
    taken = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    return list(itertools.islice((config for config in taken if config is not None), most))


def _near(space: ConfigSpace, start: Config) -> Iterator[Config]:
    """The configuration itself, those that differ in one knob, and those that differ in two, in a random order."""
    rng, seen = np.random.default_rng(0), {start}
    yield start
    once = space.neighbours(start)
    once = [once[i] for i in rng.permutation(len(once))]
    twice = [near for config in once for near in space.neighbours(config)]
    for config in [*once, *(twice[i] for i in rng.permutation(len(twice)))]:
        if config not in seen:
            seen.add(config)
            yield config


# Functions


def matmul_func(m: int, k: int, n: int, dtype: str = "float32") -> PrimFunc:
    """Of float16, bfloat16, float32, or "tf32": of float32 that may be rounded to it."""
    own = "float32" if dtype == TF32 else dtype
    a, b = te.placeholder((m, k), dtype=own, name="A"), te.placeholder((k, n), dtype=own, name="B")
    func = create_prim_func([a, b, topi.matmul(a, b)])
    return with_tf32(func) if dtype == TF32 else func


def conv_func(batch: int, channels: int, size: int, out: int, kernel: int, stride: int, dtype: str) -> PrimFunc:
    own = "float32" if dtype == TF32 else dtype
    data = te.placeholder((batch, channels, size, size), dtype=own, name="data")
    weight = te.placeholder((out, channels, kernel, kernel), dtype=own, name="weight")
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, stride, kernel // 2, 1, "NCHW")])
    return with_tf32(func) if dtype == TF32 else func


def of(shape: Sequence[int], compute: Callable[[Any], Any], dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(tuple(shape), dtype=dtype, name="x")
    return create_prim_func([x, compute(x)])


def take_func(rows: int, width: int, count: int) -> PrimFunc:
    x, at = te.placeholder((rows, width), "float16", name="x"), te.placeholder((count,), "int64", name="at")
    return create_prim_func([x, at, topi.take(x, at, 0, "clip")])


def scatter_func(rows: int, width: int, count: int) -> PrimFunc:
    """relu of x with updates added."""
    x, updates = te.placeholder((rows, width), name="x"), te.placeholder((count, width), name="updates")
    at = te.placeholder((count, width), "int64", name="at")
    made = get_op("scatter_elements").compute(x, at, updates, 0, "add", "clip")
    return create_prim_func([x, at, updates, topi.relu(made)])


# Sections


def correctness(bench: Bench) -> Iterable[Case]:
    s = bench.size
    cases: dict[str, tuple[PrimFunc, Callable[..., np.ndarray]]] = {
        "matmul float32": (matmul_func(s(1024), s(1024), s(1024)), lambda a, b: a @ b),
        "matmul odd sizes": (matmul_func(s(701, 7), s(67, 9), s(1311, 11)), lambda a, b: a @ b),
        "matmul float16": (matmul_func(s(1024), s(1024), s(1024), "float16"), lambda a, b: a @ b),
        "matmul float16, clusters": (matmul_func(s(2000, 16), s(1032, 8), s(2056, 24), "float16"), lambda a, b: a @ b),
        "matmul float16, last wave in parts": (
            matmul_func(s(2304, 32), s(2304, 48), s(2304, 40), "float16"),
            lambda a, b: a @ b,
        ),
        "matmul tf32": (matmul_func(s(1024, 32), s(1024), s(1024, 40), TF32), lambda a, b: a @ b),
        "softmax": (of((s(4096, 3), s(1000, 37)), lambda x: topi.softmax(x, -1)), _softmax),
        "sum of rows": (of((s(4096, 5), s(4097, 41)), lambda x: topi.sum(x, -1)), lambda x: x.sum(-1)),
        "sum of columns": (of((s(4097, 41), s(1000, 7)), lambda x: topi.sum(x, 0)), lambda x: x.sum(0)),
        "exp": (of((s(1 << 22, 301),), topi.exp), np.exp),
        "transpose": (of((s(1000, 5), s(3000, 33)), lambda x: topi.transpose(x, (1, 0))), np.transpose),
        "conv2d": (conv_func(1, s(64, 4), s(56, 6), s(64, 5), 3, 1, "float32"), _conv),
        "conv2d float16": (conv_func(1, s(64, 4), s(56, 6), s(64, 5), 3, 1, "float16"), _conv),
        "conv2d float16 batch 8": (conv_func(s(8, 2), s(64, 16), s(56, 9), s(64, 24), 3, 1, "float16"), _conv),
        "conv2d tf32": (conv_func(1, s(64, 8), s(56, 6), s(64, 8), 3, 1, TF32), _conv),
        "conv2d batch 8": (conv_func(s(8, 2), s(128, 8), s(28, 6), s(128, 8), 3, 1, "float32"), _conv),
        "depthwise": (depthwise_func(s(96, 3), s(56, 7)), lambda d, w: _conv_of(d, w)),
        "max pool": (of((1, s(64, 2), s(56, 9), s(56, 7)), max_pool), _pooled),
        "sort": (
            of((s(1000, 3), s(1000, 70)), lambda x: take_along(x, argsort(x, 1, False, "int32", None), 1)),
            lambda x: np.sort(x, 1),
        ),
        "cumsum": (of((s(100, 3), s(100_000, 70)), lambda x: cumsum(x, 1, False)), lambda x: x.cumsum(1)),
        "take": (take_func(s(30_000, 30), s(768, 24), s(4096, 7)), lambda x, at: x[_clipped(at, x)]),
        "scatter": (scatter_func(s(10_000, 30), s(64, 5), s(5000, 9)), _scattered),
        "attention": (attention_func(s(1000, 9), s(64, 8), causal=True), _attend),
    }
    for name, (func, truth) in cases.items():
        yield Case(name, functools.partial(_check, name=name, func=func, truth=truth))
    yield Case("a batch of any size", _any_batch)
    yield Case("compute-sanitizer", _sanitize)


def _any_batch(bench: Bench) -> Iterable[Row]:
    """One build of a product, ReLU and softmax, whose grids are computed when it is called."""
    width = bench.size(768, 24)
    weight = normal((width, width)) / np.float32(width**0.5)
    x = relax.Var("x", relax.TensorStructInfo((Var("n", "int64"), width), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, relax.const(weight)))))
            out = builder.emit_output(relax.op.nn.softmax(hidden, -1))
        builder.emit_func_output(out)
    made = autosched.build(builder.get(), target=bench.target, records=FallbackContext())
    for batch in (1, 7, bench.size(4099, 33)):
        given = normal((batch, width))
        found = made(given).numpy()
        expected = _softmax(np.maximum(given.astype("float64") @ weight, 0))
        error = float(np.abs(found - expected).max() / expected.max())
        kind = "" if isinstance(made, DynamicExecutable) else "compiled for each size: "
        yield Row(f"a batch of {batch}", rate=f"error {error:.1e}", note=kind + ("right" if error <= 1e-5 else "WRONG"))


def _check(bench: Bench, name: str, func: PrimFunc, truth: Callable[..., np.ndarray]) -> list[Row]:
    function, arrays = prepared(bench, func)
    function(*arrays)
    *inputs, found = (a.numpy() for a in arrays)
    expected = truth(*(x.astype("float64") for x in inputs))
    error = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
    allowed = SHARE if allows_tf32(func) else {"float16": 5e-3}.get(str(found.dtype), 1e-5)
    verdict = "right" if np.isfinite(found).all() and error <= allowed else "WRONG"
    return [Row(name, rate=f"error {error:.1e}", note=verdict)]


def _clipped(at: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(at.astype(int), 0, len(x) - 1))


def _scattered(x: np.ndarray, at: np.ndarray, updates: np.ndarray) -> np.ndarray:
    out = x.copy()
    np.add.at(out, (_clipped(at, x), np.broadcast_to(np.arange(x.shape[1]), at.shape)), updates)
    return np.maximum(out, 0)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _conv(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    pad = weight.shape[2] // 2
    padded = np.pad(data, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True))


def depthwise_func(channels: int, size: int, batch: int = 1) -> PrimFunc:
    data = te.placeholder((batch, channels, size, size), name="d")
    weight = te.placeholder((channels, 1, 3, 3), name="w")
    return create_prim_func([data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1, 1)])


def _conv_of(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A depthwise convolution, each channel by itself."""
    parts = [_conv(data[:, c : c + 1], weight[c : c + 1]) for c in range(data.shape[1])]
    return np.concatenate(parts, axis=1)


def max_pool(x: te.Tensor) -> te.Tensor:
    return topi.max_pool2d(x, (3, 3), (2, 2), (0, 0, 0, 0), (1, 1), False)


def _pooled(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))


def attention_func(length: int, width: int, causal: bool, heads: int = 2, queries: int | None = None) -> PrimFunc:
    rows = length if queries is None else queries
    sizes = (("q", rows), ("k", length), ("v", length))
    q, k, v = (te.placeholder((1, heads, n, width), dtype="float16", name=x) for x, n in sizes)
    made = topi.attention(q, k, v, None, width**-0.5, "TopLeft" if causal else None, layouts=("BHSD",) * 4)
    return create_prim_func([q, k, v, made])


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    return np.asarray(_softmax(np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)) @ v)


def _sanitize(bench: Bench) -> list[Row]:
    """A sample of kernels under compute-sanitizer's three tools."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return [Row("compute-sanitizer", note="not installed")]
    rows = []
    code = (
        "from benchmarks.gpu_sections import *\n"
        f"b = Bench({bench.target_text!r})\n"
        "for f in (matmul_func(70, 67, 131), matmul_func(640, 1032, 1032, 'float16'),\n"
        "          of((33, 1000), lambda x: topi.softmax(x, -1)), of((1001,), topi.exp)):\n"
        "    function, arrays = prepared(b, f); function(*arrays); arrays[-1].numpy()\n"
    )
    started = {}
    for name in ("memcheck", "racecheck", "synccheck"):
        command = [tool, "--tool", name, "--error-exitcode", "7"]
        command += ["--report-api-errors", "no"] if name == "memcheck" else []  # libraries ask for what may be missing
        started[name] = subprocess.Popen(
            [*command, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        )
    for name, process in started.items():
        try:
            text, _ = process.communicate(timeout=SANITIZER_S)
            found = [line.strip("= ") for line in text.splitlines() if line.startswith("=========")]
            verdict = "clean" if process.returncode == 0 else f"exit {process.returncode}: {' / '.join(found)[:400]}"
        except subprocess.TimeoutExpired:
            process.kill()
            verdict = f"no answer after {SANITIZER_S} s"
        rows.append(Row(name, note=verdict))
    return rows


def _matmul_case(name: str, m: int, k: int, n: int, dtype: str) -> Case:
    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        torch.backends.cuda.matmul.allow_tf32 = dtype == TF32
        a, b = tensors
        out = torch.empty((m, n), dtype=a.dtype, device="cuda")
        return lambda: torch.matmul(a, b, out=out)

    return Case(name, lambda bench: against(bench, name, matmul_func(m, k, n, dtype), peer, flops=2.0 * m * n * k))


def simt(bench: Bench) -> Iterable[Case]:
    for n in (1024, 2048, 4096, 8192):
        n = bench.size(n, n // 64)
        yield _matmul_case(f"float32 {n}³", n, n, n, "float32")


def tensor_cores(bench: Bench) -> Iterable[Case]:
    for dtype in ("float16", "bfloat16", TF32):
        for n in (4096, 8192):
            n = bench.size(n, n // 128)
            yield _matmul_case(f"{dtype} {n}³", n, n, n, dtype)
    yield Case("what parts of the last wave bring", functools.partial(_without, "wave_parts", (2304, 5120)))
    yield Case("what clusters bring", functools.partial(_without, "cluster", (2048, 4096, 8192)))


def _without(knob: str, sizes: Sequence[int], bench: Bench) -> Iterable[Row]:
    """Default products beside the same without what some knobs stand for, as the peer."""
    for n in sizes:
        n = bench.size(n, max(16, n // 128))
        func = matmul_func(n, n, n, "float16")
        config = default_config(func, bench.target)
        alone = Config(config.template, {k: 1 if k.startswith(knob) else v for k, v in config.knobs.items()})
        yield _beside(bench, f"float16 {n}³", func, (config, alone), 2.0 * n**3, f"the peer has no {knob}")


def _beside(
    bench: Bench, name: str, func: PrimFunc, configs: tuple[Config, Config], flops: float, note: str
) -> Row:  # fmt: skip
    """One configuration and another one, as the peer, on the same data; weights are arguments, packed or not."""
    made = [prepared(bench, apply_config(func, config, bench.target).func) for config in configs]
    ours_s, peer_s = in_turn(bench, *(replayed(f, arrays) for f, arrays in made))
    return Row(name, ours_s, peer_s, f"{flops / ours_s / 1e12:.2f} TFLOP/s", note)


def small_m(bench: Bench) -> Iterable[Case]:
    n = bench.size(4096, 32)
    for dtype in ("float16", "float32"):
        for m in (1, 4, 16, 64):
            yield _matmul_case(f"{dtype} {m}×{n}²", m, n, n, dtype)


RESNET50 = ((3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (256, 56, 128, 1, 1), (128, 28, 128, 3, 1),
            (512, 28, 256, 1, 1), (256, 14, 256, 3, 1), (1024, 14, 512, 1, 1), (512, 7, 512, 3, 1))  # fmt: skip
STAGED = ((1, 256, 14, 256, 3), (1, 512, 7, 512, 3), (32, 64, 56, 64, 3), (32, 256, 56, 128, 1), (32, 128, 28, 128, 3),
          (32, 256, 14, 256, 3), (32, 1024, 14, 512, 1), (32, 512, 7, 512, 3))  # batch, …, window  # fmt: skip


def convolutions(bench: Bench) -> Iterable[Case]:
    for dtype in ("float32", "float16", TF32):
        for batch in (1, 32):
            for channels, size, out, kernel, stride in RESNET50:
                shape = (bench.size(batch, 1), bench.size(channels, 4), bench.size(size, 8), bench.size(out, 4))
                yield _conv_case(*shape, kernel, stride, dtype)
                if bench.is_tiny:
                    break
    for batch, channels, size, out, kernel in STAGED:
        tiny = (bench.size(batch, 1), bench.size(channels, 16), bench.size(size, 8), bench.size(out, 16), kernel)
        yield Case("what other ways of reading pixels bring", functools.partial(_read_otherwise, *tiny))


def _read_otherwise(batch: int, channels: int, size: int, out: int, kernel: int, bench: Bench) -> Iterable[Row]:
    """Pixels as boxes and as windows in shared memory beside the product of gathered columns, as the peer."""
    func = conv_func(batch, channels, size, out, kernel, 1, "float16")
    found = {t.name: t.default(anchor, bench.target) for t, anchor in templates_for(func, bench.target)}
    flops = 2.0 * kernel**2 * batch * out * channels * size**2
    for template in ("warpgroup_matmul", "warpgroup_window", "tensor_window"):
        if found.keys() >= {template, "tensor_contraction"}:
            pair = found[template], found["tensor_contraction"]
            name = f"float16 n{batch} {channels}-{out} {size}² k{kernel}, {template}"
            yield _beside(bench, name, func, pair, flops, "the peer gathers columns")


def _conv_case(batch: int, channels: int, size: int, out: int, kernel: int, stride: int, dtype: str) -> Case:
    name = f"{dtype} n{batch} {channels}-{out} {size}² k{kernel} s{stride}"
    flops = 2.0 * batch * out * channels * kernel**2 * (size // stride) ** 2

    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, dtype == TF32
        data, weight = tensors
        return lambda: torch.nn.functional.conv2d(data, weight, stride=stride, padding=kernel // 2)

    func = functools.partial(conv_func, batch, channels, size, out, kernel, stride, dtype)
    return Case(name, lambda bench: against(bench, name, func(), peer, flops=flops))


def attention(bench: Bench) -> Iterable[Case]:
    for length in (1024, 8192):
        for width in (64, 128):
            for causal in (False, True):
                yield _attention_case(bench.size(length, 8), bench.size(width, 8), causal)
    yield _attention_case(bench.size(8192, 40), bench.size(128, 8), False, queries=1)


def _attention_case(length: int, width: int, causal: bool, queries: int | None = None) -> Case:
    name, heads = f"float16 {length} d{width}{' causal' if causal else ''}", 2 if length < 64 else 16
    name, rows = (name, length) if queries is None else (f"{name}, {queries} queries", queries)

    def run(bench: Bench) -> list[Row]:
        func = attention_func(length, width, causal, heads, queries)

        def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
            return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)

        flops = 4.0 * heads * rows * length * width / (2 if causal else 1)
        return against(bench, name, func, peer, flops=flops)

    return Case(name, run)


def memory_bound(bench: Bench) -> Iterable[Case]:
    s = bench.size
    rows, width = s(8192, 8), s(4096, 64)
    yield Case("copy (the device's own)", functools.partial(_copy, size_bytes=4 * rows * width))
    shape, size = (rows, width), 4.0 * rows * width
    yield _norm_case("LayerNorm", layer_norm_func(rows, width), width, 2 * size)
    yield _norm_case("RMSNorm", rms_norm_func(rows, width), width, 2 * size)
    cases: dict[str, tuple[Callable[[Any], Any], Any, float]] = {
        "softmax": (lambda x: topi.softmax(x, -1), lambda t, x: t.softmax(x, -1), 2 * size),
        "gelu": (topi.gelu, lambda t, x: t.nn.functional.gelu(x), 2 * size),
        "transpose": (lambda x: topi.transpose(x, (1, 0)), lambda t, x: x.t().contiguous(), 2 * size),
        "x + relu(x)": (lambda x: topi.add(x, topi.relu(x)), lambda t, x: x + t.relu(x), 2 * size),
        "maximum of rows": (lambda x: topi.max(x, -1), lambda t, x: x.amax(-1), size),
        "mean of all": (lambda x: topi.mean(x), lambda t, x: x.mean(), size),
        "sum of rows": (lambda x: topi.sum(x, -1), lambda t, x: x.sum(-1), size),
        "sum of columns": (lambda x: topi.sum(x, 0), lambda t, x: x.sum(0), size),
    }
    for name, (compute, torch_call, moved) in cases.items():

        def peer(torch: Any, tensors: list[Any], call: Any = torch_call) -> Callable[[], Any]:
            return lambda: call(torch, tensors[0])

        func = functools.partial(of, shape, compute)
        yield Case(name, lambda b, n=name, f=func, p=peer, m=moved: against(b, n, f(), p, size_bytes=m))  # type: ignore[misc]
    few: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "mean of images": ((s(32, 2), 64, s(128, 4), s(128, 4)), (2, 3)),
        "mean of one image": ((1, 64, s(512, 8), s(512, 8)), (2, 3)),
        "mean of three columns": ((s(8_000_000, 50), 3), (0,)),
        "mean of four rows": ((4, s(8_000_000, 50)), (1,)),
    }
    for name, (sizes, axes) in few.items():
        yield _mean_case(name, sizes, axes)
    yield _depthwise_case(s(32, 1), s(144, 3), s(56, 7))


def _mean_case(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        return lambda: tensors[0].mean(axes)

    func = of(shape, lambda x: topi.mean(x, axes))
    size_bytes = 4.0 * float(np.prod(shape))
    return Case(name, lambda bench: against(bench, name, func, peer, size_bytes=size_bytes))


def _depthwise_case(batch: int, channels: int, size: int) -> Case:
    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        return lambda: torch.nn.functional.conv2d(*tensors, padding=1, groups=channels)

    func, moved = depthwise_func(channels, size, batch), 8.0 * batch * channels * size**2
    name = f"depthwise n{batch} {channels} {size}² k3"
    return Case(name, lambda bench: against(bench, name, func, peer, size_bytes=moved))


def layer_norm_func(rows: int, width: int) -> PrimFunc:
    x, gamma, beta = (
        te.placeholder(shape, name=n) for shape, n in (((rows, width), "x"), ((width,), "g"), ((width,), "b"))
    )
    return create_prim_func([x, gamma, beta, topi.layer_norm(x, gamma, beta, (1,), 1e-5, True, True)])


def rms_norm_func(rows: int, width: int) -> PrimFunc:
    x, weight = te.placeholder((rows, width), name="x"), te.placeholder((width,), name="w")
    return create_prim_func([x, weight, topi.rms_norm(x, weight, (1,), 1e-6)])


def _norm_case(name: str, func: PrimFunc, width: int, moved: float) -> Case:
    def peer(torch: Any, tensors: list[Any]) -> Callable[[], Any]:
        call = torch.nn.functional.layer_norm if name == "LayerNorm" else torch.nn.functional.rms_norm
        return lambda: call(tensors[0], (width,), *tensors[1:])

    return Case(name, lambda bench: against(bench, name, func, peer, size_bytes=moved))


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


# In the order of what they tell; compiling the peer takes most of the time, so the last ones may be left out.
MODELS = (
    ("resnet50", 1, "float16"), ("bert", 1, "float16"), ("gpt", 1, "float16"), ("resnet50", 1, "float32"),
    ("bert", 32, "float16"), ("resnet50", 32, "float16"), ("mobilenet_v2", 1, "float16"), ("resnet18", 1, "float16"),
    ("gpt", 32, "float16"), ("bert", 1, "float32"), ("gpt", 1, "float32"), ("mobilenet_v2", 1, "float32"),
    ("resnet18", 1, "float32"), ("mobilenet_v2", 32, "float16"), ("resnet18", 32, "float16"), ("bert", 32, "float32"),
    ("resnet50", 32, "float32"), ("gpt", 32, "float32"), ("mobilenet_v2", 32, "float32"), ("resnet18", 32, "float32"),
)  # fmt: skip


def models(bench: Bench) -> Iterable[Case]:
    """All beside PyTorch as it is, in a CUDA graph; then the first ones beside what its compiler makes of them."""
    chosen = (("mlp", 1, "float32"), ("mlp", 1, "float16")) if bench.is_tiny else MODELS
    for compiled in (False, True):
        for name, batch, dtype in chosen:
            case = f"{name} batch {batch} {dtype}"
            yield Case(case, functools.partial(_model, name=name, batch=batch, dtype=dtype, compiled=compiled))


def _model(bench: Bench, name: str, batch: int, dtype: str, *, compiled: bool) -> Iterable[Row]:
    """A model beside PyTorch's. The note has the largest error of both against float64, over the largest result."""
    try:
        import torch

        from autosched.frontend.torch import from_exported_program
    except ImportError as error:
        yield Row(name, note=f"{error.name} is missing")
        return
    module, example = network(torch, name, batch, dtype)
    imported = from_exported_program(torch.export.export(module, (example,)), unwrap_unit_return_tuple=True)
    model = autosched.build(imported, target=bench.target, records=FallbackContext())
    if bench.only_builds:
        raise Prepared
    executor = model.create_executor()
    executor.set_input(model.inputs[0].name, example.numpy())
    case, note, ours = f"{name} batch {batch} {dtype}", f"{len(model.kernels)} kernels", executor.program.seconds
    if bench.torch is None:
        yield Row(case, in_turn(bench, ours, None)[0], note=note)
        return
    module, given = module.cuda(), example.cuda()
    with torch.no_grad():
        executor.run()
        exact = copy.deepcopy(module).double()(given.double() if given.is_floating_point() else given)
        results = torch.from_dlpack(executor.get_output(0)), module(given)
        own, other = (float((x.double() - exact).abs().max() / exact.abs().max()) for x in results)
        note += f", error {own:.1e}, the peer's {other:.1e}" + ("" if own <= 2 * other + 1e-4 else ": WRONG")
        if not compiled:
            ours_s, theirs = in_turn(bench, ours, torch_replayed(torch, lambda: module(given)))
            yield Row(f"{case} / in a CUDA graph", ours_s, theirs, note=note)
            return
        made = torch.compile(module, mode="max-autotune")
        ours_s, theirs = in_turn(bench, ours, lambda number: torch_seconds(torch, lambda: made(given), number))
        yield Row(f"{case} / max-autotune", ours_s, theirs, note=note)


def network(torch: Any, name: str, batch: int, dtype: str) -> tuple[Any, Any]:
    """A module with random weights and an input; what batches are normalised by is what this one has."""
    from benchmarks import torch_models
    from benchmarks.more_sequences import GPT

    torch.manual_seed(0)
    if name == "gpt":
        module, example = GPT(768, 12, 4, 4000, 128), torch.randint(4000, (batch, 128))
        return module.eval().to(getattr(torch, dtype)), example
    module, example = torch_models.MODELS[name][0](), torch.randn(torch_models.example(name, batch).shape)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1.0  # of what it has seen, the last alone
    with torch.no_grad():
        module.train()(example[:2] if batch > 1 else torch.cat((example, torch.randn(example.shape))))
    return module.eval().to(getattr(torch, dtype)), example.to(getattr(torch, dtype))


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
    size = bench.size(2048, 16)
    conv = (bench.size(32, 1), bench.size(128, 4), bench.size(28, 6), bench.size(128, 4), 3, 1, "float16")
    cases = {
        "matmul float16": matmul_func(size, size, size, "float16"),
        "matmul float32": matmul_func(size, size, size),
        "conv2d float16": conv_func(*conv),
    }
    for name, func in cases.items():
        yield Case(name, functools.partial(_tune, name=name, func=func))
    yield Case("Triton's autotuner", _triton)


@dataclass(frozen=True)
class Measured:
    """One configuration of a space: seconds, or why there are none."""

    config: Any
    seconds: float | None
    problem: str = ""


def _measure_all(bench: Bench, func: PrimFunc, configs: Iterable[Any], limit_s: float) -> Iterable[Measured]:
    """Build and time configurations, one after the other, until the time is over."""
    from autosched.templates import apply_config

    start = time.monotonic()
    arrays: list[Any] | None = None
    for config in configs:
        try:
            scheduled = apply_config(func, config, bench.target).func
            module = autosched.build(scheduled, target=bench.target, records=FallbackContext())
            entry = module.entry_func
            if arrays is None:
                arrays = [array(normal(arg.shape, arg.dtype), cuda(0)) for arg in entry.args]
            seconds, _ = in_turn(bench, replayed(entry, arrays), None)
            yield Measured(config, seconds)
        except AutoschedError as error:
            yield Measured(config, None, error.line[:100])
        if time.monotonic() - start > limit_s:
            break


def _tune(bench: Bench, name: str, func: PrimFunc) -> list[Row]:
    """Trials a second between the first and the last one of a tuning, and the best of them beside the default."""
    if bench.is_tiny:
        done = list(_measure_all(bench, func, space_for(func, bench.target).sample(0, 2), 3600.0))
        return [Row(f"{name}: trials", note=f"{len(done)}, none of them by the tuner")]
    start = time.monotonic()
    seen: list[tuple[float, int]] = []
    with _tuning_allowed():
        report = autosched.tune(
            func, target=bench.target, records=RESULTS / f"gpu-{_device_name()}.db",
            options=TuneOptions(budget=TUNING_S, verify="task"),
            progress=lambda report: seen.append((time.monotonic(), report.n_trials)),
        )  # fmt: skip
    (task,) = report.tasks
    during = [(at, n) for at, n in seen if n]
    (first, low), (last, high) = during[0], next(x for x in during if x[1] == during[-1][1])
    rate = f"{(high - low) / max(last - first, 1e-3):.1f} a second"
    note = f"{report.n_trials} in all, {report.n_failed} failed, the first after {first - start:.1f} s"
    return [
        Row(f"{name}: trials", rate=rate, note=note),
        Row(f"{name}: default / best", task.best_s, task.default_s, note=task.config[:150]),
    ]


@contextlib.contextmanager
def _tuning_allowed() -> Iterator[None]:
    """Without what says that builds shall not tune."""
    before = os.environ.pop("AUTOSCHED_TUNE", None)
    yield
    if before is not None:
        os.environ["AUTOSCHED_TUNE"] = before


def _device_name() -> str:
    return re.sub(r"[^a-z0-9]+", "-", driver_of(0).name.lower()).strip("-")


def _triton(bench: Bench) -> list[Row]:
    """How many configurations of a like space Triton's autotuner takes a second, and its best time beside ours."""
    if bench.torch is None:
        return [Row("Triton's autotuner", note="no PyTorch with a GPU")]
    try:
        from benchmarks.gpu_triton import tune_matmul
    except ImportError as error:
        return [Row("Triton's autotuner", note=f"{error.name} is missing")]
    size = bench.size(2048)
    found = tune_matmul(bench.torch, size)
    function, arrays = prepared(bench, matmul_func(size, size, size, "float16"))
    ours, theirs = in_turn(bench, replayed(function, arrays), torch_replayed(bench.torch, found.call))
    rate = f"{found.configs / found.seconds:.1f} a second"
    return [
        Row("Triton: configurations, its own autotuner", rate=rate, note=f"{found.configs} configurations"),
        Row("our default / Triton's best", ours, theirs, note=found.best[:150]),
    ]


def recording(bench: Bench) -> Iterable[Case]:
    n, width = bench.size(8192, 4), bench.size(4096, 32)
    yield Case("softmax", lambda b: _record(b, "softmax", of((n, width), lambda x: topi.softmax(x, -1))))
    yield Case("transpose", lambda b: _record(b, "transpose", of((n, width), lambda x: topi.transpose(x, (1, 0)))))


def _record(bench: Bench, name: str, func: PrimFunc) -> list[Row]:
    """Measure every configuration of a template's space and keep the table, for `autosched.testing.replay`."""
    from autosched.templates import default_config, templates_for

    template, anchor = templates_for(func, bench.target)[0]
    space = template.space(anchor, bench.target)
    rows = next(iter(space.chunks()))
    configs = [space.to_config(row) for row in (rows[:3] if bench.is_tiny else rows)]
    done = list(_measure_all(bench, func, configs, 3600.0 if bench.is_tiny else 40.0))
    knobs = [knob.name for knob in space.knobs]
    path = RESULTS / f"gpu-{_device_name()}-space-{name}.csv.gz"
    if not bench.is_tiny and len(done) == len(configs):
        lines = [f"# {template.name} of {name}, every configuration; {driver_of(0).name}, target {bench.target}"]
        lines.append(",".join([*knobs, "time_ms", "status"]))
        for one in done:
            cells = [str(int(v) if isinstance(v, bool) else v) for v in (one.config[knob] for knob in knobs)]
            cells += ["", "compile"] if one.seconds is None else [f"{1e3 * one.seconds:.6g}", "ok"]
            lines.append(",".join(cells))
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    good = [one.seconds for one in done if one.seconds is not None]
    default = next((o.seconds for o in done if o.config == default_config(func, bench.target)), None)
    kept = f"kept in {path.name}" if len(done) == len(configs) else f"{len(done)} of {len(configs)}: not kept"
    return [Row(f"{name}: default / best", min(good, default=None), default, note=f"{len(good)} times; {kept}")]


SECTIONS: dict[str, Section] = {
    "correctness": Section("All templates at full sizes, and compute-sanitizer", "all clean", 80, correctness),
    "simt": Section("float32 without tensor cores / cuBLAS", "≥ 0.95", 30, simt),
    "tensor": Section("f16, bf16, tf32 / cuBLAS", "≥ 0.90", 50, tensor_cores),
    "small-m": Section("Few rows / cuBLAS", "≥ 1.1", 25, small_m),
    "conv": Section("Convolutions of ResNet-50 / cuDNN's best algorithm", "≥ 1.0 geometric mean", 90, convolutions),
    "attention": Section("Attention / the best of PyTorch's", "≥ 0.90", 40, attention),
    "memory": Section("Bound by memory / PyTorch, and the copy bandwidth", "≥ 0.92 of the copy", 30, memory_bound),
    "overhead": Section("A graph of 100 kernels", "≤ 1 µs a kernel", 12, overhead),
    "models": Section("Models / torch.compile max-autotune", "≥ 1.2 at batch 1, ≥ 1.0 at 32", 150, models),
    "tuning": Section("Tuning", "≥ 10 trials a second; default / best ≤ 1.25", 55, tuning),
    "recording": Section("Whole spaces, recorded", "the bars of replay", 45, recording),
}
