"""What the default kernels of all GPU templates are made of, and the times that a model of the device predicts.

    python -m benchmarks.cuda_model [--target nvidia/nvidia-h200] [--only matmul,softmax] [--save]

No GPU is used: a block of each kernel runs on the emulator, which counts its instructions, the sectors of memory that
its requests take and the passes over shared memory's banks; `autosched.codegen.cuda.device_model` makes times of them.
The times are predictions and nothing else.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from autosched import topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import NEXT_MODULE
from autosched.codegen.cuda.device_model import predict
from autosched.codegen.cuda.emulate.counts import count_block
from autosched.errors import AutoschedError
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.cuda.last_wave import KNOB
from autosched.templates.tf32 import allows_tf32
from autosched.tir import PrimFunc
from benchmarks.gpu.workloads import (
    attention_func,
    conv_func,
    depthwise_func,
    layer_norm_func,
    matmul_func,
    max_pool,
    of,
    take_func,
)
from benchmarks.machine import RESULTS, Table

CASES: Mapping[str, Callable[[], PrimFunc]] = {
    "matmul 1024³ float32": lambda: matmul_func(1024, 1024, 1024),
    "matmul 2048³ float32": lambda: matmul_func(2048, 2048, 2048),
    "matmul 2048³ float16": lambda: matmul_func(2048, 2048, 2048, "float16"),
    "matmul 2304³ float16": lambda: matmul_func(2304, 2304, 2304, "float16"),
    "matmul 4096³ float16": lambda: matmul_func(4096, 4096, 4096, "float16"),
    "matmul 8192³ float16": lambda: matmul_func(8192, 8192, 8192, "float16"),
    "matmul 2048³ tf32": lambda: matmul_func(2048, 2048, 2048, "tf32"),
    "matmul 4096³ tf32": lambda: matmul_func(4096, 4096, 4096, "tf32"),
    "conv 3×3 56² 64-64 tf32": lambda: conv_func(1, 64, 56, 64, 3, 1, "tf32"),
    "matmul 16×2048² float16": lambda: matmul_func(16, 2048, 2048, "float16"),
    "matmul 1×2048² float16": lambda: matmul_func(1, 2048, 2048, "float16"),
    "conv 3×3 56² 64-64": lambda: conv_func(1, 64, 56, 64, 3, 1, "float32"),
    "conv 3×3 28² 128-128 batch 32": lambda: conv_func(32, 128, 28, 128, 3, 1, "float32"),
    "conv 3×3 56² 64-64 float16": lambda: conv_func(1, 64, 56, 64, 3, 1, "float16"),
    "conv 3×3 56² 64-64 float16 batch 32": lambda: conv_func(32, 64, 56, 64, 3, 1, "float16"),
    "conv 3×3 28² 128-128 float16 batch 32": lambda: conv_func(32, 128, 28, 128, 3, 1, "float16"),
    "conv 3×3 7² 512-512 float16 batch 32": lambda: conv_func(32, 512, 7, 512, 3, 1, "float16"),
    "conv 1×1 56² 256-128 float16 batch 32": lambda: conv_func(32, 256, 56, 128, 1, 1, "float16"),
    "conv 1×1 14² 1024-512": lambda: conv_func(1, 1024, 14, 512, 1, 1, "float32"),
    "depthwise 3×3 56² 144": lambda: depthwise_func(144, 56),
    "max pool 3×3 s2 112² 64": lambda: of((1, 64, 112, 112), max_pool),
    "attention 1024 d64 causal": lambda: attention_func(1024, 64, causal=True),
    "softmax 4096×1024": lambda: of((4096, 1024), lambda x: topi.softmax(x, -1)),
    "LayerNorm 4096×1024": lambda: layer_norm_func(4096, 1024),
    "sum of rows 4096×1024": lambda: of((4096, 1024), lambda x: topi.sum(x, -1)),
    "sum of columns 4096×1024": lambda: of((4096, 1024), lambda x: topi.sum(x, 0)),
    "gelu 4096×1024": lambda: of((4096, 1024), topi.gelu),
    "take 4096 of 30000×768 float16": lambda: take_func(30_000, 768, 4096),
    "transpose 4096×1024": lambda: of((4096, 1024), lambda x: topi.transpose(x, (1, 0))),
}
COLUMNS = (
    "kernel", "template", "blocks × threads", "registers", "occupancy", "pipeline", "instructions / operation",
    "sectors / least", "bytes / least", "bank passes / least", "limited by", "predicted µs", "of its limit",
)  # fmt: skip


def rows_of(name: str, target: Target) -> Iterator[tuple[str, ...]]:
    """A row for each launch of a case's default kernel."""
    func, gpu = CASES[name](), target.gpu
    config = default_config(func, target)
    kernel = compile_func(apply_config(func, config, target).func, target, name="kernel").kernel
    assert isinstance(kernel, CudaKernel), "it was compiled for a GPU"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(arg.shape, np.float32).astype(arg.dtype) for arg in kernel.args]
    memory_bytes = sum(array.nbytes for array in arrays)
    scratch = np.zeros(kernel.scratch_bytes, np.uint8) if kernel.scratch_bytes else 0
    texts, used = kernel.llvm.split(NEXT_MODULE), kernel.resources.launches
    for number, (text, launch, resources) in enumerate(zip(texts, kernel.launches, used, strict=True)):
        counts = count_block(
            text, launch.symbol, launch.grid, launch.block, launch.shared_bytes, [*arrays, scratch], launch.cluster,
            launch.tensor_maps,
        )  # fmt: skip
        dtype = f"t{kernel.args[0].dtype}" if allows_tf32(func) else kernel.args[0].dtype  # a rate's name
        parts = int(config.get(KNOB, 1))
        tile_bytes = 4 * int(config.get("rows", 1)) * int(config.get("columns", 1))  # of sums that a part leaves
        in_parts = (kernel.scratch_bytes // tile_bytes, parts) if parts > 1 and number == 0 else (0, 1)
        found = predict(counts, launch, resources, gpu, memory_bytes, kernel.ptx, dtype, in_parts)
        blocks = int(np.prod(launch.grid))
        moved = counts.sectors * 32 * (blocks - in_parts[0] + in_parts[0] / in_parts[1])
        best = max(
            kernel.flops / 2 / (gpu.sm_count * gpu.rates[dtype] * gpu.clock_hz), memory_bytes / gpu.memory_bandwidth
        )
        yield (
            name if len(texts) == 1 else f"{name}, launch {number + 1}",
            config.template,
            f"{blocks} × {launch.threads}"
            + (f", clusters of {cluster}" if (cluster := math.prod(launch.cluster)) > 1 else ""),
            str(resources.registers),
            f"{resources.occupancy:.2f}",
            str(counts.depth),
            f"{found.instructions:.2f}" if found.instructions < 1000 else "—",
            _ratio(counts.sectors, counts.least_sectors),
            _ratio(moved, memory_bytes),
            _ratio(counts.passes, counts.least_passes),
            found.limit,
            f"{1e6 * found.seconds:.1f}",
            f"{100 * best / found.seconds:.0f} %",
        )


def _ratio(found: float, least: float) -> str:
    return f"{found / least:.2f}" if least else "—"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_model", description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="nvidia/nvidia-h200")
    parser.add_argument("--only", default="", help="cases whose names hold one of these texts")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/cuda-model.md")
    options = parser.parse_args(arguments)
    target, rows = Target(options.target), []
    for name in (n for n in CASES if not options.only or any(part in n for part in options.only.split(","))):
        start = time.perf_counter()
        try:
            rows += list(rows_of(name, target))
        except AutoschedError as error:
            rows.append((name, f"{type(error).__name__}: {error.line[:100]}", *[""] * (len(COLUMNS) - 2)))
        print(" | ".join(rows[-1]), f"({time.perf_counter() - start:.1f} s)", flush=True)
    notes = [
        "instructions / operation: issued for each floating-point or matrix instruction, in the inner loop of the PTX",
        "bytes / least: what requests of all blocks take from the second cache, over the arrays' own bytes",
        "pipeline: groups of asynchronous copies that may be under way, and the one in use",
        "of its limit: the time that arithmetic or device memory needs at the data sheet's rate / the predicted one",
    ]
    text = Table(
        f"Default kernels on {options.target}: counted on the emulator, predicted, not measured", COLUMNS, rows, notes
    )
    print(text.markdown())
    if options.save:
        head = "# A model of the device: what default kernels do, and the times it predicts\n\n"
        (RESULTS / "cuda-model.md").write_text(head + text.markdown() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
