"""`python -m benchmarks.bfloat16`: products and a Transformer with products of bfloat16, beside OpenVINO and torch.

    python -m benchmarks.bfloat16 [--only bert] [--threads 1] [--time 2]

All take the same float32 model: ours is built with precision="bfloat16", OpenVINO runs it with the hint bf16, torch
runs its graph, operator by operator, under autocast to bfloat16. ONNX Runtime has no such mode on CPUs. Rows with few
rows of data read weights that no cache holds: the same model with 24 weights in turn. All are interleaved in one run.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

import autosched
from autosched.driver.bench.programs import Program, autosched_program, import_peer, openvino_program, torch_program
from autosched.frontend.onnx import from_onnx
from autosched.relax.evaluate import evaluate
from autosched.target import Target
from benchmarks import chains, narrow
from benchmarks.models import get_model, make_inputs
from benchmarks.narrow import Row

BF16, COLD = "bfloat16", 24  # weights of a chain that no cache holds: 24 pairs of 768 x 3072 are 226 MB in bfloat16
COLUMNS = (
    "model", "bf16 ms", "float32 ms", "OpenVINO ms", "torch ms", "bf16 / best", "bf16 / float32", "error", "bars",
)  # fmt: skip


def rows() -> Sequence[Row]:
    square = (Row(f"matmul {n}", lambda n=n: chains.matmul_chain(n, (n,), 3), 1.0) for n in (512, 1024, 2048))  # type: ignore[misc]
    few = (
        Row(f"matmul M={m} 768<->3072, cold", lambda m=m: chains.matmul_chain(m, (768, 3072), COLD), 0.9)  # type: ignore[misc]
        for m in (1, 4, 16)
    )
    return (*square, *few, Row("bert", lambda: get_model("bert"), 1.0, 0.60))


def autocast(program: Program) -> Program:
    """A program of torch in bfloat16."""
    torch = import_peer("torch")

    def run() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return program.run()

    return dataclasses.replace(program, run=run)


def measure_row(row: Row, target: Target, threads: int, time_s: float) -> tuple[str, ...]:
    """A line of the table."""
    model = row.model()
    inputs = make_inputs(model, seed=0)
    module = from_onnx(model)
    built = {
        kind: autosched.build(module, target=target, threads=threads, precision=kind) for kind in (BF16, "float32")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        programs = {name: autosched_program(name, ex, threads) for name, ex in built.items()}
        programs["openvino"] = openvino_program(path, threads, None, None, precision="bf16")
        programs["torch"] = autocast(torch_program(path, threads, None, None))
        cells, bars = narrow.measured(row, programs, time_s)
    wanted = narrow.first_result(lambda *x: evaluate(module, list(x), dtype="float64"), inputs.values())
    found = narrow.first_result(built[BF16], inputs.values())
    return (*cells, f"{np.abs(found - wanted).max() / np.abs(wanted).max():.1e}", bars)


if __name__ == "__main__":
    note = "error: the largest to float64, by the largest output; weights are random"
    narrow.run("benchmarks.bfloat16", "bfloat16", "Products of bfloat16", COLUMNS, note, rows(), measure_row)
