"""Depthwise windows of bytes: equal to NumPy's, by two instructions for four rows of a window's column."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cpu.column_dot import COLUMN
from autosched.codegen.native import native_for
from autosched.relax.op.conv2d import reference, to_blocked
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule
from tests.spread import cover

MCPUS = ["icelake-server", "znver4", "sapphirerapids"]
CHANNELS, VALUE = 32, 77  # VALUE is what pads


def depthwise(block: int, size: tuple[int, int], kernel: tuple[int, int], stride: int, dilation: int) -> PrimFunc:
    x = te.placeholder((2, CHANNELS // block, *size, block), "uint8", name="x")
    w = te.placeholder((CHANNELS, 1, *kernel), "int8", name="w")
    layout, padding = f"NCHW{block}c", (1, 2, 0, 1)
    out = topi.conv2d(
        x, w, (stride, stride), padding, (dilation,) * 2, CHANNELS, layout, layout, "int32", pad_value=VALUE
    )
    scaled = te.compute(out.shape, lambda *i: out(*i).astype("float32") * 0.5, name="scaled")
    return te.create_prim_func([x, w, scaled])


def run(func: PrimFunc, target: Target, arrays: list[np.ndarray], **knobs: int) -> str:
    """The assembler text of a kernel that has run, where this machine can run it; the last array is its result."""
    config = default_config(func, target)
    assert config.template == "depthwise"
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), target)
    kernel = compile_func(applied.func, target, name="k")
    if target.features <= host_cpu().runnable:
        packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, arrays, strict=True)]
        Module({"k": kernel.kernel}, native_for(target), threads=1)(*packed)
    return kernel.asm


@cover(
    (
        "block, size, kernel, stride, dilation, knobs",
        [
            (16, (9, 13), (3, 3), 1, 1, {}),
            (32, (9, 13), (3, 3), 2, 1, {"row_chunk": 2}),
            (16, (12, 7), (5, 5), 1, 1, {"rows": 2}),
            (32, (12, 11), (2, 4), 1, 1, {"copy_pad": True}),
            (16, (15, 9), (7, 3), 2, 1, {"pixels": 3, "row_chunk": 1}),
            (32, (12, 12), (3, 3), 1, 2, {"row_chunk": 4}),
            (16, (12, 5), (4, 1), 1, 1, {}),
        ],
    ),
    ("mcpu", MCPUS),
    together=1,
)
def test_windows_of_bytes_are_exact(
    mcpu: str, block: int, size: tuple[int, int], kernel: tuple[int, int], stride: int, dilation: int,
    knobs: dict[str, int],
) -> None:  # fmt: skip
    """The bytes' limits among them, windows of more rows than a word has, padding that is no zero."""
    target, func = Target(f"llvm -mcpu={mcpu} -num-cores=1"), depthwise(block, size, kernel, stride, dilation)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2, CHANNELS, *size)).astype("uint8")
    w = rng.integers(-128, 128, (CHANNELS, 1, *kernel)).astype("int8")
    x[0], w[0], w[1] = 255, -128, 127
    attrs = ((stride,) * 2, (1, 2, 0, 1), (dilation,) * 2, CHANNELS, "NCHW", "OIHW", "NCHW", "int32", VALUE)
    wanted = to_blocked(reference(x, w, *attrs), block) * np.float32(0.5)
    out = np.full(wanted.shape, np.nan, "float32")
    asm = run(func, target, [to_blocked(x, block), w, out], **knobs)
    assert "vpdpbusd" in asm and "vpermb" in asm and "pmulld" not in asm
    if target.features <= host_cpu().runnable:
        np.testing.assert_array_equal(out, wanted)


def test_neighbours_share_the_columns_of_their_windows() -> None:
    """Eight pixels of 3 x 3 read ten columns, which are put in order once each."""
    target, func = Target("llvm -mcpu=sapphirerapids -num-cores=1"), depthwise(16, (64, 64), (3, 3), 1, 1)
    config = default_config(func, target)
    applied = apply_config(func, Config(config.template, {**config.knobs, "pixels": 8}), target)
    asm = compile_func(applied.func, target, name="k").asm
    body = max(re.split(r"\n\.LBB|\n\tj", asm), key=lambda part: part.count("vpdpbusd"))
    assert body.count("vpdpbusd") == 24 and body.count("vpermb") == 10
    assert not re.search(r"zmm\d+, .*\(%rsp\)|\[rsp", body)


@pytest.mark.parametrize("width", [3, 4, 5])
@pytest.mark.parametrize("is_marked", [False, True])
def test_weights_of_which_words_are_not_known_are_multiplied_alone(width: int, is_marked: bool) -> None:
    """What lies beside the window's bytes is read only where the schedule says that it is there, and zero."""
    x, w = te.placeholder((3, 16), "uint8", name="x"), te.placeholder((16, width), "int8", name="w")
    k = te.reduce_axis((0, 3), "k")
    out = te.compute((16,), lambda n: te.sum(x[k, n].astype("int32") * w[n, k].astype("int32"), k), name="sums")
    sch = Schedule(te.create_prim_func([x, w, out]))
    n, rows = sch.get_loops("sums")
    if is_marked:
        sch.annotate(rows, COLUMN, 1)
    sch.unroll(rows)
    sch.vectorize(n)
    sch.decompose_reduction("sums", n)
    target = Target("llvm -mcpu=sapphirerapids -num-cores=1")
    kernel = compile_func(sch.func, target, name="k")
    assert ("vpdpbusd" in kernel.asm) == (is_marked and width == 4)
    if not target.features <= host_cpu().runnable:
        return
    rng = np.random.default_rng(0)
    data, weights = rng.integers(0, 256, (3, 16)).astype("uint8"), rng.integers(-128, 128, (16, width)).astype("int8")
    weights[:, 3:] = 0 if is_marked else weights[:, 3:]
    found = np.zeros(16, "int32")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(data, weights, found)
    np.testing.assert_array_equal(found, (data.astype("int32") * weights[:, :3].T.astype("int32")).sum(0))
