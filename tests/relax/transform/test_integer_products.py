"""Products and convolutions of quantised values: which become products of bytes, and that results stay."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.ir import IRModule
from autosched.records import FallbackContext
from autosched.relax import op
from autosched.relax.expr import Call
from autosched.relax.transform import IntegerProducts
from autosched.relax.transform.bind_symbolic import BindSymbolicVars
from autosched.tir.expr import Var
from tests.spread import cover, spread

RNG = np.random.default_rng(0)
Build = Callable[[relax.BlockBuilder, Any], Any]


def dequantised(bb: relax.BlockBuilder, q: Any, zero: Any, scale: Any) -> Any:
    whole = bb.emit(op.subtract(bb.emit(op.astype(q, "int32")), relax.const(np.asarray(zero, "int32"))))
    return bb.emit(op.multiply(bb.emit(op.astype(whole, "float32")), relax.const(np.asarray(scale, "float32"))))


def weight(*shape: int, low: int = -128, high: int = 128) -> relax.Constant:
    return relax.const(RNG.integers(low, high, shape).astype("int8"))


def sums(call: Call) -> bool:
    """Whether a convolution adds its windows up."""
    return isinstance(call.args[1], relax.Constant) and bool(np.all(call.args[1].data == np.float32(1)))


def quantised_call(module: IRModule) -> Call | None:
    """The product or convolution, where it is one of bytes."""
    calls = [b.value for b in module["main"].bindings() if isinstance(b.value, Call)]
    found = next(c for c in reversed(calls) if c.op_name in ("relax.matmul", "relax.nn.conv2d") and not sums(c))
    return found if found.args[0].struct_info.dtype == "uint8" else None


def check(shape: tuple[int, ...], dtype: str, build: Build, is_changed: bool = True, exact: bool = False) -> IRModule:
    """The module after the pass: built, it gives what the module before states."""
    x_var = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    bb = relax.BlockBuilder()
    with bb.function("main", [x_var]):
        with bb.dataflow():
            result = bb.emit_output(build(bb, x_var))
        bb.emit_func_output(result)
    module = bb.get()
    changed = IntegerProducts()(module)
    assert (quantised_call(changed) is not None) == is_changed
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)
    wanted = relax.evaluate(module, [x], dtype=None if exact else "float64")
    got = autosched.build(module, records=FallbackContext(), threads=1)(x).numpy()
    if exact:
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4 * np.abs(wanted).max())
    return changed


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 3, 127])
def test_a_dequantised_product(dtype: str, zero: int) -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        w = dequantised(bb, weight(40, 24), np.zeros(24), RNG.uniform(0.01, 0.1, 24))
        return op.matmul(dequantised(bb, x, zero, 0.05), w)

    check((2, 5, 40), dtype, build)


@cover(
    ("dtype, zero, padding", [(d, *at) for d in ("uint8", "int8") for at in ((0, 1), (77, 1), (127, 0))]),
    ("size, stride", [(3, 1), (3, 2), (5, 1), (22, 1)]),
    together=1,
)
def test_a_dequantised_convolution_of_each_channel(dtype: str, zero: int, padding: int, size: int, stride: int) -> None:
    """Sums of few products are whole numbers that float32 holds; in the largest window they are summed in int32."""

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        scale = RNG.uniform(0.01, 0.1, (20, 1, 1, 1))
        w = dequantised(bb, weight(20, 1, size, size), np.zeros((20, 1, 1, 1)), scale)
        data = dequantised(bb, x, zero, 0.02)
        return bb.emit(op.nn.conv2d(data, w, strides=stride, padding=padding, groups=20))

    check((1, 20, 26, 25), dtype, build)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 6, 32])
def test_a_dequantised_convolution_pads_with_the_zero_point(dtype: str, channels: int) -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        scale = RNG.uniform(0.01, 0.1, (20, 1, 1, 1))
        w = dequantised(bb, weight(20, channels, 3, 3), np.zeros((20, 1, 1, 1)), scale)
        y = bb.emit(op.nn.conv2d(dequantised(bb, x, 77, 0.02), w, strides=2, padding=(1, 0, 2, 1)))
        return op.nn.relu(op.add(y, relax.const(RNG.standard_normal((1, 20, 1, 1)).astype("f"))))

    changed = quantised_call(check((1, channels, 9, 8), dtype, build))
    assert changed is not None and changed.attrs["pad_value"] == (77 if dtype == "uint8" else 77 + 128)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@spread(2, "channels, out, groups, stride", [(8, 8, 2, 1), (32, 64, 4, 2), (128, 128, 2, 1), (64, 64, 16, 1)])
def test_a_dequantised_convolution_in_groups(dtype: str, channels: int, out: int, groups: int, stride: int) -> None:
    """Groups of 4 to 64 channels: blocks of those, of vectors and of tiles."""

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        scale = RNG.uniform(0.01, 0.1, (out, 1, 1, 1))
        w = dequantised(bb, weight(out, channels // groups, 3, 3), np.zeros((out, 1, 1, 1)), scale)
        data = dequantised(bb, x, 77, 0.02)
        return bb.emit(op.nn.conv2d(data, w, strides=stride, padding=1, groups=groups))

    check((2, channels, 7, 9), dtype, build)


def test_a_transposed_weight_with_a_zero_point() -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        w = dequantised(bb, weight(12, 36, low=-20, high=20), np.full((12, 1), 5), RNG.uniform(0.01, 0.1, (12, 1)))
        return op.matmul(dequantised(bb, x, 9, 0.05), bb.emit(op.permute_dims(w)))

    check((4, 36), "uint8", build)


def centred(bb: relax.BlockBuilder, x: Any, zero: int) -> Any:
    return bb.emit(op.subtract(bb.emit(op.astype(x, "int32")), relax.const(np.array(zero, "int32"))))


def test_integers_stay_exact() -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        return op.matmul(centred(bb, x, 200), centred(bb, weight(64, 16, high=100), -28))

    check((3, 64), "uint8", build, exact=True)


def centred_weight(bb: relax.BlockBuilder, shape: tuple[int, ...], zero: int) -> Any:
    """A weight of all unsigned bytes less a zero point, so that some are no signed bytes."""
    values = RNG.integers(0, 256, shape).astype("uint8")
    values.reshape(-1)[:2] = 0, 255
    return bb.emit(op.subtract(bb.emit(op.astype(relax.const(values), "int32")), relax.const(np.int32(zero))))


@cover(("dtype", ["uint8", "int8"]), ("zero", [0, 7, 128, 255]), together=1)
def test_unsigned_weights_are_signed_ones_and_a_shift(dtype: str, zero: int) -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        data = bb.emit(op.subtract(bb.emit(op.astype(x, "int32")), relax.const(np.int32(3))))
        return op.matmul(data, centred_weight(bb, (40, 24), zero))

    for shape in ((2, 5, 40), (1, 40)):
        check(shape, dtype, build, exact=True)


@pytest.mark.parametrize("zero", [7, 128])
@spread(2, "channels, size, stride, padding", [(32, 3, 1, 1), (3, 7, 2, 3), (16, 1, 2, 0), (8, 5, 1, 2)])
def test_windows_with_unsigned_weights(zero: int, channels: int, size: int, stride: int, padding: int) -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        data = bb.emit(op.subtract(bb.emit(op.astype(x, "int32")), relax.const(np.int32(77))))
        w = centred_weight(bb, (12, channels, size, size), zero)
        return bb.emit(op.nn.conv2d(data, w, strides=stride, padding=padding))

    changed = check((2, channels, 13, 14), "uint8", build, exact=True, is_changed=True)
    assert len([b for b in changed["main"].bindings() if getattr(b.value, "op_name", "") == "relax.nn.conv2d"]) == 1 + (
        zero != 128
    )


def test_a_zero_point_that_comes_at_run_time() -> None:
    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        zero = bb.emit(op.astype(bb.emit(op.max(x, keepdims=True, axis=(0, 1))), "int32"))
        whole = bb.emit(op.subtract(bb.emit(op.astype(x, "int32")), zero))
        return op.matmul(whole, centred(bb, weight(64, 16), 0))

    check((3, 64), "uint8", build, exact=True)


@pytest.mark.parametrize(
    ("shape", "build"),
    [
        ((3, 70000), lambda bb, x: op.matmul(centred(bb, x, 0), centred(bb, weight(70000, 4), 0))),
        ((3, 2), lambda bb, x: op.matmul(centred(bb, x, 0), relax.const(np.array([[-200], [200]], "int32")))),
        ((1, 8, 4, 4), lambda bb, x: op.nn.conv2d(centred(bb, x, 0), centred(bb, weight(8, 2, 1, 1), 0), groups=4)),
    ],
    ids=[
        "sums that int32 may not hold",
        "weights that no byte holds",
        "groups that fill no words",
    ],
)
def test_what_stays_as_it_is(shape: tuple[int, ...], build: Build) -> None:
    check(shape, "uint8", build, is_changed=False, exact=True)


@pytest.mark.parametrize(
    ("channels", "rows", "in_words"), [(16, 3, True), (32, 8, True), (8, 3, False), (16, 9, False)]
)
def test_windows_of_one_channel_are_summed_as_bytes_where_the_target_does(
    channels: int, rows: int, in_words: bool
) -> None:
    x = relax.Var("x", relax.TensorStructInfo((1, channels, 12, 12), "uint8"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            w = dequantised(
                bb, weight(channels, 1, rows, 3), np.zeros((channels, 1, 1, 1)), np.ones((channels, 1, 1, 1))
            )
            y = bb.emit(op.nn.conv2d(dequantised(bb, x, 3, 0.02), w, padding=1, groups=channels))
            result = bb.emit_output(y)
        bb.emit_func_output(result)
    for sums_columns in (False, True):
        found = quantised_call(IntegerProducts(sums_columns)(bb.get()))
        assert found is not None
        kinds = found.args[1].struct_info.dtype, found.struct_info.dtype
        assert kinds == (("int8", "int32") if in_words and sums_columns else ("float32", "float32"))


@pytest.mark.parametrize("is_one", [True, False])
def test_a_product_of_an_open_number_of_rows(is_one: bool) -> None:
    """Of bytes as one of a known number, unless each row has a scale of its own."""
    n, bb = Var("n", "int64"), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((n, 39), "uint8"))
    scale = relax.Var("scale", relax.TensorStructInfo((1, 1) if is_one else (n, 1), "float32"))
    with bb.function("main", [x, scale]):
        with bb.dataflow():
            data = bb.emit(op.multiply(bb.emit(op.astype(centred(bb, x, 3), "float32")), scale))
            w = dequantised(bb, weight(39, 24), np.zeros(24), RNG.uniform(0.01, 0.1, 24))
            result = bb.emit_output(op.matmul(data, w))
        bb.emit_func_output(result)
    module = bb.get()
    assert (quantised_call(IntegerProducts()(module)) is not None) == is_one
    made = autosched.build(module, records=FallbackContext(), threads=1)
    for rows in (1, 7, 70):
        given = [RNG.integers(0, 256, (rows, 39)).astype("uint8"), np.full((1 if is_one else rows, 1), 0.05, "float32")]
        wanted = relax.evaluate(BindSymbolicVars({"n": rows})(module), given, dtype="float64")
        np.testing.assert_allclose(made(*given).numpy(), wanted, rtol=1e-5, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("is_open", [False, True])
def test_images_of_open_sizes_are_convolved_as_floats(is_open: bool) -> None:
    n, h = Var("n", "int64"), Var("h", "int64")
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((n, 16, h if is_open else 9, 9), "uint8"))
    with bb.function("main", [x]):
        with bb.dataflow():
            w = dequantised(bb, weight(16, 16, 3, 3), np.zeros((16, 1, 1, 1)), np.ones((16, 1, 1, 1)))
            result = bb.emit_output(op.nn.conv2d(dequantised(bb, x, 3, 0.02), w, padding=1))
        bb.emit_func_output(result)
    assert (quantised_call(IntegerProducts()(bb.get())) is None) == is_open


Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def _of_two(shapes: Shapes, dtypes: tuple[str, str], zeros: tuple[int, int]) -> IRModule:
    """A product of two inputs less their zero points."""
    a, b = (relax.Var(n, relax.TensorStructInfo(s, t)) for n, s, t in zip("ab", shapes, dtypes, strict=True))
    bb = relax.BlockBuilder()
    with bb.function("main", [a, b]):
        with bb.dataflow():
            factors = [centred(bb, x, zero) for x, zero in zip((a, b), zeros, strict=True)]
            result = bb.emit_output(op.matmul(*factors))
        bb.emit_func_output(result)
    return bb.get()


OF_TWO: tuple[Shapes, ...] = (
    ((5, 40), (40, 24)), ((1, 39), (39, 24)), ((2, 3, 40), (40, 24)), ((2, 2, 7, 21), (2, 2, 21, 30)),
)  # fmt: skip


@spread(11, "shapes, dtypes, zeros", list(itertools.product(
    OF_TWO,
    (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")),
    ((0, 0), (3, 0), (0, 5), (3, 5), (127, 127)),
)))  # fmt: skip
def test_a_product_of_two_inputs(shapes: Shapes, dtypes: tuple[str, str], zeros: tuple[int, int]) -> None:
    module = _of_two(shapes, dtypes, zeros)
    call = quantised_call(IntegerProducts()(module))
    assert call is not None and call.args[1].struct_info.dtype == "int8"
    limits = [np.iinfo(t) for t in dtypes]
    arrays = [RNG.integers(i.min, i.max + 1, s).astype(i.dtype) for i, s in zip(limits, shapes, strict=True)]
    for extreme in (False, True):
        if extreme:
            arrays = [
                np.full_like(x, i.max if n else i.min) for n, (x, i) in enumerate(zip(arrays, limits, strict=True))
            ]
        wide = [x.astype("int64") - z for x, z in zip(arrays, zeros, strict=True)]
        got = autosched.build(module, records=FallbackContext(), threads=1)(*arrays).numpy()
        np.testing.assert_array_equal(got, (wide[0] @ wide[1]).astype("int32"))


def test_products_of_two_inputs_that_stay() -> None:
    of_one = _of_two(((4, 5, 40), (1, 40, 24)), ("uint8", "int8"), (0, 0))  # one matrix for all
    assert quantised_call(IntegerProducts()(of_one)) is None
    of_few = _of_two(((4, 2, 40), (4, 40, 24)), ("uint8", "int8"), (0, 0))
    assert quantised_call(IntegerProducts()(of_few)) is None
    assert quantised_call(IntegerProducts(of_two=False)(_of_two(OF_TWO[0], ("uint8", "int8"), (0, 0)))) is None


@pytest.mark.parametrize("cpu", ["x86-64-v3", "sapphirerapids", "x86-64"])
def test_products_of_two_inputs_for_other_cpus(cpu: str) -> None:
    autosched.build(
        _of_two(((3, 40, 62), (3, 62, 23)), ("uint8", "uint8"), (3, 5)), target=f"llvm -mcpu={cpu} -num-cores=1"
    )
