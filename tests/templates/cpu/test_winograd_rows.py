"""Winograd's algorithm along rows: windows, strides, borders and tiles against float64; which layers get it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.accuracy import with_strict
from autosched.templates.registry import templates_for
from autosched.templates.winograd_row_filter import RowFilter, RowPack
from autosched.tir import PrimFunc, maximum
from autosched.tir.evaluate import evaluate
from tests.spread import spread

from .test_winograd import error

HOST = Target("cpu")
CACHES = "-num-cores=2 -l1-bytes=32768 -l2-bytes=1048576 -l3-bytes=33554432"
AVX2, AVX512 = (Target(f"llvm -mcpu={mcpu} {CACHES}") for mcpu in ("x86-64-v3", "x86-64-v4"))
LIMIT = 5e-6  # of the largest value; direct convolution makes 1e-6


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes of a convolution: data [n, channels, *size], windows and steps by direction, borders (4)."""

    size: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    channels: int = 3
    outputs: int = 16
    n: int = 1
    dilation: tuple[int, int] = (1, 1)


def conv(case: Case, *, block: int = 8, epilogue: str = "relu") -> PrimFunc:
    """The convolution of plain data; epilogue "": none, "relu": bias and ReLU, "residual": bias, a sum and ReLU."""
    data = te.placeholder((case.n, case.channels, *case.size), name="data")
    weight = te.placeholder((case.outputs, case.channels, *case.window), name="weight")
    bias = te.placeholder((1, case.outputs // block, 1, 1, block), name="bias")
    out = topi.conv2d(data, weight, case.strides, case.padding, case.dilation, 1, "NCHW", f"NCHW{block}c")
    arguments = [data, weight]
    if epilogue:
        arguments.append(bias)
        before = out
        out = te.compute(out.shape, lambda b, q, y, x, r: before(b, q, y, x, r) + bias(0, q, 0, 0, r), name="T_add")
    if epilogue == "residual":
        other, inner = te.placeholder([int(s) for s in out.shape], name="other"), out
        arguments.append(other)
        out = te.compute(out.shape, lambda *i: inner(*i) + other(*i), name="T_sum")
    if epilogue:
        last = out
        out = te.compute(out.shape, lambda *i: maximum(last(*i), 0.0), name="relu")
    return te.create_prim_func([*arguments, out], "int64")


def config(rows: int = 4, vectors: int = 2, chunk: int = 4) -> Config:
    return Config("winograd_rows", {"rows": rows, "vectors": vectors, "chunk": chunk})


CASES = {
    "resnet": Case((37, 41), (7, 7), (2, 2), (3, 3, 3, 3)),
    "inception": Case((29, 30), (7, 7), (2, 2), (2, 3, 2, 3)),
    "no_padding": Case((21, 64), (7, 7), (2, 2)),
    "5x5": Case((24, 35), (5, 5), (2, 2), (2, 2, 2, 2), outputs=24),
    "3x3_stride_2": Case((17, 33), (3, 3), (2, 2), (1, 1, 1, 1)),
    "3x3": Case((9, 18), (3, 3), padding=(1, 1, 1, 1)),
    "parts_of_four": Case((9, 40), (4, 4)),
    "7x7_stride_1": Case((14, 27), (7, 7), padding=(3, 3, 3, 3)),
    "9x9": Case((12, 31), (9, 9), padding=(4, 4, 4, 4), channels=2),
    "9x9_stride_2": Case((23, 50), (9, 9), (2, 2), (4, 4, 4, 4), channels=1),
    "alexnet": Case((51, 83), (11, 11), (4, 4), (2, 2, 2, 2)),
    "stride_3": Case((20, 70), (5, 7), (3, 3), (1, 2, 3, 0)),
    "other_steps": Case((25, 30), (3, 5), (3, 2), (1, 2, 1, 2), channels=4),
    "one_row": Case((1, 40), (1, 7), (1, 2), (0, 3, 0, 3), n=2),
    "one_column": Case((9, 7), (7, 7), (2, 2), (3, 0, 3, 0)),
    "smaller_than_a_tile": Case((8, 9), (7, 7), (2, 2), (0, 0, 0, 0)),
    "batch": Case((15, 19), (5, 5), (2, 2), (2, 2, 2, 2), n=3),
    "wide_padding": Case((6, 7), (5, 5), (2, 2), (4, 5, 6, 7)),
    "distant_rows": Case((19, 23), (3, 5), padding=(2, 2, 2, 2), dilation=(2, 1)),
}


@spread(3, "case", CASES)
def test_windows_and_borders(case):
    assert error(conv(CASES[case]), config()) < LIMIT


@spread(3, "case", CASES, first=1)
def test_windows_and_borders_in_short_vectors(case):
    assert error(conv(CASES[case]), config(rows=3, vectors=1), Target("llvm -mcpu=haswell")) < LIMIT


@pytest.mark.parametrize("epilogue", ["", "residual"])
def test_what_is_fused_behind(epilogue):
    assert error(conv(CASES["resnet"], epilogue=epilogue), config()) < LIMIT


@spread(2, "knobs", [{"rows": 1}, {"rows": 14, "vectors": 1}, {"vectors": 4, "chunk": 1}, {"chunk": 64}], ids=str)
def test_configurations_on_two_threads(knobs):
    case = dataclasses.replace(CASES["resnet"], outputs=40, n=2)
    assert error(conv(case), config(**knobs), threads=2) < LIMIT


@pytest.mark.parametrize("vectors", [1, 3])
def test_panels_that_are_no_whole_blocks(vectors):
    func = conv(dataclasses.replace(CASES["5x5"], outputs=64), block=16)
    assert error(func, config(rows=3, vectors=vectors), Target("llvm -mcpu=haswell")) < LIMIT


def test_default_of_a_first_layer_runs():
    func = conv(dataclasses.replace(CASES["resnet"], size=(96, 96), outputs=64), block=16)
    chosen = default_config(func, HOST)
    assert chosen.template == "winograd_rows"
    assert error(func, chosen, threads=2) < LIMIT


FIRST = Case((224, 224), (7, 7), (2, 2), (3, 3, 3, 3), outputs=64)


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_wide_windows_get_it_and_narrow_ones_do_not(target):
    block = target.lanes("float32")

    def chosen(**changes):
        return default_config(conv(dataclasses.replace(FIRST, **changes), block=block), target).template

    assert chosen() == "winograd_rows"
    assert chosen(window=(11, 11), strides=(4, 4), padding=(2, 2, 2, 2)) == "winograd_rows"
    assert chosen(window=(5, 5), padding=(2, 2, 2, 2), outputs=32) == "winograd_rows"
    assert chosen(window=(3, 3), padding=(1, 1, 1, 1), outputs=32) == "conv2d"
    assert chosen(window=(4, 4), strides=(4, 4), padding=(0, 0, 0, 0), outputs=96) == "conv2d"


def test_pieces_of_work_are_enough_for_several_threads():
    chunk = default_config(conv(FIRST, block=16), AVX512)["chunk"]
    assert 112 // chunk >= 8


def test_what_it_does_not_compute():
    def names(func):
        return [t.name for t, _ in templates_for(func, HOST)]

    assert "winograd_rows" in names(conv(CASES["resnet"]))
    assert "winograd_rows" not in names(with_strict(conv(CASES["resnet"])))
    assert "winograd_rows" not in names(conv(dataclasses.replace(CASES["resnet"], dilation=(1, 2))))
    assert "winograd_rows" not in names(conv(Case((1, 600), (1, 128), (1, 64), channels=1)))  # too deep to write out
    assert "winograd_rows" not in names(conv(Case((16, 16), (4, 4), (4, 4))))  # a tap for each place: nothing is saved
    blocked = te.placeholder((1, 1, 16, 16, 8), name="data"), te.placeholder((16, 8, 5, 5), name="weight")
    out = topi.conv2d(*blocked, (1, 1), (2, 2, 2, 2), (1, 1), 1, "NCHW8c", "NCHW8c")
    assert "winograd_rows" not in names(te.create_prim_func([*blocked, out], "int64"))


def test_configurations_of_the_space_are_right():
    func = conv(CASES["5x5"])
    ((template, anchor),) = (found for found in templates_for(func, HOST) if found[0].name == "winograd_rows")
    for chosen in template.space(anchor, HOST).sample(np.random.default_rng(1), 3):
        assert error(func, chosen, threads=2) < LIMIT


@pytest.mark.parametrize(
    ("taps", "stride", "products"), [(7, 2, 13), (5, 2, 11), (3, 2, 9), (7, 1, 13), (3, 1, 6), (11, 4, 23), (9, 1, 18)]
)
def test_products_of_a_tile(taps, stride, products):
    assert RowFilter(taps, stride).products == products
    assert RowFilter(taps, stride).weight_matrix().shape == (products, taps)


@pytest.mark.parametrize("taps", range(2, 14))
def test_parts_are_all_taps_and_differ_by_one_at_most(taps):
    for stride in range(1, taps):
        f = RowFilter(taps, stride)
        found = sorted(part.first + part.step * k for part in f.parts for k in range(part.taps))
        assert found == [*range(taps)]
        lengths = {part.taps for part in f.parts}
        assert max(lengths) <= 4 and max(lengths) - min(lengths) <= 1
        assert f.longer == (sum(part.taps == max(lengths) for part in f.parts) if len(lengths) > 1 else 0)


def test_packing_at_run_time_gives_what_packing_at_build_does():
    pack = RowPack((20, 3, 5, 7), 2, 16)
    array = np.random.default_rng(0).standard_normal(pack.shape).astype(np.float32)
    (packed,) = evaluate(pack.func("float32"), [array])
    np.testing.assert_allclose(packed, pack.pack(array), rtol=1e-5, atol=1e-6)
    assert np.all(pack.pack(array)[1, ..., 4:] == 0)


def test_a_constant_image_sums_the_taps():
    func = conv(Case((7, 15), (1, 7), (1, 2), channels=1), epilogue="")
    applied = apply_config(func, config(), HOST)
    kernel = compile_func(applied.func, HOST, name="k").kernel
    natural = [np.ones(b.const_shape(), b.dtype) for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    Module({"k": kernel}, native_object())(*arrays)
    np.testing.assert_allclose(arrays[-1], 7.0, rtol=1e-6)


def test_the_weight_may_be_any_parameter():
    func = conv(CASES["5x5"])
    data, weight, bias, out = func.params
    other = dataclasses.replace(func, params=(weight, data, bias, out))
    applied = apply_config(other, config(), HOST)
    assert [p is not None for p in applied.packs] == [True, False, False, False]
