"""`python -m benchmarks.bfloat16`: products and a Transformer with products of bfloat16, beside OpenVINO and torch.

    python -m benchmarks.bfloat16 [--only bert] [--threads 1] [--time 2]

All take the same float32 model: ours is built with precision="bfloat16", OpenVINO runs it with the hint bf16, torch
runs its graph, operator by operator, under autocast to bfloat16. ONNX Runtime has no such mode on CPUs. Rows with few
rows of data read weights that no cache holds: the same model with 24 weights in turn. All are interleaved in one run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import autosched
from autosched.driver.bench.programs import Program, autosched_program, import_peer
from autosched.driver.bench.rounds import compare, measure
from autosched.driver.model_files import load_model
from autosched.frontend.onnx import from_onnx
from autosched.relax.evaluate import evaluate
from autosched.target import Target
from benchmarks import chains
from benchmarks.machine import Table, result_file, write
from benchmarks.models import get_model, make_inputs

BF16, COLD = "bfloat16", 24  # weights of a chain that no cache holds: 24 pairs of 768 x 3072 are 226 MB in bfloat16
PEERS = ("openvino", "torch")


@dataclass(frozen=True)
class Row:
    """A float32 model, the most of the best peer's time, and of its own in float32, that it may take."""

    name: str
    model: Callable[[], onnx.ModelProto]
    bar: float
    own_bar: float | None = None


def rows() -> Sequence[Row]:
    square = (Row(f"matmul {n}", lambda n=n: chains.matmul_chain(n, (n,), 3), 1.0) for n in (512, 1024, 2048))  # type: ignore[misc]
    few = (
        Row(f"matmul M={m} 768<->3072, cold", lambda m=m: chains.matmul_chain(m, (768, 3072), COLD), 0.9)  # type: ignore[misc]
        for m in (1, 4, 16)
    )
    return (*square, *few, Row("bert", lambda: get_model("bert"), 1.0, 0.60))


def openvino_program(path: Path, threads: int, inputs: dict[str, np.ndarray]) -> Program:
    ov = import_peer("openvino")
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16"}
    core = ov.Core()
    request = core.compile_model(core.read_model(str(path)), "CPU", settings).create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, ov.Tensor(array))
    return Program("openvino", threads, request.infer)


def torch_program(path: Path, threads: int, inputs: dict[str, np.ndarray]) -> Program:
    torch = import_peer("torch")
    from autosched.frontend.torch.network import TorchNetwork

    network = TorchNetwork(load_model(path))
    arrays = [torch.from_numpy(a) for a in inputs.values()]

    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return network(*arrays)

    return Program("torch", threads, run)


def measure_row(row: Row, threads: int, time_s: float) -> tuple[str, ...]:
    """A line of the table."""
    model = row.model()
    inputs = make_inputs(model, seed=0)
    module = from_onnx(model)
    built = {
        kind: autosched.build(module, target=Target("cpu"), threads=threads, precision=kind)
        for kind in (BF16, "float32")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        programs = {name: autosched_program(name, ex, threads) for name, ex in built.items()}
        programs["openvino"] = openvino_program(path, threads, inputs)
        programs["torch"] = torch_program(path, threads, inputs)
        times = dict(zip(programs, measure(list(programs.values()), time_s), strict=True))
    best = min(PEERS, key=lambda name: times[name].median_s)
    to_best, to_float = compare(times[best], times[BF16]), compare(times["float32"], times[BF16])
    wanted = evaluate(module, list(inputs.values()), dtype="float64")
    wanted = wanted[0] if isinstance(wanted, tuple | list) else wanted
    found = built[BF16](*inputs.values())
    found = (found[0] if isinstance(found, tuple | list) else found).numpy()
    is_missed = to_best.ratio > row.bar or (row.own_bar is not None and to_float.ratio > row.own_bar)
    return (
        row.name,
        *(f"{times[name].median_s * 1e3:.4g}" for name in (BF16, "float32", *PEERS)),
        f"{to_best.ratio:.3f} ± {(to_best.high - to_best.low) / 2:.3f}",
        f"{to_float.ratio:.3f} ± {(to_float.high - to_float.low) / 2:.3f}",
        f"{np.abs(found - wanted).max() / np.abs(wanted).max():.1e}",
        f"{row.bar}{'' if row.own_bar is None else f', {row.own_bar}'}{' missed' if is_missed else ''}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bfloat16", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=2.0, help="seconds for each program of each row")
    args = parser.parse_args()
    table = Table(
        f"Products of bfloat16, {args.threads} thread{'s' * (args.threads > 1)}",
        ("model", "bf16 ms", "float32 ms", "OpenVINO ms", "torch ms", "bf16 / best", "bf16 / float32", "error", "bars"),
        notes=["error: the largest to float64, by the largest output; weights are random"],
    )  # fmt: skip
    for row in (row for row in rows() if args.only in row.name):
        table.rows.append(measure_row(row, args.threads, args.time))
        print(" | ".join(table.rows[-1]), flush=True)
    print(table.markdown())
    if not args.only:
        command = f"python -m benchmarks.bfloat16 --threads {args.threads}"
        write(result_file("bfloat16", args.threads), command, [table])


if __name__ == "__main__":
    main()
