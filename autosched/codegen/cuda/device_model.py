"""How long a launch takes on a device, by what its threads execute: a model with few constants.

Each part of a multiprocessor is busy for so many cycles; the launch takes as long as the busiest part of the busiest
multiprocessor, or as memory, or as the chain of waits that a block has. **Nothing of it was measured here**. What a
device is (rates, sizes, clock, bandwidth) are its `GpuFacts`, by which kernels are chosen too. What the model assumes
beyond them, latencies and widths of published measurements, stands below and nowhere else: a device that is measured
changes these numbers.

Blocks that share a multiprocessor hide each other's beginnings and ends. Where one is alone there (products of
warpgroups, whose stages fill shared memory), each wave of blocks starts with the first copies on their way and ends
with results that nothing runs beside.

Sources: Jia, Maggioni, Staiger, Scarpazza 2018, Dissecting the NVIDIA Volta GPU architecture via microbenchmarking; Luo
et al. 2024, Benchmarking and Dissecting the Nvidia Hopper GPU Architecture (latencies); the CUDA C++ Programming Guide,
"Throughput of Native Arithmetic Instructions".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.codegen.cuda.emulate.counts import BlockCounts
from autosched.runtime.cuda.kernel import Launch, LaunchResources
from autosched.target.gpus import GpuFacts

WARPS_PER_CYCLE = 4  # instructions that an SM issues
SPECIAL_PER_CYCLE = 16.0  # lanes of exp2, rsqrt, …
SPECIAL_SHARE = 0.25  # of a function's instructions
INTEGERS_PER_CYCLE = 64.0  # lanes
HALVES = 2.0  # plain float16 operations, of the rate of float32
SECTOR_BYTES = 32
L1_SECTORS_PER_CYCLE = 4.0  # 128 bytes
L2_BYTES_PER_CYCLE = 36.0  # of one SM, all SMs at work
REACHED = 0.92  # of the data sheet's memory bandwidth
TENSOR_REACHED = 0.8  # of its rate of tensor cores: cuBLAS has 685 of 836 TFLOP/s (float16, 8192³, H200 NVL)
MEMORY_LATENCY = 600.0  # cycles of a load that misses all caches
BARRIER_LATENCY = 30.0  # cycles
BLOCK_START = 500.0  # cycles until a block's first instructions have run, after the one before it on the SM has ended
IN_FLIGHT = 8.0  # loads that a thread has under way where no barrier is between them
LAUNCH_S = 1.5e-6  # a kernel of a graph after the one before


_FLOATING = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:fma|mul|add|sub|min|max)\.(?:rn\.|rz\.|ftz\.|NaN\.)*(?:f|bf)\d")
_TENSOR = re.compile(r"^\s*(?:mma|wgmma)\.\S*sync\S*m\d+n\d+k\d+")
_INSTRUCTION = re.compile(r"^\s+(?:@!?%p\d+\s+)?[a-z]")
_INTEGER = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:add|sub|mul|mad|shl|shr|and|or|xor|setp|selp|cvt)[.\w]*\.[sub]\d+")
_LABEL = re.compile(r"(\$L\w+):")
_BRANCH = re.compile(r"\bbra\b\S*\s+(\$L\w+)")
LEAST_HOT = 16  # operations of a basic block that counts as the kernel's inner loop


def hot_loop(ptx: str, symbol: str) -> tuple[float, float] | None:
    """(instructions, integer instructions) for each operation of the piece of code with the most operations.

    Pieces end at labels and at branches that go back. An operation is a floating-point or matrix instruction. Where no
    piece has many, the innermost loop with the most operations is taken whole, with what it jumps over. None where no
    loop has any: then the LLVM IR is counted.
    """
    lines = _lines(ptx, symbol)
    ends = {n for n, line in enumerate(lines) if _goes_back(lines, n)}
    pieces: list[list[str]] = [[]]
    for n, line in enumerate(lines):
        if _LABEL.match(line):
            pieces.append([])
        elif _counts(line):
            pieces[-1].append(line)
            if n in ends:
                pieces.append([])
    best = max(pieces, key=_operations)
    if _operations(best) < LEAST_HOT:
        loops = [(_start(lines, n), n) for n in ends]
        inner = [
            [x for x in lines[a:b] if _counts(x)]
            for a, b in loops
            if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)
        ]
        best = max(inner, key=_operations, default=[])
    n = _operations(best)
    return (len(best) / n, sum(bool(_INTEGER.match(x)) for x in best) / n) if n else None


def straight_code(ptx: str, symbol: str) -> tuple[int, int] | None:
    """(instructions, integer instructions) that a thread executes at most; None where the kernel has a loop."""
    lines = _lines(ptx, symbol)
    if any(_goes_back(lines, n) for n in range(len(lines))):
        return None
    counted = [line for line in lines if _counts(line)]
    return len(counted), sum(bool(_INTEGER.match(line)) for line in counted)


def _lines(ptx: str, symbol: str) -> list[str]:
    text = ptx[ptx.index(symbol) :]
    return text[: text.index("\n}")].split("\n")


def _counts(line: str) -> bool:
    """Whether a line is an instruction; libnvvm's moves are names of registers."""
    return bool(_INSTRUCTION.match(line)) and not line.lstrip().startswith("mov")


def _operations(lines: Sequence[str]) -> int:
    return sum(bool(_FLOATING.match(line) or _TENSOR.match(line)) for line in lines)


def _start(lines: Sequence[str], n: int) -> int:
    """The line before `n` that the branch there goes back to; -1 where it is none, or goes on."""
    branch = _BRANCH.search(lines[n])
    places = [m for m in range(n) if branch and (label := _LABEL.match(lines[m])) and label[1] == branch[1]]
    return places[-1] if places else -1


def _goes_back(lines: Sequence[str], n: int) -> bool:
    return _start(lines, n) >= 0


@dataclass(frozen=True)
class Prediction:
    """Seconds of one launch, those of each part alone, and what the work is made of.

    parts      by name: "issue", "arithmetic", "tensor", "shared", "L1", "L2", "memory", "latency"
    waves      of blocks on the busiest multiprocessor
    occupancy  resident threads over the most there can be
    instructions  that are issued for each floating-point or matrix instruction
    """

    seconds: float
    parts: Mapping[str, float]
    waves: int
    occupancy: float
    instructions: float

    @property
    def limit(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])


def predict(
    counts: BlockCounts, launch: Launch, used: LaunchResources, gpu: GpuFacts, memory_bytes: int, ptx: str,
    dtype: str = "float16", in_parts: tuple[int, int] = (0, 1),
) -> Prediction:  # fmt: skip
    """What a launch takes.

    counts        of one of its blocks
    memory_bytes  of the kernel's arrays: more comes from device memory only where the second cache does not hold it
    ptx           of the launch's kernel: how libnvvm has unrolled its inner loop
    dtype         of what tensor cores multiply
    in_parts      (how many of its last blocks do a part of a block's work, into how many parts that is cut)
    """
    blocks = math.prod(launch.grid)
    busiest = -(-(blocks - in_parts[0]) // gpu.sm_count) + -(-in_parts[0] // gpu.sm_count) / in_parts[1]
    resident = max(1, gpu.blocks_per_sm(launch.threads, used.registers, used.shared_bytes))
    waves = math.ceil(busiest / resident)
    kinds = counts.kinds
    lanes = gpu.rates["float32"]
    operations = sum(kinds.get(name, 0) for name in ("float32", "float16", "bfloat16", "float64", "tensor"))
    issued, integers = counts.instructions, kinds.get("integer", 0)
    hot = hot_loop(ptx, launch.symbol)
    if hot is not None and operations:
        issued, integers = min(issued, round(hot[0] * operations)), min(integers, round(hot[1] * operations))
    elif (once := straight_code(ptx, launch.symbol)) is not None:
        issued, integers = min(issued, once[0] * counts.threads), min(integers, once[1] * counts.threads)
    arithmetic = (
        kinds.get("float32", 0) / lanes
        + (kinds.get("float16", 0) + kinds.get("bfloat16", 0)) / (HALVES * lanes)
        + kinds.get("float64", 0) / gpu.rates["float64"]
        + kinds.get("special", 0) * SPECIAL_SHARE / SPECIAL_PER_CYCLE
    )
    cycles = {
        "issue": issued / gpu.warp_size / WARPS_PER_CYCLE,
        "arithmetic": max(arithmetic, integers / INTEGERS_PER_CYCLE),
        "tensor": counts.macs / (TENSOR_REACHED * gpu.rates[dtype]) if counts.macs else 0.0,
        "shared": float(counts.passes),
        "L1": counts.sectors / L1_SECTORS_PER_CYCLE,
        "L2": counts.sectors * SECTOR_BYTES / L2_BYTES_PER_CYCLE,
    }
    parts = {name: busiest * each / gpu.clock_hz for name, each in cycles.items()}
    moved = counts.sectors * SECTOR_BYTES * (blocks - in_parts[0] + in_parts[0] / in_parts[1])
    parts["memory"] = min(memory_bytes, moved) / (REACHED * gpu.memory_bandwidth)
    parts["latency"] = waves * _chain(counts) / gpu.clock_hz
    alone = counts.bulk_sectors > 0 and resident == 1
    apart = waves * _ends(counts) / gpu.clock_hz if alone else 0.0
    return Prediction(LAUNCH_S + apart + max(parts.values()), parts, waves, used.occupancy, issued / max(operations, 1))


def _ends(counts: BlockCounts) -> float:
    """Cycles of a block in which its tensor cores do nothing: until the first copy is there, and while it stores."""
    stored = (counts.sectors - counts.bulk_sectors) * SECTOR_BYTES / L2_BYTES_PER_CYCLE
    return BLOCK_START + MEMORY_LATENCY + stored


def _chain(counts: BlockCounts) -> float:
    """Cycles that one block waits at least: for memory once between two barriers, less where copies run ahead."""
    barriers = counts.kinds.get("barrier", 0) / counts.threads
    if barriers >= 2:
        waits = max(1.0, barriers / 2 / counts.depth)
    else:
        waits = max(1.0, counts.kinds.get("load", 0) / counts.threads / IN_FLIGHT)
    return waits * MEMORY_LATENCY + barriers * BARRIER_LATENCY
