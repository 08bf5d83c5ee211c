"""`python -m benchmarks.packed_weights`: products with weights of 4 and 8 bits, by the speed at which those are read.

    python -m benchmarks.packed_weights [--only "int4, groups of 32"] [--threads 1] [--time 2]

Layers of one model follow each other, so that the weights of all of them pass through before one is met again. The
bound is what as many bytes in huge pages take that are only read, in order, by a generated kernel; the share is the
median over rounds, in which all have a turn. ONNX Runtime runs the same model. In rows with "bytes" activations may be
rounded to 8 bits in each group (accuracy_level 4), elsewhere they stay float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

import autosched
from autosched.driver.bench.peaks import load_function
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import Program, autosched_program
from autosched.driver.bench.rounds import compare, measure
from autosched.frontend.onnx import from_onnx
from autosched.target import Target
from autosched.templates.cpu.peaks import peak_read
from benchmarks import narrow
from benchmarks.chains import GraphBuilder, follow
from benchmarks.narrow import Row

WIDTH, LAYERS = 4096, 8
BAR = 0.9
FORMS = ((4, 32, 0), (4, 32, 4), (4, 128, 0), (4, 128, 4), (8, 32, 0), (8, 32, 4))  # bits, group, accuracy level
ROWS = tuple((*form, m) for form in FORMS for m in (1, 4, 16))
COLUMNS = ("weights", "ms", "reading alone, ms", "ORT ms", "ours / ORT", "GB/s", "share of reading", "error", "bars")


def packed_chain(bits: int, group: int, level: int, m: int) -> onnx.ModelProto:
    """LAYERS products [m, WIDTH] @ [WIDTH, WIDTH] by ONNX Runtime's MatMulNBits."""
    generator = np.random.default_rng(0)
    groups = WIDTH // group

    def layer(builder: GraphBuilder, x: str) -> str:
        packed = generator.integers(0, 256, (WIDTH, groups, group * bits // 8)).astype(np.uint8)
        scales = generator.uniform(0.5, 1.5, WIDTH * groups) / (1 << bits - 2) / np.sqrt(WIDTH)
        words = {"K": WIDTH, "N": WIDTH, "bits": bits, "block_size": group, "domain": "com.microsoft"}
        words |= {"accuracy_level": level}
        return builder.call(
            "MatMulNBits", x, builder.constant(packed), builder.constant(scales.astype(np.float32)), **words
        )

    return follow((m, WIDTH), layer, LAYERS)


def weight_bytes(model: onnx.ModelProto) -> int:
    """The bytes that a run reads at least once."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def reading(size_bytes: int, threads: int) -> Program:
    """A program that reads so many bytes in order."""
    target = Target("cpu")
    program, buffers = load_function(peak_read(target, threads, size_bytes)[0], target, threads)
    return Program("reading", threads, lambda held=buffers: program.run())  # type: ignore[misc]


def exact(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The result in float64, from the weights as the operator's documentation unpacks them."""
    arrays: Mapping[str, np.ndarray] = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        bits = next(a.i for a in node.attribute if a.name == "bits")
        packed, scales = (arrays[name] for name in node.input[1:3])
        values = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:2], -1)
        weights = (values - float(1 << bits - 1)) * scales.reshape(*packed.shape[:2], 1)
        x = x @ weights.reshape(WIDTH, WIDTH).T
    return x


def measure_row(row: Row, target: Target, threads: int, time_s: float) -> tuple[str, ...]:
    """A line of the table."""
    model = row.model()
    size_bytes = weight_bytes(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packed.onnx"
        onnx.save(model, path)
        built = autosched.build(from_onnx(model), target=target, threads=threads)
        programs = {
            "ours": autosched_program("ours", built, threads),
            "reading": reading(size_bytes, threads),
            "onnxruntime": peer_program("onnxruntime", path, threads),
        }
        timings = measure(list(programs.values()), time_s)
    ours, alone, peer = (timing.median_s for timing in timings)
    share = compare(timings[0], timings[1])
    x = np.random.default_rng(1).standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    wanted = exact(model, x)
    error = np.abs(narrow.first_result(built, [x.astype(np.float32)]) - wanted).max() / np.abs(wanted).max()
    bars = "" if row.bar is None else f"{row.bar}{'' if share.ratio >= row.bar else ' missed'}"
    times = (f"{t * 1e3:.4g}" for t in (ours, alone, peer))
    return (
        row.name,
        *times,
        f"{ours / peer:.3f}",
        f"{size_bytes / ours / 1e9:.1f}",
        f"{share.ratio:.2f} ± {(share.high - share.low) / 2:.2f}",
        f"{error:.1e}",
        bars,
    )


def rows() -> Sequence[Row]:
    return [
        Row(f"int{bits}, groups of {group},{' bytes,' if level else ''} M={m}",
            lambda b=bits, g=group, a=level, m=m: packed_chain(b, g, a, m),  # type: ignore[misc]
            BAR if (bits, m) == (4, 1) else None)
        for bits, group, level, m in ROWS
    ]  # fmt: skip


if __name__ == "__main__":
    note = (
        f"{LAYERS} products with {WIDTH}x{WIDTH} weights; error: the largest to float64, by the largest output; bytes:"
        " activations may be rounded to 8 bits in each group (accuracy_level 4, ONNX Runtime's too), else float32"
    )
    narrow.run(
        "benchmarks.packed_weights", "packed-weights", "Weights of 4 and 8 bits", COLUMNS, note, rows(), measure_row
    )
