"""`python -m benchmarks.low_precision`: quantised products and networks beside ONNX Runtime and OpenVINO in int8.

    python -m benchmarks.low_precision [--only resnet50] [--threads 1] [--time 2]

Models are quantised here by ONNX Runtime's quantiser (QDQ, a scale for each channel, random samples) and run by all.
Networks stand beside their own float32 model. All are interleaved in one run; medians.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autosched
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import autosched_program
from autosched.driver.bench.rounds import compare, measure
from autosched.driver.quantize import quantize
from autosched.frontend.onnx import from_onnx
from autosched.target import Target
from benchmarks import chains
from benchmarks.chains import Conv
from benchmarks.machine import Table, result_file, write
from benchmarks.models import get_model, make_inputs

SAMPLES = 4
PEERS = ("onnxruntime", "openvino")
INT8_BAR, FLOAT_BAR = {"resnet50": 0.95, "mobilenet_v2": 0.95, "bert": 1.0}, 0.60


@dataclass(frozen=True)
class Row:
    """A model that is quantised: its name, its float32 form, and whether it is a network."""

    name: str
    model: Callable[[], onnx.ModelProto]
    is_network: bool = False


def _rows() -> Sequence[Row]:
    products = (
        *(Row(f"matmul {n}", lambda n=n: chains.matmul_chain(n, (n,), 3)) for n in (512, 1024)),  # type: ignore[misc]
        Row("matmul M=128 768<->3072", lambda: chains.matmul_chain(128, (768, 3072), 2)),
    )
    shapes = (Conv(56, 64, 64, 3, 1, 1), Conv(14, 256, 256, 3, 1, 1), Conv(56, 64, 256, 1), Conv(14, 256, 1024, 1))
    convs = (
        Row(f"conv {c.kernel}x{c.kernel} {c.size}x{c.size} {c.c_in}->{c.c_out}", lambda c=c: c.chain(4))  # type: ignore[misc]
        for c in shapes
    )
    networks = (Row(name, lambda name=name: get_model(name), True) for name in (*INT8_BAR, "resnet18", "squeezenet"))  # type: ignore[misc]
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
        times = dict(zip(programs, measure(list(programs.values()), time_s), strict=True))
        best = min(PEERS, key=lambda name: times[name].median_s)
        to_best, to_float = compare(times[best], times["int8"]), compare(times["float32"], times["int8"])
        agrees, off = _agreement(built, make_inputs(model, seed=99))
    bar = INT8_BAR.get(row.name)
    is_missed = bar is not None and (to_best.ratio > bar or to_float.ratio > FLOAT_BAR)
    return (
        row.name,
        *(f"{times[name].median_s * 1e3:.4g}" for name in ("int8", "float32", *PEERS)),
        f"{to_best.ratio:.3f} ± {(to_best.high - to_best.low) / 2:.3f}",
        f"{to_float.ratio:.3f} ± {(to_float.high - to_float.low) / 2:.3f}",
        f"{off:.1e}",
        "yes" if agrees else "no",
        "" if bar is None else f"{bar}, {FLOAT_BAR}{' missed' if is_missed else ''}",
    )


def _build(path: Path, threads: int) -> Any:
    return autosched.build(from_onnx(onnx.load(path)), target=Target("cpu"), threads=threads)


def _agreement(built: dict[str, Any], inputs: dict[str, np.ndarray]) -> tuple[bool, float]:
    """(whether the largest output is the same, the largest difference to float32 by the largest output)."""
    found = {}
    for name, executable in built.items():
        result = executable(*inputs.values())
        found[name] = (result[0] if isinstance(result, tuple | list) else result).numpy().astype("f8")
    size = np.abs(found["float32"]).max()
    same = bool(np.all(found["int8"].argmax(-1) == found["float32"].argmax(-1)))
    return same, float(np.abs(found["int8"] - found["float32"]).max() / size)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.low_precision", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=2.0, help="seconds for each program of each row")
    args = parser.parse_args()
    columns = ("model", "int8 ms", "float32 ms", "ORT int8 ms", "OpenVINO int8 ms", "int8 / best", "int8 / float32")
    table = Table(
        f"Quantised models (QDQ, uint8 values, int8 weights), {args.threads} thread{'s' * (args.threads > 1)}",
        (*columns, "difference to float32", "same largest output", "bars"),
        notes=["difference: the largest to our float32, by the largest output; weights and samples are random"],
    )
    for row in (row for row in _rows() if args.only in row.name):
        table.rows.append(measure_row(row, args.threads, args.time))
        print(" | ".join(table.rows[-1]), flush=True)
    print(table.markdown())
    if not args.only:
        command = f"python -m benchmarks.low_precision --threads {args.threads}"
        write(result_file("int8", args.threads), command, [table])


if __name__ == "__main__":
    main()
