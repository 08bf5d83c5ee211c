"""Sections of single kernels beside cuBLAS, cuDNN and PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autosched.space import Config
from autosched.templates import apply_config, default_config, templates_for
from autosched.templates.tf32 import TF32
from autosched.tir import PrimFunc
from benchmarks.gpu.bench import Bench, Case, Row, prepared
from benchmarks.gpu.beside import against
from benchmarks.gpu.timing import in_turn, replayed
from benchmarks.gpu.workloads import attention_func, conv_func, matmul_func


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
