"""Products with weights of 2, 4 and 8 bits, against float64, with every kind of tile."""

import dataclasses
import re

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.native import native_for, native_object
from autosched.errors import IndexOutOfRangeError, SpaceError
from autosched.relax import Constant, TensorStructInfo, Var
from autosched.relax.op import nn
from autosched.relax.op.nbits import dequantize_nbits
from autosched.relax.op.registry import definition_of
from autosched.relax.te_call import make_te_call
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.cpu.matmul_nbits import MatmulNBits
from autosched.tir import PrimFunc
from autosched.tir.buffer import BufferLoad
from autosched.tir.checked_index import CHECKED
from autosched.tir.expr import FloatImm, const
from autosched.tir.functor import rewrite
from autosched.tir.intrinsics import NUMPY
from autosched.tir.stmt import BufferStore
from tests.spread import cover, spread

pytestmark = pytest.mark.host(runs=True)

HOST = Target("cpu")
V4 = Target("llvm -mcpu=x86-64-v4")
EPS = float(np.finfo("f4").eps)


def product(
    m: int, n: int, k: int, bits: int, block: int, zeros: str = "", scales: str = "float32", activation_bits: int = 32
) -> tuple[PrimFunc, list[np.ndarray]]:
    """(the kernel's function, its weight, scales and zero points)"""
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 1 << 32, (n, k * bits // 32), "uint32"), rng.random((n, k // block)).astype(scales)]
    if zeros:
        given.append(rng.integers(0, 1 << bits, (n, k // block)).astype(zeros))
    x, sizes = Var("x", TensorStructInfo((m, k), "float32")), {"bits": bits, "block": block}
    call = nn.matmul_nbits(x, *map(Constant, given), **sizes, activation_bits=activation_bits)
    definition = definition_of(call)
    assert definition is not None and definition.compute is not None
    return make_te_call(definition.compute, call.args, call.attrs).func, given


def floats(func: PrimFunc, target: Target = HOST) -> Config:
    """The default of the template that computes in floats."""
    template = MatmulNBits()
    anchor = template.match(func, target)
    assert anchor is not None
    return template.default(anchor, target)


def check(func: PrimFunc, given: list[np.ndarray], bits: int, block: int, **knobs: object) -> None:
    """The configuration is of the space, no sum leaves registers, and results are as near as float32 can be."""
    default = floats(func)
    check_config(func, given, bits, block, Config(default.template, {**default.knobs, **knobs}))


def check_config(
    func: PrimFunc, given: list[np.ndarray], bits: int, block: int, config: Config, target: Target = HOST
) -> None:
    assert space_for(func, target).with_default(config).default == config
    applied = apply_config(func, config, target)
    kernel = compile_func(applied.func, target, name="k")
    fits = bits > 2 and len(given) == 2 and target.num_registers == 32  # else masks and zero points are read again
    assert kernel.report().sum_spills == 0 or not fits or config.get("tiles", False)
    x = np.random.default_rng(1).standard_normal(func.buffers[0].const_shape()).astype("f4")
    out = np.full(func.buffers[-1].const_shape(), np.nan, "f4")
    arrays = [a if p is None else p.pack(a) for p, a in zip(applied.packs, [x, *given, out], strict=True)]
    Module({"k": kernel.kernel}, native_for(target), threads=2)(*arrays)
    real = dequantize_nbits(given[0], given[1], given[2] if len(given) > 2 else None, bits, block).astype("f8").T
    bound = x.shape[1] * EPS * (np.abs(x) @ np.abs(real)) / 2
    assert (np.abs(arrays[-1] - x.astype("f8") @ real) <= bound).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
@spread(2, "zeros", ["", "uint8", "float32"])
def test_one_row(bits: int, zeros: str) -> None:
    func, given = product(1, 5 * HOST.lanes("float32") + 3, 128, bits, 32, zeros)
    check(func, given, bits, 32)


@pytest.mark.parametrize("m", [3, 5, 17])
def test_more_rows(m: int) -> None:
    func, given = product(m, 37, 64, 4, 32, "uint8", "float16")
    check(func, given, 4, 32)


def test_panels_side_by_side_and_two_words_a_step() -> None:
    func, given = product(1, 16 * HOST.lanes("float32"), 64, 4, 16)
    check(func, given, 4, 16, vectors=4, streams=4, words=2)


def test_tiles_unpack_or_share_a_panel() -> None:
    func, given = product(20, 37, 64, 4, 64)
    for panel in (False, True):
        check(func, given, 4, 64, panel=panel, rows=3)


def test_the_default_for_few_rows_unpacks_without_conversions() -> None:
    """A logical operation, a subtraction and a multiply-add for each vector of weights."""
    func, _ = product(1, 64, 64, 4, 32)
    asm = compile_func(apply_config(func, default_config(func, V4), V4).func, V4, name="k").asm
    assert "vcvt" not in asm and asm.count("vpternlogd") >= 32


def test_words_that_a_vector_has_one_of_for_each_column() -> None:
    func, _ = product(1, 64, 64, 4, 32)
    packs = apply_config(func, default_config(func, V4), V4).packs
    assert [p and p.packed_shape for p in packs] == [None, (4, 8, 16), (4, 2, 16), None]


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("ahead", [4, 32])
def test_words_and_scales_that_are_asked_for_ahead(ahead: int, streams: int) -> None:
    """Also beyond the end of the weights, where lines are asked for but not read."""
    func, given = product(2, 9 * HOST.lanes("float32") + 1, 256, 4, 32)
    check(func, given, 4, 32, vectors=4, streams=streams, ahead=ahead)


def test_each_line_of_a_step_is_asked_for_once() -> None:
    func, _ = product(1, 128, 256, 4, 32)
    default = default_config(func, V4)
    fetches = []
    for ahead in (0, 8):
        config = Config("matmul_nbits", {**default.knobs, "ahead": ahead})
        fetches.append(compile_func(apply_config(func, config, V4).func, V4, name="k").asm.count("prefetcht0"))
    assert fetches == [0, 4 + 4]  # four vectors of words in a word's step, four of scales in a group's


BYTES = Target("llvm -mcpu=icelake-server -num-cores=1")  # dots of four bytes
has_dots = pytest.mark.skipif("avx512vnni" not in HOST.features, reason="runs dot products of bytes")


@has_dots
@pytest.mark.parametrize("bits", [2, 4, 8])
@spread(2, "zeros", ["", "uint8"])
def test_rows_as_bytes(bits: int, zeros: str) -> None:
    func, given = product(1, 5 * HOST.lanes("float32") + 3, 128, bits, 32, zeros)
    check_config(func, given, bits, 32, default_config(func, HOST))


@has_dots
@spread(2, "m", [2, 3, 5, 13], first=1)
def test_more_rows_as_bytes(m: int) -> None:
    func, given = product(m, 64, 256, 4, 128, "uint8", "float16")
    default = default_config(func, HOST)
    assert default.template == "matmul_nbits_bytes"
    for knobs in ({"rows": 1, "streams": 4, "ahead": 0}, {"rows": 2, "streams": 2, "ahead": 16}):
        config = Config(default.template, {**default.knobs, **knobs, "vectors": 1, "tiles": False})
        check_config(func, given, 4, 128, config)


def test_panels_of_a_stream_follow_each_other_and_words_are_asked_for_in_two_levels() -> None:
    """What is asked for ahead of a tile's end is what the next tile reads."""
    func, given = product(1, 16 * 24, 256, 4, 32)
    default = default_config(func, BYTES)
    assert (default["streams"], default["ahead"], default["far"]) == (4, 4, 16)
    kernel = compile_func(apply_config(func, default, BYTES).func, BYTES, name="k")
    assert [kernel.asm.count(f"prefetcht{n}") for n in range(3)] == [4 + 4, 4 + 4, 0]  # words, and scales
    assert "stream * 6 + panel" in kernel.source or "panel + stream * 6" in kernel.source
    if HOST.features >= BYTES.features:
        for streams in (1, 2, 4):
            check_config(func, given, 4, 32, Config(default.template, {**default.knobs, "streams": streams}))


ZEN5 = Target("llvm -mcpu=znver5 -num-cores=1")


def test_amd_reads_wide_panels_in_order() -> None:
    """One stream of as many vectors as others have streams; each line is asked for once."""
    func, _ = product(1, 16 * 24, 256, 4, 32)
    default = default_config(func, ZEN5)
    assert [default[knob] for knob in ("streams", "vectors", "ahead", "far")] == [1, 4, 8, 0]
    applied = apply_config(func, default, ZEN5)
    assert [p and p.packed_shape for p in applied.packs] == [None, (6, 32, 64), (6, 8, 64), None]
    kernel = compile_func(applied.func, ZEN5, name="k")
    assert [kernel.asm.count(f"prefetcht{n}") for n in range(3)] == [4 + 4, 0, 0]  # words, and scales
    assert (default_config(func, BYTES)["streams"], default_config(func, BYTES)["vectors"]) == (4, 1)


@pytest.mark.parametrize(("mcpu", "streams", "ahead"), [("znver3", 1, 8), ("haswell", 4, 4)])
def test_amd_reads_panels_in_order_without_dots_of_bytes_too(mcpu: str, streams: int, ahead: int) -> None:
    func, _ = product(1, 64, 256, 4, 32)
    default = default_config(func, Target(f"llvm -mcpu={mcpu} -num-cores=1"))
    assert (default.template, default["streams"], default["ahead"]) == ("matmul_nbits", streams, ahead)


@has_dots
@cover(
    ("vectors, streams", [(2, 1), (4, 1), (2, 2)]),
    ("m, zeros, activation_bits", [(1, "", 32), (1, "uint8", 8), (3, "uint8", 32)]),
    together=1,
)
def test_panels_of_several_vectors(vectors: int, streams: int, m: int, zeros: str, activation_bits: int) -> None:
    """Of which the last one has columns behind the result's."""
    lanes, block = HOST.lanes("float32"), 32
    func, given = product(m, 8 * lanes - 3, 4 * block, 4, block, zeros, activation_bits=activation_bits)
    default = default_config(func, HOST)
    knobs = {"rows": 1 if vectors * streams == 4 else m, "streams": streams, "vectors": vectors, "tiles": False}
    config = Config(default.template, {**default.knobs, **knobs})
    assert space_for(func, HOST).with_default(config).default == config
    x = np.random.default_rng(1).standard_normal((m, 4 * block)).astype("f4")
    out = run(func, given, x.copy(), config)
    if activation_bits == 8:
        wanted, size = with_bytes(x, given, 4, block)
    else:
        real = dequantize_nbits(*given, *[None] * (3 - len(given)), 4, block).astype("f8").T
        wanted, size = x.astype("f8") @ real, np.abs(x) @ np.abs(real)
    assert (np.abs(out - wanted) <= 64 * EPS * size).all()


def test_tile_registers_have_one_vector_of_a_row() -> None:
    target = Target("llvm -mcpu=sapphirerapids -num-cores=1")
    func, _ = product(5, 64, 128, 4, 32)
    space = space_for(func, target)
    assert space.default["tiles"]
    with pytest.raises(SpaceError, match="tile register"):
        space.with_default(Config(space.default.template, {**space.default.knobs, "streams": 1, "vectors": 2}))


has_tiles = pytest.mark.skipif(not {"amx-tile", "amx-int8"} <= HOST.features, reason="runs products in tile registers")


@has_tiles
@pytest.mark.parametrize(
    ("m", "n", "bits", "block", "zeros"),
    [
        (1, 64, 4, 32, ""), (2, 19, 8, 128, "uint8"), (4, 91, 4, 32, "uint8"), (5, 64, 4, 48, ""), (5, 128, 2, 64, ""),
        (5, 16, 8, 32, ""), (6, 91, 4, 32, "uint8"), (7, 32, 4, 128, ""), (11, 19, 2, 32, "uint8"),
        (16, 32, 8, 64, "uint8"), (16, 91, 4, 96, ""),
    ],
)  # fmt: skip
def test_rows_in_tile_registers(m: int, n: int, bits: int, block: int, zeros: str) -> None:
    """Of all digits and of one at a time, in one step and several, with columns behind the last."""
    func, given = product(m, n, 2 * block, bits, block, zeros, "float16")
    panels = -(-n // 16)
    streams = next(s for s in (4, 2, 1) if panels % s == 0)
    check_config(func, given, bits, block, Config("matmul_nbits_bytes", {
        "rows": m, "streams": streams, "ahead": 4, "tiles": True}))  # fmt: skip


@has_tiles
def test_the_default_for_several_rows_is_in_tile_registers() -> None:
    found = {m: default_config(product(m, 64, 128, 4, 32)[0], HOST).knobs for m in (1, 2, 3, 5, 6, 16)}
    assert {m: (knobs["tiles"], knobs["streams"]) for m, knobs in found.items()} == {
        1: (False, 4), 2: (False, 2), 3: (True, 4), 5: (True, 4), 6: (True, 2), 16: (True, 2),
    }  # fmt: skip


def test_a_group_takes_one_product_in_tiles_for_each_panel_and_digit() -> None:
    """The registers are configured once, the scales multiplied by vectors."""
    target = Target("llvm -mcpu=sapphirerapids -num-cores=1")
    for m, streams, products in ((5, 4, 4), (16, 2, 6)):
        func, _ = product(m, 64, 256, 4, 32)
        config = default_config(func, target)
        assert config["tiles"] and config["streams"] == streams
        asm = compile_func(apply_config(func, config, target).func, target, name="k").asm
        found = [asm.count(f"\t{name}") for name in ("tdpbsud", "tilestored", "ldtilecfg", "vpdpbusd")]
        assert found == [products, products, 1, 0]


@pytest.mark.parametrize("activation_bits", [8, 32])
def test_sums_of_many_rows_take_no_registers_that_are_not_there(activation_bits: int) -> None:
    """Row by row: products of 64 sums with their units were kept on the stack."""
    target = Target("llvm -mcpu=sapphirerapids -num-cores=1")
    func, _ = product(16, 64, 256, 4, 32, activation_bits=activation_bits)
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    assert not re.findall(r"vmov[au]ps\t%zmm\d+, -?\d*\(%rsp\)", kernel.asm)


@has_dots
@pytest.mark.parametrize("tiles", [False, pytest.param(True, marks=has_tiles)])
@pytest.mark.parametrize("moved", ["", "B_packed", "C_packed", "digits", "fields", "matmul_nbits"])
def test_every_access_is_checked_where_that_is_wanted(tiles: bool, moved: str) -> None:
    """A correct kernel gives its numbers; one that goes one element too far says where, and touches nothing there."""
    func, given = product(4, 64, 64, 4, 32)
    config = Config("matmul_nbits_bytes", {
        "rows": 4 if tiles else 1, "streams": 4, "ahead": 4, "far": 16, "tiles": tiles})  # fmt: skip
    applied = apply_config(func, config, HOST)

    def too_far(x: object) -> object:
        if isinstance(x, BufferLoad | BufferStore) and x.buffer.name == moved:
            return dataclasses.replace(x, indices=(*x.indices[:-2], x.indices[-2] + 1, x.indices[-1]))
        return x

    checked = applied.func.with_body(rewrite(applied.func.body, too_far)).with_attr(CHECKED, True)
    kernel = compile_func(checked, HOST, name="k").kernel
    assert kernel.checks
    x = np.random.default_rng(1).standard_normal((4, 64)).astype("f4")
    out = np.zeros((4 + 8, 64), "f4")  # with rows behind the result that stay as they are
    arrays = [a if p is None else p.pack(a) for p, a in zip(applied.packs, [x, *given, out[:4]], strict=True)]
    module = Module({"k": kernel}, native_object(), threads=1)
    if moved:
        with pytest.raises(IndexOutOfRangeError, match=rf"(load of|store to) {moved}\["):
            module(*arrays)
        assert not out[4:].any()
        return
    module(*arrays)
    real = dequantize_nbits(given[0], given[1], None, 4, 32).astype("f8").T
    bound = 64 * EPS * (np.abs(x) @ np.abs(real)) / 2
    assert (np.abs(out[:4] - x.astype("f8") @ real) <= bound).all()


NARROW = Target("llvm -mcpu=x86-64-v3 -mattr=+avxvnni -num-cores=1")


@pytest.mark.skipif(not NARROW.features <= HOST.features, reason="runs AVX-VNNI")
@pytest.mark.parametrize(
    ("m", "bits", "zeros"), [(1, 4, ""), (1, 8, "uint8"), (2, 2, "uint8"), (3, 4, "uint8"), (16, 4, "")]
)
def test_rows_as_bytes_in_vectors_of_256_bits(m: int, bits: int, zeros: str) -> None:
    func, given = product(m, 83, 128, bits, 32, zeros)
    config = default_config(func, NARROW)
    assert config.template == "matmul_nbits_bytes"
    check_config(func, given, bits, 32, config, NARROW)
    asm = compile_func(apply_config(func, config, NARROW).func, NARROW, name="k").asm
    assert "{vex}" in asm and "vpdpbusd" in asm and "zmm" not in asm


@pytest.mark.parametrize(("bits", "zeros", "m", "block"), [(4, "float32", 1, 32), (4, "", 17, 32), (8, "", 1, 512)])
def test_what_is_not_split_into_bytes(bits: int, zeros: str, m: int, block: int) -> None:
    """Zero points that are no integers, many rows, and groups whose sums could pass 32 bits."""
    func, _ = product(m, 64, 512, bits, block, zeros)
    assert default_config(func, BYTES).template == "matmul_nbits"


def test_another_formula_is_not_split_into_bytes() -> None:
    """Blocks of the same names that subtract something else."""
    func, _ = product(1, 64, 128, 4, 32)
    assert default_config(func, BYTES).template == "matmul_nbits_bytes"
    other = func.with_body(rewrite(func.body, lambda x: const(7.0, "float32") if is_middle(x) else x))
    assert default_config(other, BYTES).template == "matmul_nbits"


def is_middle(x: object) -> bool:
    return isinstance(x, FloatImm) and x.value == 8.0


@has_dots
def test_groups_of_any_size_of_numbers() -> None:
    """Zeros, denormals, the largest and smallest numbers; what is no finite number makes its row, and no other, NaN."""
    func, given = product(5, 32, 256, 4, 32)
    x = np.random.default_rng(2).standard_normal((5, 256)).astype("f4")
    largest = np.float32(127 * 65536 + 127 * 256 + 127) / np.float32(1 << 22)  # of the integers, in each power of two
    for g, scale in enumerate([0.0, 1e-44, 1e-38, 1e-30, 1e30, 1.0, 1.0, 1.0]):
        x[:, 32 * g : 32 * g + 32] *= np.float32(scale)
    x[:, 160], x[:, 192], x[:, 224] = (
        largest,
        np.nextafter(largest, np.float32(2)),
        -np.nextafter(np.float32(2), largest),
    )
    x[3, 40], x[4, 70] = np.inf, np.nan
    default = default_config(func, HOST)
    in_vectors = Config(default.template, {**default.knobs, "rows": 3, "streams": 1, "tiles": False})
    for config in (default, in_vectors):
        check_extremes(func, given, x, config)


def check_extremes(func: PrimFunc, given: list[np.ndarray], x: np.ndarray, config: Config) -> None:
    """x as `test_groups_of_any_size_of_numbers` makes it."""
    x = x.copy()
    out = run(func, given, x, config)
    real = dequantize_nbits(given[0], given[1], None, 4, 32).astype("f8").T
    assert np.isnan(out[3:]).all()
    bound = 256 * EPS * (np.abs(x[:3].astype("f8")) @ np.abs(real)) / 2
    assert (np.abs(out[:3] - x[:3].astype("f8") @ real) <= bound).all()
    x[:3, :160] = 0  # without the large numbers, beside which others do not count
    out = run(func, given, x, config)
    bound = 256 * EPS * (np.abs(x[:3].astype("f8")) @ np.abs(real)) / 2
    assert (np.abs(out[:3] - x[:3].astype("f8") @ real) <= bound).all()


def run(func: PrimFunc, given: list[np.ndarray], x: np.ndarray, config: Config) -> np.ndarray:
    applied = apply_config(func, config, HOST)
    kernel = compile_func(applied.func, HOST, name="k")
    out = np.full(func.buffers[-1].const_shape(), np.nan, "f4")
    arrays = [a if p is None else p.pack(a) for p, a in zip(applied.packs, [x, *given, out], strict=True)]
    Module({"k": kernel.kernel}, native_object(), threads=2)(*arrays)
    return arrays[-1]


def with_bytes(x: np.ndarray, given: list[np.ndarray], bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """(the product of activations that are bytes in each block, the sum of its terms' sizes), in float64."""
    blocks = x.reshape(len(x), -1, block)
    largest = np.maximum(np.abs(blocks).max(-1, keepdims=True), np.float32(2.0**-119))
    whole = np.rint(blocks * (np.float32(127) / largest)).astype("f8")
    rounded = (whole * largest.astype("f8") / 127).reshape(x.shape)
    real = dequantize_nbits(given[0], given[1], given[2] if len(given) > 2 else None, bits, block).astype("f8").T
    return rounded @ real, np.abs(rounded) @ np.abs(real)


@has_dots
@pytest.mark.parametrize("tiles", [False, pytest.param(True, marks=has_tiles)])
@pytest.mark.parametrize(
    ("m", "n", "bits", "block", "zeros"),
    [
        (1, 83, 4, 32, ""), (2, 64, 2, 16, "uint8"), (3, 19, 4, 256, "uint8"), (5, 91, 8, 48, ""),
        (16, 64, 4, 32, "uint8"), (16, 64, 4, 128, ""),
    ],
)  # fmt: skip
def test_activations_that_may_be_bytes(m: int, n: int, bits: int, block: int, zeros: str, tiles: bool) -> None:
    """They are rounded to 127ths of the largest of their group; sums are as near as float32 can be."""
    func, given = product(m, n, 2 * block, bits, block, zeros, "float16", activation_bits=8)
    default = default_config(func, HOST)
    assert default.template == "matmul_nbits_bytes"
    if tiles and block < 32:
        return
    rows = m if tiles else min(m, 3)
    config = Config(default.template, {**default.knobs, "tiles": tiles, "rows": rows, "streams": 1})
    x = np.random.default_rng(1).standard_normal((m, 2 * block)).astype("f4")
    wanted, size = with_bytes(x, given, bits, block)
    for chosen in (default, config):
        out = run(func, given, x.copy(), chosen)
        assert (np.abs(out - wanted) <= 64 * EPS * size).all()
    exact = x.astype("f8") @ dequantize_nbits(*given, *[None] * (3 - len(given)), bits, block).astype("f8").T
    assert 0 < np.abs(out - exact).max() < 0.02 * np.abs(exact).max()  # it was rounded, and no further


@has_dots
def test_bytes_of_groups_of_any_size_of_numbers() -> None:
    """Zeros, denormals, the largest numbers and scales of 0; what is not finite makes its row, and no other, NaN."""
    func, given = product(5, 32, 256, 4, 32, activation_bits=8)
    given[1][:, 6] = 0
    x = np.random.default_rng(2).standard_normal((5, 256)).astype("f4")
    for g, scale in enumerate([0.0, 1e-44, 1e-38, 1e-30, 1e30, 1.0, 1.0, 1.0]):
        x[:, 32 * g : 32 * g + 32] *= np.float32(scale)
    x[3, 40], x[4, 70] = np.inf, np.nan
    for knobs in ({}, {"rows": 3, "streams": 1, "tiles": False}):
        default = default_config(func, HOST)
        config = Config(default.template, {**default.knobs, **knobs})
        for large in (True, False):
            x[:3, 128:160] *= large  # beside which others do not count
            out = run(func, given, x.copy(), config)
            wanted, size = with_bytes(x[:3], given, 4, 32)
            assert np.isnan(out[3:]).all() and (np.abs(out[:3] - wanted) <= 64 * EPS * size).all()


@has_tiles
def test_bytes_take_a_third_of_the_products() -> None:
    target, counts = Target("llvm -mcpu=sapphirerapids -num-cores=1"), []
    for activation_bits in (8, 32):
        func, _ = product(16, 64, 256, 4, 64, activation_bits=activation_bits)
        config = default_config(func, target)
        asm = compile_func(apply_config(func, config, target).func, target, name="k").asm
        counts.append(asm.count("\ttdpbsud") / config["streams"])
    assert counts == [1, 3]


@pytest.mark.parametrize(("activation_bits", "m"), [(8, 17), (32, 1)])
def test_many_rows_and_other_products_keep_their_activations(activation_bits: int, m: int) -> None:
    func, given = product(m, 32, 64, 4, 32, activation_bits=activation_bits)
    check_config(func, given, 4, 32, default_config(func, HOST))


def test_words_of_four_bytes_as_the_interpreter_adds_them() -> None:
    words = np.array([0x01FF02FE], "u4"), np.array([0x80FF017F - (1 << 32)], "i4")
    assert NUMPY["dot_bytes"](np.int32(5), *words) == 5 + 254 * 127 + 2 * 1 - 255 - 128
