"""Operators on NaN, infinities, signed zeros, the smallest and the largest numbers, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax, te, topi
from autosched.relax.op.registry import OPERATORS, python_argument
from autosched.relax.struct_info import tensor_infos
from autosched.relax.te_call import make_te_call

EXACT = (
    *("maximum", "minimum", "sign", "abs", "negative", "clip", "nn.relu", "floor", "ceil", "round", "trunc", "sqrt"),
    *("add", "subtract", "multiply", "divide", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    *("isnan", "isinf", "isfinite", "where", "argmax", "argmin", "sort", "argsort", "topk", "square"),
)
CLOSE = (
    *("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "asinh", "acosh", "atanh", "asin", "acos", "atan"),
    *("power", "log_add_exp", "nn.leaky_relu", "nn.silu", "rsqrt"),
)
WHOLE = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "power", "maximum", "minimum", "abs", "negative"),
    *("sign", "mod", "floor_mod", "left_shift", "right_shift", "bitwise_and", "argmax", "argmin", "sort", "argsort"),
)


def edge_values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers at which functions go wrong, in a random order."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        f = np.finfo(kind)
        values: list[Any] = [np.nan, np.inf, -np.inf, -0.0, 0.0, f.tiny, -f.tiny, f.max, f.min, 1.5, -2.5, 0.5, 3, -1]
    elif kind.kind == "b":
        values = [True, False]
    else:
        i = np.iinfo(kind)
        values = [i.min, i.max, 0, 1, 2, 3, 5, 31, 33, *([-1, -2, -7] if kind.kind == "i" else [])]
    return np.asarray(np.random.default_rng(seed).choice(np.array(values, kind), shape), kind)


def compare(name: str, dtype: str | None, rtol: float, seed: int = 0) -> None:
    """The compiled operator against its reference, on its first sample's shapes."""
    definition = OPERATORS[name]
    sample = definition.samples[0]
    args = tuple(
        relax.Constant(edge_values(dtype if dtype and t.dtype != "bool" else t.dtype, t.static_shape, seed + i))
        for i, t in enumerate(sample.types)
    )
    call = definition.make(args, sample.attrs)
    with np.errstate(all="ignore"):
        want = definition.run_reference([python_argument(a, lambda c: c.data) for a in args], call.attrs)
    assert definition.compute is not None
    made = make_te_call(definition.compute, args, call.attrs)
    outputs = [np.zeros(i.static_shape, i.dtype) for i in tensor_infos(call.struct_info)]
    autosched.build(made.func, threads=1)(*(a.data for a in made.args), *outputs)
    for got, expected in zip(outputs, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-6 if rtol else 0, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in EXACT if n in OPERATORS])
def test_exact_functions(name):
    compare(name, None, 0)


@pytest.mark.parametrize("name", [n for n in CLOSE if n in OPERATORS])
def test_functions_that_round(name):
    compare(name, None, 2e-5)


@pytest.mark.parametrize("name", [n for n in WHOLE if n in OPERATORS])
def test_integers(name):
    compare(name, "int32", 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32"])
@pytest.mark.parametrize("name", ["divide", "floor_divide", "sign"])
def test_other_widths(name, dtype):
    compare(name, dtype, 0, seed=3)


def test_division_has_a_result_for_every_pair():
    x, y = relax.Var("x", relax.TensorStructInfo((8,), "int32")), relax.Var("y", relax.TensorStructInfo((8,), "int32"))
    a = np.array([7, -7, 0, -(2**31), -(2**31), 2**31 - 1, 5, -5], "int32")
    b = np.array([0, 0, 0, -1, 0, -1, 3, 3], "int32")
    expected = {"divide": [0, 0, 0, -(2**31), 0, -(2**31) + 1, 1, -1], "mod": [0, 0, 0, 0, 0, 0, 2, -2]}
    for name, want in expected.items():
        builder = relax.BlockBuilder()
        with builder.function("main", [x, y]):
            with builder.dataflow():
                out = builder.emit_output(OPERATORS[name](x, y))
            builder.emit_func_output(out)
        np.testing.assert_array_equal(autosched.build(builder.get(), threads=1)(a, b).numpy(), want)


def test_the_largest_of_nothing_but_minus_infinity():
    low = np.full((1, 1, 6, 6), -np.inf, "float32")
    for make in (
        lambda x: relax.op.nn.max_pool2d(x, (2, 2)),
        lambda x: relax.op.max(x, axis=(2,)),
        lambda x: relax.op.negative(relax.op.min(relax.op.negative(x), axis=(3,))),
    ):
        x = relax.Var("x", relax.TensorStructInfo(low.shape, "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                out = builder.emit_output(make(x))
            builder.emit_func_output(out)
        assert (autosched.build(builder.get(), threads=1)(low).numpy() == -np.inf).all()


def test_floats_become_integers_within_their_range():
    """Out of range they become the nearest integer, and NaN becomes 0: see docs/numbers.md."""
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300.7, -1.5, 1e20], "float32")
    for dtype, want in {
        "int32": [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 300, -1, 2**31 - 1],
        "uint8": [0, 255, 0, 255, 0, 255, 0, 255],
        "int8": [0, 127, -128, 127, -128, 127, -1, 127],
    }.items():
        v = relax.Var("x", relax.TensorStructInfo((8,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [v]):
            with builder.dataflow():
                out = builder.emit_output(relax.op.astype(v, dtype))
            builder.emit_func_output(out)
        np.testing.assert_array_equal(autosched.build(builder.get(), threads=1)(x).numpy(), np.array(want, dtype))


@pytest.mark.parametrize("far", [np.inf, 1.0])  # one infinite dividend, and the whole vector is left to libm
@pytest.mark.parametrize("name", ["mod", "floor_mod"])
def test_remainders_of_infinite_divisors(name, far):
    a = np.array([3, -3, 3, -3, 0, far, far - far, 5], "float32")
    b = np.array([np.inf, np.inf, -np.inf, -np.inf, np.inf, 2, np.inf, 3], "float32")
    x, y = (relax.Var(n, relax.TensorStructInfo(a.shape, "float32")) for n in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(OPERATORS[name](x, y))
        builder.emit_func_output(out)
    with np.errstate(invalid="ignore"):
        want = OPERATORS[name].run_reference([a, b], {})
    np.testing.assert_array_equal(autosched.build(builder.get(), threads=1)(a, b).numpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["mod", "floor_mod"])
def test_remainders_of_huge_quotients(name, dtype):
    """Exact, however far apart the two are: 1e30 % 3 has nothing to do with the rounded quotient."""
    rng, kind = np.random.default_rng(0), np.finfo(dtype)
    n = 2000
    low, high = int(kind.minexp), int(kind.maxexp)
    a, b = (np.ldexp(rng.uniform(1, 2, n), rng.integers(low - 5, high, n)).astype(dtype) for _ in range(2))
    with np.errstate(over="ignore"):
        near = b[: n // 2] * rng.integers(1, 2000, n // 2).astype(dtype)  # quotients next to whole numbers
    a[: n // 2] = np.nextafter(near, rng.choice(np.array([-np.inf, np.inf, 0], dtype), n // 2))
    a, b = (np.where(rng.random(n) < 0.5, v, -v) for v in (a, b))
    a[:4], b[:4] = [1e4, -1e4, 65504, 0.0], [3, 3, -7, -2]
    x, y = (relax.Var(v, relax.TensorStructInfo(a.shape, dtype)) for v in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(OPERATORS[name](x, y))
        builder.emit_func_output(out)
    with np.errstate(all="ignore"):
        want = OPERATORS[name].run_reference([a, b], {})
    for target in (None, "llvm -mcpu=x86-64-v2")[: 1 if dtype == "float16" else 2]:  # v2 has no float16
        got = autosched.build(builder.get(), target=target, threads=1)(a, b).numpy()
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("reduction, value", [("max", -np.inf), ("min", np.inf)])
def test_scatter_keeps_infinities(reduction: str, value: float) -> None:
    """What no update hits, and what only infinities hit, stays infinite."""
    shapes = ((4,), "float32"), ((20,), "int64"), ((20,), "float32")
    x, at, updates = (te.placeholder(shape, dtype=dtype) for shape, dtype in shapes)
    out = OPERATORS["scatter_elements"].compute(x, at, updates, axis=0, reduction=reduction, mode="raise")
    found = np.zeros(4, "float32")
    kernel = autosched.build(te.create_prim_func([x, at, updates, out]), target="cpu", records=[])
    kernel(np.full(4, value, "float32"), np.arange(20) % 3, np.full(20, value, "float32"), found)
    np.testing.assert_array_equal(found, np.full(4, value, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_of_equal_elements_it_is_the_first(name: str, dtype: str) -> None:
    """Also of those that nothing is worse than, with which a search begins."""
    values = np.unique(edge_values(dtype, (200,), 0))
    x = te.placeholder((len(values), 7), dtype, name="x")
    built = autosched.build(te.create_prim_func([x, getattr(topi, name)(x, 1)]), target="cpu", records=[])
    out = np.full(len(values), -1, built.entry_func.args[-1].dtype)
    built(np.repeat(values[:, None], 7, 1), out)
    assert not out.any()
