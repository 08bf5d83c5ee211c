"""The machine code of every template's default: multiply-add loops use vectors and keep them in registers.

AVX-512 is compiled and read, which needs no such machine; for CPUs by name too, as LLVM orders code by their latencies.
"""

from __future__ import annotations

import pytest

from autosched.codegen import compile_func
from autosched.codegen.cpu.assembly import Assembly
from autosched.target import Target
from autosched.templates import templates_for

from .cases import conv, dense

BITS = {"x86-64-v3": 256, "x86-64-v4": 512, "znver5": 512}
CACHES = "-num-cores=2 -l1-bytes=32768 -l2-bytes=1048576 -l3-bytes=33554432"
SHAPES = {
    "conv3x3 56x56x64": lambda: conv(1, 64, 56, 64, 3, 1, 1),
    "conv3x3 14x14x256": lambda: conv(1, 256, 14, 256, 3, 1, 1),
    "conv3x3 7x7x512": lambda: conv(1, 512, 7, 512, 3, 1, 1),
    "conv3x3 13x13 ragged": lambda: conv(1, 48, 13, 192, 3, 1, 1),
    "conv3x3 s2 28x28": lambda: conv(1, 128, 28, 256, 3, 2, 1),
    "conv1x1 56x56": lambda: conv(1, 64, 56, 256, 1, 1, 0),
    "conv1x1 7x7": lambda: conv(1, 1024, 7, 512, 1, 1, 0),
    "conv1x1 s2 14x14": lambda: conv(1, 256, 14, 512, 1, 2, 0),
    "conv5x5 28x28": lambda: conv(1, 16, 28, 32, 5, 1, 2),
    "conv7x7 s2 first": lambda: conv(1, 3, 224, 64, 7, 2, 3, first=True),
    "conv3x3 s2 first": lambda: conv(1, 3, 224, 32, 3, 2, 1, first=True),
    "conv3x3 grouped": lambda: conv(1, 128, 28, 128, 3, 1, 1, groups=4),
    "depthwise 112x112x32": lambda: conv(1, 32, 112, 32, 3, 1, 1, groups=32),
    "depthwise s2 56x56x144": lambda: conv(1, 144, 56, 144, 3, 2, 1, groups=144),
    "dense 128x768x3072": lambda: dense(128, 768, 3072),
    "dense 512x512x512": lambda: dense(512, 512, 512),
    "dense 1x768x3072": lambda: dense(1, 768, 3072),
    "dense 4x768x768": lambda: dense(4, 768, 768),
    "dense 16x3072x768": lambda: dense(16, 3072, 768),
    "dense 19x33x500 ragged": lambda: dense(19, 33, 500),
}
QUICK = ("conv3x3 14x14x256", "conv1x1 56x56", "depthwise 112x112x32", "dense 128x768x3072", "dense 1x768x3072")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES]


@pytest.mark.parametrize("mcpu", BITS)
@pytest.mark.parametrize("name", NAMES)
def test_multiply_add_loops_are_vectors_in_registers(name: str, mcpu: str) -> None:
    target = Target(f"llvm -mcpu={mcpu} {CACHES if BITS[mcpu] == 512 else ''}")
    func = SHAPES[name]()
    matches = templates_for(func, target)
    assert matches
    for template, anchor in matches:
        applied = template.apply(func, template.default(anchor, target), target)
        compiled = compile_func(applied.func, target, name="k")
        report = compiled.report()
        found = f"{template.name}: {report}"
        assert report.fmas > 0, found
        assert report.vector_bits == BITS[mcpu], found
        assert report.scalar_loops == 0, found
        # Winograd's transforms hold more values than there are registers; its products may not
        assert (report.sum_spills if template.name.startswith("winograd") else report.spills) == 0, found
        if BITS[mcpu] == 512:
            assert_fills_wide_pipelines(compiled.asm, found)


def assert_fills_wide_pipelines(asm: str, found: str) -> None:
    """The hottest loop that only adds products up: accumulators for two pipelines of latency 4, and little beside.

    Prefetches are not counted: a weight that comes from memory takes longer than they do.
    """
    read = Assembly.read(asm)
    bodies = [read.body(loop) for loop in read.innermost]
    sums = [b for b in bodies if any(i.is_fma for i in b) and not any(i.stores for i in b)]
    if not sums:
        return  # depthwise: a tile's whole window is unrolled, its end included
    hottest = [i for i in max(sums, key=lambda b: sum(i.is_fma for i in b)) if not i.name.startswith("prefetch")]
    products = [i for i in hottest if i.is_fma]
    assert all("%zmm" in i.operands for i in products), found
    assert len({i.operands.rpartition("%")[2] for i in products}) >= 12, found
    assert len(products) >= len(hottest) / 2, found  # four instructions a cycle beside two multiply-adds
    beside = [i for i in hottest if i.name.startswith(("vaddps", "vsubps"))]  # weights that are transformed on the way
    assert sum(i.loads for i in hottest) <= len(products) + len(beside) + 2, found
