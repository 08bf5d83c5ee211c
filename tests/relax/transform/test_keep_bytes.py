"""What stays bytes between two quantisers, and that results stay."""

from __future__ import annotations

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
from autosched.relax.transform import KeepBytes

RNG = np.random.default_rng(3)
Emit = Callable[[Any], Any]


def dequantised(emit: Emit, q: Any, scale: float, zero: int) -> Any:
    whole = emit(op.subtract(emit(op.astype(q, "int32")), relax.const(np.asarray(zero, "int32"))))
    return emit(op.multiply(emit(op.astype(whole, "float32")), relax.const(np.asarray(scale, "float32"))))


def quantised(emit: Emit, x: Any, scale: float, zero: int, dtype: str = "uint8") -> Any:
    limits = np.iinfo(dtype)
    value = emit(op.round(emit(op.divide(x, relax.const(np.asarray(scale, "float32"))))))
    value = emit(op.add(value, relax.const(np.asarray(zero, "float32"))))
    return emit(op.astype(emit(op.clip(value, float(limits.min), float(limits.max))), dtype))


def check(build: Callable[[Emit, list[Any]], Any], *shapes: tuple[int, ...], dtype: str = "uint8") -> list[Call]:
    """The calls that the result is made of after the pass; what they compute is equal to what stood there before."""
    bb = relax.BlockBuilder()
    variables = [relax.Var(f"x{n}", relax.TensorStructInfo(s, dtype)) for n, s in enumerate(shapes)]
    with bb.function("main", variables):
        with bb.dataflow():
            result = bb.emit_output(build(bb.emit, list(variables)))
        bb.emit_func_output(result)
    module: IRModule = bb.get()
    changed = KeepBytes()(module)
    limits = np.iinfo(dtype)
    arrays = [RNG.integers(limits.min, limits.max + 1, s).astype(dtype) for s in shapes]
    wanted = relax.evaluate(module, arrays)
    np.testing.assert_array_equal(relax.evaluate(changed, arrays), wanted)
    built = autosched.build(module, records=FallbackContext(), threads=1)
    np.testing.assert_array_equal(built(*arrays).numpy(), wanted)
    calls = {b.var: b.value for b in changed["main"].bindings() if isinstance(b.value, Call)}
    alive: list[Call] = []
    bound = {b.var: b.value for b in changed["main"].bindings() if isinstance(b.value, relax.Var)}
    waiting = [changed["main"].body.body]
    while waiting:
        var = waiting.pop()
        if var in bound:
            waiting.append(bound[var])
        call = calls.get(var)
        if call is None or any(call is c for c in alive):
            continue
        alive.append(call)
        fields = (f for a in call.args for f in getattr(a, "fields", (a,)))
        waiting.extend(f for f in fields if isinstance(f, relax.Var))
    return alive


def named(calls: list[Call], name: str) -> list[Call]:
    return [c for c in calls if c.op_name == name]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_maximum_of_bytes(dtype: str) -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        y = emit(op.nn.max_pool2d(dequantised(emit, x[0], 0.05, 7), (3, 3), (2, 2), (1, 1)))
        return quantised(emit, y, 0.05, 7, dtype)

    calls = check(build, (1, 8, 13, 12), dtype=dtype)
    assert len(calls) == 1 and named(calls, "relax.nn.max_pool2d")


def test_a_maximum_that_gets_another_scale() -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        y = emit(op.nn.max_pool2d(dequantised(emit, x[0], 0.05, 7), (2, 2)))
        return quantised(emit, y, 0.03, 90)

    (pool,) = named(check(build, (1, 8, 6, 6)), "relax.nn.max_pool2d")
    assert pool.struct_info.dtype == "uint8"


def test_parts_are_quantised_before_they_are_joined() -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        parts = [dequantised(emit, x[0], 0.05, 7), dequantised(emit, x[1], 0.04, 0)]
        return quantised(emit, emit(op.concat(parts, axis=1)), 0.05, 7)

    (joined,) = named(check(build, (1, 8, 6, 6), (1, 16, 6, 6)), "relax.concat")
    assert joined.struct_info.dtype == "uint8"


@pytest.mark.parametrize(
    ("scale", "zero", "dtype"), [(0.05, 7, "uint8"), (0.05, 8, "uint8"), (0.0502, 7, "uint8"), (0.05, 7, "int8")]
)
def test_scales_cancel_that_leave_each_byte_as_it_is(scale: float, zero: int, dtype: str) -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        return quantised(emit, dequantised(emit, emit(op.maximum(*x)), 0.05, 7), scale, zero, dtype)

    cancels = (scale, zero, dtype) == (0.05, 7, "uint8")
    assert (len(check(build, (5, 7), (5, 7))) == 1) == cancels


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("move", "shape"),
    [
        (lambda x: op.reshape(x, (2, 3, 4)), (6, 4)),
        (lambda x: op.permute_dims(x, axes=[0, 2, 1]), (2, 3, 4)),
        (lambda x: op.expand_dims(x, axis=1), (3, 4)),
        (lambda x: op.squeeze(x, axis=1), (3, 1, 4)),
    ],
)
def test_views_are_views_of_bytes(move: Callable[[Any], Any], shape: tuple[int, ...], dtype: str) -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        whole = emit(op.maximum(*x))
        return quantised(emit, emit(move(dequantised(emit, whole, 0.05, 7))), 0.05, 7, dtype)

    assert len(check(build, shape, shape, dtype=dtype)) == 2


def test_a_division_that_the_second_scale_knows_of_is_none() -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        real = dequantised(emit, emit(op.maximum(*x)), 0.6655972, 119)
        return quantised(emit, emit(op.divide(real, relax.const(np.asarray(8.0, "float32")))), 0.08319965, 119)

    assert len(check(build, (5, 7), (5, 7))) == 1


@pytest.mark.parametrize("add", [1.0, 100.0])
def test_a_function_of_bytes_that_changes_one_stays(add: float) -> None:
    """Or all of them; also where the bytes that are met are no others."""

    def build(emit: Emit, x: list[Any]) -> Any:
        real = dequantised(emit, emit(op.maximum(*x)), 0.05, 7)
        return quantised(emit, emit(op.maximum(real, relax.const(np.asarray(-0.35 + 0.05 * add, "float32")))), 0.05, 7)

    assert len(check(build, (5, 7), (5, 7))) > 1


def test_a_function_of_two_tensors_of_bytes_stays() -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        a, b = (dequantised(emit, emit(op.maximum(v, x[2])), 0.05, 7) for v in x[:2])
        return quantised(emit, emit(op.maximum(a, b)), 0.05, 7)

    assert len(named(check(build, (5, 7), (5, 7), (5, 7)), "relax.maximum")) == 3


@pytest.mark.parametrize("scale", [1e-30, 1e-5, 0.1, 1 / 3, 0.7, 3.0, 1e30])
@pytest.mark.parametrize("zero", [0, 128, 255])
def test_cancelling_is_exact_for_every_byte(scale: float, zero: int) -> None:
    q = np.arange(256, dtype="uint8")
    x = (q.astype("int32") - zero).astype("float32") * np.float32(scale)
    again = np.clip(np.rint(x / np.float32(scale)) + np.float32(zero), 0, 255).astype("uint8")
    np.testing.assert_array_equal(again, q)


@pytest.mark.parametrize("scale", [-0.05, 0.0])
def test_scales_that_are_none_stay(scale: float) -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        return emit(op.nn.max_pool2d(dequantised(emit, x[0], scale, 7), (2, 2)))

    (pool,) = named(check(build, (1, 8, 6, 6)), "relax.nn.max_pool2d")
    assert pool.struct_info.dtype == "float32"


def test_floats_that_others_read_stay() -> None:
    def build(emit: Emit, x: list[Any]) -> Any:
        parts = [dequantised(emit, x[0], 0.05, 7), dequantised(emit, x[1], 0.04, 0)]
        joined = emit(op.concat(parts, axis=1))
        whole = emit(op.astype(quantised(emit, joined, 0.05, 7), "float32"))
        return emit(op.add(whole, joined))

    (joined,) = named(check(build, (1, 8, 6, 6), (1, 16, 6, 6)), "relax.concat")
    assert joined.struct_info.dtype == "float32"
