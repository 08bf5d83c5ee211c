"""`python -m benchmarks.low_precision`: quantised products and networks beside ONNX Runtime and OpenVINO in int8.

    python -m benchmarks.low_precision [--only resnet50] [--threads 1] [--time 2]

Models are quantised here by ONNX Runtime's quantiser (QDQ, a scale for each channel, random samples) and run by all.
Networks stand beside their own float32 model. All are interleaved in one run; medians.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

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
INPUTS = 1000  # on which networks are compared
PEERS = ("onnxruntime", "openvino")
INT8_BAR, FLOAT_BAR = {"resnet50": 0.95, "mobilenet_v2": 0.95, "bert": 1.0}, 0.60
TITLE = "Quantised models (QDQ, uint8 values, int8 weights)"
COLUMNS = (
    "model", "int8 ms", "float32 ms", "ORT int8 ms", "OpenVINO int8 ms", "int8 / best", "int8 / float32",
    "difference to float32", "same largest output", "in ORT", "bars",
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
        Row(name, lambda name=name: get_model(name), INT8_BAR.get(name), FLOAT_BAR if name in INT8_BAR else None, True)  # type: ignore[misc]
        for name in (*INT8_BAR, "resnet18", "squeezenet")
    )
    return (*products, *convs, *networks)


def measure_row(row: Row, target: Target, threads: int, time_s: float) -> tuple[str, ...]:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        plain, whole = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        model = row.model()
        onnx.save(model, plain)
        quantize(plain, [make_inputs(model, seed=seed) for seed in range(SAMPLES)], whole)
        built = {name: _build(path, target, threads) for name, path in (("int8", whole), ("float32", plain))}
        programs = {name: autosched_program(name, ex, threads) for name, ex in built.items()}
        for peer in PEERS:
            programs[peer] = peer_program(peer, whole, threads)
        cells, bars = narrow.measured(row, programs, time_s)
        other = onnxruntime.InferenceSession(whole, providers=["CPUExecutionProvider"])
        inputs = (make_inputs(model, seed=99 + n) for n in range(INPUTS if row.is_network else 1))
        off, largest, *agreements = _agreement(built["float32"], built["int8"], other, inputs)
    return (*cells, f"{off:.1e}", *(f"{share:.1%} of {largest}" for share in agreements), bars)


def _build(path: Path, target: Target, threads: int) -> Any:
    return autosched.build(from_onnx(onnx.load(path)), target=target, threads=threads)


def _agreement(
    plain: Any, whole: Any, other: onnxruntime.InferenceSession, inputs: Iterable[dict[str, np.ndarray]]
) -> tuple[float, int, float, float]:
    """How far int8 is from float32.

    Gives the largest difference, by the largest output; how many outputs are the largest one of some row in float32;
    and the share of rows in which the same one is: in our int8, and in ONNX Runtime's.
    """
    off, same, largest = 0.0, [], set[int]()
    for values in inputs:
        wanted, ours = (narrow.first_result(built, values.values()) for built in (plain, whole))
        off = max(off, float(np.abs(ours - wanted).max() / np.abs(wanted).max()))
        theirs, places = other.run(None, values)[0], wanted.argmax(-1)
        largest.update(places.ravel().tolist())
        same.append([np.mean(result.argmax(-1) == places) for result in (ours, theirs)])
    return off, len(largest), float(np.mean(same, 0)[0]), float(np.mean(same, 0)[1])


if __name__ == "__main__":
    note = (
        "difference: the largest to our float32, by the largest output; same largest output as our float32: the share"
        f" of rows, and how many outputs are the largest of some row, over {INPUTS} inputs of networks, one of others;"
        " weights and samples are random"
    )
    narrow.run("benchmarks.low_precision", "int8", TITLE, COLUMNS, note, rows(), measure_row)
