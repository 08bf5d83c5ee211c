"""Models over symbolic sizes against static builds: equal results, time, compiles, memory.

    python -m benchmarks.dynamic                       # an MLP over its batch, BERT-like layers over batch and sequence
    python -m benchmarks.dynamic bert --sizes 20 --static 5 --also 8,1 1,5 -o dynamic.md

The model is built once and called at random sizes. At some of them it is compared with a build for that size: calls of
both take turns, the least time of each counts. The number of compiles is that of the calls, not of the static builds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.ir import IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.transform.bind_symbolic import BindSymbolicVars
from autosched.runtime.dynamic import DynamicExecutable
from autosched.tir.expr import Var

OP, NN = relax.op, relax.op.nn
SLOW, TURNS, LEAST_S = 1.15, 15, 2e-3  # a size to be looked at; turns of each program, of at least so many seconds


@dataclass(frozen=True)
class Model:
    """A module over symbols, the largest size of each, and the shape of its input for some sizes."""

    module: IRModule
    largest: dict[str, int]
    shape: Callable[[dict[str, int]], tuple[int, ...]]


@dataclass(frozen=True)
class Compared:
    """One size: times of a call in seconds, and the largest difference relative to the largest value."""

    sizes: dict[str, int]
    dynamic_s: float
    static_s: float
    error: float


def _dense(emit: Any, x: Any, n_in: int, n_out: int, rng: np.random.Generator) -> Any:
    weight, bias = (relax.const((rng.standard_normal(s) * 0.05).astype("float32")) for s in ((n_in, n_out), (n_out,)))
    return emit(OP.add(emit(OP.matmul(x, weight)), bias))


def _module(shape: tuple[Any, ...], body: Callable[[Any, Any], Any]) -> IRModule:
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(out)
    return builder.get()


def make_mlp(seed: int) -> Model:
    """784, 512, 512, 10 over a batch."""
    rng, widths = np.random.default_rng(seed), (784, 512, 512, 10)

    def body(emit: Any, x: Any) -> Any:
        for n_in, n_out in zip(widths, widths[1:]):
            x = _dense(emit, x, n_in, n_out, rng)
            x = emit(NN.relu(x)) if n_out != widths[-1] else x
        return x

    return Model(_module((Var("batch", "int64"), widths[0]), body), {"batch": 256}, lambda s: (s["batch"], widths[0]))


def make_bert(seed: int, width: int = 256, heads: int = 4, layers: int = 4) -> Model:
    """Layers of BERT over batch and sequence."""
    rng = np.random.default_rng(seed)
    batch, tokens = Var("batch", "int64"), Var("sequence", "int64")
    ones, zeros = (relax.const(np.full(width, value, "float32")) for value in (1, 0))

    def layer(emit: Any, x: Any) -> Any:
        def split(y: Any) -> Any:
            return emit(OP.permute_dims(emit(OP.reshape(y, (batch, tokens, heads, width // heads))), (0, 2, 1, 3)))

        q, k, v = (split(_dense(emit, x, width, width, rng)) for _ in range(3))
        scores = emit(OP.matmul(q, emit(OP.permute_dims(k, (0, 1, 3, 2)))))
        scaled = emit(OP.multiply(scores, relax.const(np.float32((width // heads) ** -0.5))))
        mixed = emit(OP.permute_dims(emit(OP.matmul(emit(NN.softmax(scaled, -1)), v)), (0, 2, 1, 3)))
        joined = _dense(emit, emit(OP.reshape(mixed, (batch, tokens, width))), width, width, rng)
        x = emit(NN.layer_norm(emit(OP.add(x, joined)), ones, zeros, axes=[-1]))
        inner = emit(NN.gelu(_dense(emit, x, width, 4 * width, rng)))
        return emit(NN.layer_norm(emit(OP.add(x, _dense(emit, inner, 4 * width, width, rng))), ones, zeros, axes=[-1]))

    def body(emit: Any, x: Any) -> Any:
        for _ in range(layers):
            x = layer(emit, x)
        return x

    module = _module((batch, tokens, width), body)
    return Model(module, {"batch": 8, "sequence": 256}, lambda s: (s["batch"], s["sequence"], width))


MODELS: dict[str, Callable[[int], Model]] = {"mlp": make_mlp, "bert": make_bert}


def compare(model: Model, built: DynamicExecutable, sizes: dict[str, int], rng: np.random.Generator) -> Compared:
    """One size against its static build, calls taking turns."""
    static = autosched.build(BindSymbolicVars(dict(sizes))(model.module))
    x = rng.standard_normal(model.shape(sizes)).astype("float32")
    expected, found = (run(x).numpy() for run in (static, built))
    error = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
    best = [float("inf"), float("inf")]
    for _ in range(TURNS):
        for which, run in enumerate((built, static)):
            end = time.perf_counter() + LEAST_S
            while (start := time.perf_counter()) < end:
                run(x)
                best[which] = min(best[which], time.perf_counter() - start)
    return Compared(sizes, best[0], best[1], error)


def measure(name: str, n_sizes: int, n_static: int, seed: int, also: Sequence[Sequence[int]] = ()) -> list[str]:
    """The lines of a model's part of the table. Exits with an error where a call compiles.

    also  sizes that are compared with static builds beside `n_static` drawn ones
    """
    model, rng = MODELS[name](seed), np.random.default_rng(seed)
    start = time.perf_counter()
    built = autosched.build(model.module)
    if not isinstance(built, DynamicExecutable):
        sys.exit(f"{name} is compiled for each size: {built.reason}")
    build_s, before = time.perf_counter() - start, counters.COMPILES.value
    built(np.zeros(model.shape(model.largest), "float32"))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    drawn = [{n: int(rng.integers(1, most + 1)) for n, most in model.largest.items()} for _ in range(n_sizes)]
    for sizes in drawn:
        built(np.zeros(model.shape(sizes), "float32"))
    compiles, grown = counters.COMPILES.value - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    named = [dict(zip(model.largest, sizes, strict=True)) for sizes in also if len(sizes) == len(model.largest)]
    rows = [compare(model, built, sizes, rng) for sizes in (*drawn[:n_static], *named)]
    ratios = [row.dynamic_s / row.static_s for row in rows]
    lines = [
        f"{name}: built in {build_s:.1f} s, {len(built.kernels)} kernels; {n_sizes} random sizes up to "
        f"{model.largest}: {compiles} compiles, {grown / 1024:.1f} MB more than after the largest size",
        f"time over the static build's at {len(rows)} sizes: median {statistics.median(ratios):.2f}, worst "
        f"{max(ratios):.2f}; largest relative difference {max(row.error for row in rows):.1e}",
        "", "| sizes | dynamic µs | static µs | ratio |", "|---|---|---|---|",
    ]  # fmt: skip
    for row, ratio in sorted(zip(rows, ratios, strict=True), key=lambda pair: -pair[1]):
        text = ", ".join(f"{name} {n}" for name, n in row.sizes.items())
        mark = " *" if ratio > SLOW else ""
        lines.append(f"| {text} | {row.dynamic_s * 1e6:.0f} | {row.static_s * 1e6:.0f} | {ratio:.2f}{mark} |")
    if compiles:
        sys.exit(f"{name}: {compiles} compiles at run time")
    return [*lines, ""]


def main(arguments: list[str] | None = None) -> None:
    """Measure the models named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="all of them, if none is named")
    parser.add_argument("--sizes", type=int, default=1000, help="random sizes that each model is called at")
    parser.add_argument("--static", type=int, default=20, help="of them, those compared with a static build")
    parser.add_argument("--also", nargs="*", default=[], help="more such sizes, as 8,1: for models of so many symbols")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="file for the table")
    options = parser.parse_args(arguments)
    also = [[int(n) for n in text.split(",")] for text in options.also]
    lines = [
        line
        for name in options.models or MODELS
        for line in measure(name, options.sizes, options.static, options.seed, also)
    ]
    text = "\n".join(lines)
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
