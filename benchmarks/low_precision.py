"""`python -m benchmarks.low_precision`: quantised products and networks beside ONNX Runtime and OpenVINO in int8.

    python -m benchmarks.low_precision [--only resnet50] [--threads 1] [--time 2]

Models are quantised here by ONNX Runtime's quantiser (QDQ, a scale for each channel, random samples) and run by all.
Networks stand beside their own float32 model. All are interleaved in one run; medians.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autosched
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import autosched_program
from autosched.driver.quantize import quantize
from autosched.frontend.onnx import from_onnx
from autosched.target import Target
from benchmarks import chains, narrow
from benchmarks.chains import Conv
from benchmarks.models import get_model, make_inputs
from benchmarks.narrow import Row

SAMPLES = 4
PEERS = ("onnxruntime", "openvino")
INT8_BAR, FLOAT_BAR = {"resnet50": 0.95, "mobilenet_v2": 0.95, "bert": 1.0}, 0.60
TITLE = "Quantised models (QDQ, uint8 values, int8 weights)"
COLUMNS = (
    "model", "int8 ms", "float32 ms", "ORT int8 ms", "OpenVINO int8 ms", "int8 / best", "int8 / float32",
    "difference to float32", "same largest output", "bars",
)  # fmt: skip


def rows() -> Sequence[Row]:
    products = (
        *(Row(f"matmul {n}", lambda n=n: chains.matmul_chain(n, (n,), 3)) for n in (512, 1024)),  # type: ignore[misc]
        Row("matmul M=128 768<->3072", lambda: chains.matmul_chain(128, (768, 3072), 2)),
    )
    shapes = (Conv(56, 64, 64, 3, 1, 1), Conv(14, 256, 256, 3, 1, 1), Conv(56, 64, 256, 1), Conv(14, 256, 1024, 1))
    convs = (
        Row(f"conv {c.kernel}x{c.kernel} {c.size}x{c.size} {c.c_in}->{c.c_out}", lambda c=c: c.chain(4))  # type: ignore[misc]
        for c in shapes
    )
    networks = (
        Row(name, lambda name=name: get_model(name), INT8_BAR.get(name), FLOAT_BAR if name in INT8_BAR else None)  # type: ignore[misc]
        for name in (*INT8_BAR, "resnet18", "squeezenet")
    )
    return (*products, *convs, *networks)


def measure_row(row: Row, threads: int, time_s: float) -> tuple[str, ...]:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        plain, whole = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        model = row.model()
        onnx.save(model, plain)
        quantize(plain, [make_inputs(model, seed=seed) for seed in range(SAMPLES)], whole)
        built = {name: _build(path, threads) for name, path in (("int8", whole), ("float32", plain))}
        programs = {name: autosched_program(name, ex, threads) for name, ex in built.items()}
        for peer in PEERS:
            programs[peer] = peer_program(peer, whole, threads)
        cells, bars = narrow.measured(row, programs, time_s)
        agrees, off = _agreement(built, make_inputs(model, seed=99))
    return (*cells, f"{off:.1e}", "yes" if agrees else "no", bars)


def _build(path: Path, threads: int) -> Any:
    return autosched.build(from_onnx(onnx.load(path)), target=Target("cpu"), threads=threads)


def _agreement(built: dict[str, Any], inputs: dict[str, np.ndarray]) -> tuple[bool, float]:
    """(whether the largest output is the same, the largest difference to float32 by the largest output)."""
    whole, plain = (narrow.first_result(built[name], inputs.values()) for name in ("int8", "float32"))
    same = bool(np.all(whole.argmax(-1) == plain.argmax(-1)))
    return same, float(np.abs(whole - plain).max() / np.abs(plain).max())


if __name__ == "__main__":
    note = "difference: the largest to our float32, by the largest output; weights and samples are random"
    narrow.run("benchmarks.low_precision", "int8", TITLE, COLUMNS, note, rows(), measure_row)
