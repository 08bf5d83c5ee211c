"""Section "memory": what the bandwidth bounds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autosched import topi
from autosched.runtime.cuda.devices import driver_of
from autosched.tir import PrimFunc
from benchmarks.gpu.bench import Bench, Case, Row
from benchmarks.gpu.beside import against
from benchmarks.gpu.timing import in_turn
from benchmarks.gpu.workloads import depthwise_func, layer_norm_func, of, rms_norm_func


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
