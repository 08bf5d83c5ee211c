"""Section "correctness": all templates at full sizes, and compute-sanitizer."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import autosched
from autosched import relax, topi
from autosched.records import FallbackContext
from autosched.runtime.dynamic import DynamicExecutable
from autosched.templates.tf32 import SHARE, TF32, allows_tf32
from autosched.tir import PrimFunc, Var
from autosched.topi.sort import argsort, cumsum, take_along
from benchmarks.gpu.bench import Bench, Case, Row, normal, prepared
from benchmarks.gpu.workloads import (
    attention_func,
    conv_func,
    depthwise_func,
    matmul_func,
    max_pool,
    of,
    scatter_func,
    take_func,
)

SANITIZER_S = 30  # for each of its tools


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


def _conv_of(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A depthwise convolution, each channel by itself."""
    parts = [_conv(data[:, c : c + 1], weight[c : c + 1]) for c in range(data.shape[1])]
    return np.concatenate(parts, axis=1)


def _pooled(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))


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
        "from benchmarks.gpu.bench import Bench, prepared\n"
        "from benchmarks.gpu.workloads import matmul_func, of, te, topi\n"
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
            [*command, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
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
