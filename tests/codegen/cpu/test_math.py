"""Our own float32 functions: units in the last place against float64, and the corners."""

from functools import partial

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.cpu.math import EXP_BELOW
from autosched.target import Target
from autosched.tir import expr as E
from tests.codegen.programs import aligned, run, with_kinds

CORNERS = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 88.7, 88.73, 89, -87.4, -103.9, -105, 200, 3e38, -3e38, 1],
    "f",
)


def erf(x):
    import math

    return np.vectorize(math.erf)(x)


def exp(x):
    """Results below the normal numbers of float32 are 0: arithmetic with denormal ones is a hundred times slower."""
    return np.where(x < -87.33654, 0.0, np.exp(x))


def sigmoid(x):
    return np.where(x < 0, exp(-abs(x)), 1) / (1 + exp(-abs(x)))


def inputs(positive):
    rng = np.random.default_rng(0)
    spread = rng.uniform(-104, 89, 20_001)
    values = (
        np.exp(spread)
        if positive
        else np.concatenate([spread, rng.uniform(-1, 1, 10_000), rng.standard_normal(10_000) * 4])
    )
    with np.errstate(over="ignore"):
        return np.concatenate([CORNERS, values]).astype("f")


def evaluate(op, x, target, kind):
    a = te.placeholder(x.shape, str(x.dtype), name="A")
    c = te.compute(x.shape, lambda i: getattr(te, op)(a[i]), name="C")
    y = aligned(x.shape, str(x.dtype))
    run(compile_func(with_kinds(te.create_prim_func([a, c]), i=kind), target, name=op), [x, y])
    return y


def ulps(y, exact):
    rounded = exact.astype(y.dtype)
    finite = np.isfinite(rounded) & np.isfinite(y)
    same = (y == rounded) | (np.isnan(y) & np.isnan(rounded))
    assert same[~finite].all(), "infinities and NaN are where they should be"
    return (abs(y[finite] - exact[finite]) / np.spacing(abs(rounded[finite]))).max()


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize(
    "op, exact, most",
    [("exp", exp, 2.5), ("log", np.log, 2.5), ("tanh", np.tanh, 2.5), ("erf", erf, 2.5), ("sigmoid", sigmoid, 3.1)],
)
def test_vector_functions_are_within_few_units_in_the_last_place(op, exact, most, target):
    x = inputs(op == "log")
    with np.errstate(all="ignore"):
        assert ulps(evaluate(op, x, target, "vectorized"), exact(x.astype("d"))) <= most


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("op, exact", [("asin", np.arcsin), ("acos", np.arccos), ("atan", np.arctan)])
def test_inverse_circular_functions(op, exact, target):
    edges = np.array([0.5, 1, 1 + 2**-23, np.tan(np.pi / 8), np.tan(3 * np.pi / 8)], "f")
    x = np.concatenate([inputs(False), edges, -edges, np.linspace(-1, 1, 10_001, dtype="f")])
    with np.errstate(all="ignore"):
        assert ulps(evaluate(op, x, target, "vectorized"), exact(x.astype("d"))) <= 3
    zeros = np.array([0.0, -0.0] * 8, "f")
    if op != "acos":
        assert np.array_equal(np.signbit(evaluate(op, zeros, target, "vectorized")), np.signbit(zeros))


def test_the_exponential_of_what_is_at_most_0_is_the_usual_one_to_the_bit():
    x = -abs(inputs(False))
    func = te.placeholder(x.shape, "float32", name="A")
    y = te.compute(x.shape, lambda i: E.Call(EXP_BELOW, (func[i].as_expr(),), "float32"), name="C")
    out = aligned(x.shape, "float32")
    run(compile_func(with_kinds(te.create_prim_func([func, y]), i="vectorized"), "cpu", name="below"), [x, out])
    usual = x >= -87.33654
    np.testing.assert_array_equal(out[usual], evaluate("exp", x, "cpu", "vectorized")[usual])
    few = x < -87.33654  # of which the largest are denormal numbers
    np.testing.assert_allclose(
        out[few], np.where(x[few] < -88, 0, np.exp(x[few].astype("d"))), atol=np.finfo("f").tiny * 0.75
    )
    assert out[x < -88].max() == 0 and np.isnan(out[np.isnan(x)]).all()


def over_all_exponents(count=200):
    """`count` random numbers of either sign with each exponent that there is, denormals included."""
    rng = np.random.default_rng(1)
    exponents = np.repeat(np.arange(255, dtype="u4"), count)
    signs, mantissas = rng.integers(0, 2, exponents.size, "u4"), rng.integers(0, 1 << 23, exponents.size, "u4")
    return (signs << 31 | exponents << 23 | mantissas).view("f4")


@pytest.mark.parametrize("op, exact", [("exp", exp), ("tanh", np.tanh), ("erf", erf), ("log", np.log)])
def test_at_most_two_units_in_the_last_place_over_all_exponents(op, exact):
    rng = np.random.default_rng(2)
    x = np.concatenate([CORNERS, over_all_exponents(), rng.uniform(-12, 12, 50_000).astype("f")])
    x = abs(x) if op == "log" else x
    with np.errstate(all="ignore"):
        assert ulps(evaluate(op, x, "cpu", "vectorized"), exact(x.astype("d"))) <= 2


@pytest.mark.parametrize(
    "op, count", [("exp", 300), ("tanh", 300), ("erf", 300), ("log", 300), ("sigmoid", 300), ("sigmoid", 6)]
)
def test_scalars_and_vectors_agree_to_the_bit(op, count):
    x = abs(inputs(False)[:count])
    np.testing.assert_array_equal(evaluate(op, x, "cpu", "serial"), evaluate(op, x, "cpu", "vectorized"))


@pytest.mark.parametrize("op, exact", [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine(op, exact):
    rng = np.random.default_rng(3)
    quarters = np.arange(-60_000, 60_000, dtype="d") * (np.pi / 2)
    near = [rng.uniform(-12, 12, 50_000), rng.uniform(-1e5, 1e5, 50_000), quarters]
    x = np.concatenate([CORNERS, over_all_exponents(20), np.concatenate(near).astype("f")])
    with np.errstate(all="ignore"):
        y = evaluate(op, x, "cpu", "vectorized")
        assert ulps(y, exact(x.astype("d"))) <= 2
        assert ulps(evaluate(op, x[-999:], "llvm -mcpu=x86-64", "vectorized"), exact(x[-999:].astype("d"))) <= 1
    some = np.concatenate([x[:600], x[-600:]])
    np.testing.assert_array_equal(evaluate(op, some, "cpu", "serial"), np.concatenate([y[:600], y[-600:]]))
    zeros = np.full(33, -0.0, "f")
    assert np.signbit(evaluate("sin", zeros, "cpu", "vectorized")).all()
    assert (evaluate("cos", zeros, "cpu", "vectorized") == 1).all()


@pytest.mark.parametrize(
    "op, exact",
    [("sqrt", np.sqrt), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("tan", np.tan), ("abs", abs)],
)
def test_functions_of_the_cpu_and_of_libm(op, exact):
    x = inputs(False)[18:]
    x = abs(x) if op == "sqrt" else x
    assert ulps(evaluate(op, x, "cpu", "vectorized"), exact(x.astype("d"))) <= 1.0


def test_many_calls_of_libm_are_written_once_for_all_vectors():
    """Chains of sines took ten times as long to compile: each lane's call saved the registers of all that is alive."""

    def calls(depth):
        a = te.placeholder((64,), name="A")

        def chain(i):
            value = a[i]
            for _ in range(depth):
                value = te.tan(value) + a[i]
            return value

        func = with_kinds(te.create_prim_func([a, te.compute((64,), chain, name="C")]), i="vectorized")
        return compile_func(func, "cpu", name="chain").kernel.llvm.count("call float @tanf(")

    assert calls(2) < calls(40) == calls(50)


def test_double_and_half_precision():
    x = np.linspace(-9, 9, 501)
    assert ulps(evaluate("exp", x, "cpu", "vectorized"), np.exp(x)) <= 1.0
    half = x.astype("float16")
    assert ulps(evaluate("tanh", half, "cpu", "vectorized"), np.tanh(half.astype("d"))) <= 0.51


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 1.7])
def test_powers_with_constant_exponents(exponent):
    x = np.abs(np.linspace(0.01, 9, 77)).astype("f")
    a = te.placeholder(x.shape, name="A")
    c = te.compute(x.shape, lambda i: te.power(a[i], te.const(exponent, "float32")), name="C")
    y = aligned(x.shape)
    run(compile_func(with_kinds(te.create_prim_func([a, c]), i="vectorized"), "cpu", name="power"), [x, y])
    np.testing.assert_allclose(y, x.astype("d") ** float(np.float32(exponent)), rtol=4e-7)


def test_normal_distribution_function():
    from math import erfc, sqrt

    x = np.concatenate([np.random.default_rng(0).uniform(-15, 15, 20_001), CORNERS]).astype("f")
    x = x[~np.isnan(x)]
    exact = np.array([0.5 * erfc(-float(v) * sqrt(0.5)) for v in x])
    for kind in ("vectorized", "serial"):
        y = evaluate("normcdf", x, "cpu", kind)
        assert abs(y - exact).max() <= 1e-7
        near = abs(x) < 5
        assert (abs(y - exact)[near] / exact[near]).max() <= 2e-4
    assert np.isnan(evaluate("normcdf", np.full(9, np.nan, "f"), "cpu", "vectorized")).all()
    wide = np.linspace(-30, 10, 101)
    assert (
        ulps(evaluate("normcdf", wide, "cpu", "vectorized"), np.array([0.5 * erfc(-v * sqrt(0.5)) for v in wide])) < 99
    )


def _llvm_number(x):
    """A float32 in the text of LLVM's code."""
    return f"0x{np.float64(np.float32(x)).view(np.uint64):X}"


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("kind", ["vectorized", "serial"])
def test_gelu(target, kind):
    """The product of x and normcdf(x) is one function, alone and inside a sum, a difference and a product."""
    from math import erfc, sqrt

    x = np.concatenate([np.random.default_rng(0).uniform(-9, 9, 20_001), np.geomspace(1e-30, 1, 999), CORNERS]).astype(
        "f"
    )
    finite = np.isfinite(x)
    exact = np.array([v * 0.5 * erfc(-v * sqrt(0.5)) for v in map(float, x)])
    a = te.placeholder(x.shape, name="A")
    forms = {
        "alone": (lambda v: te.normcdf(v) * v, exact),
        "sum": (lambda v: v * te.normcdf(v) + v, exact + x),
        "difference": (lambda v: te.const(1, "float32") - v * te.normcdf(v), 1 - exact),
        "product": (lambda v: (v * te.normcdf(v)) * v + v, exact * x + x),
    }
    for name, (form, wanted) in forms.items():
        c = te.compute(x.shape, partial(lambda form, i: form(a[i]), form), name="C")
        y = aligned(x.shape)
        built = compile_func(with_kinds(te.create_prim_func([a, c]), i=kind), target, name=name)
        assert _llvm_number(0.199470818) in built.kernel.llvm, "a coefficient of the function's own"
        run(built, [x, y])
        near = finite & (abs(x) < 10)
        error, most = abs(y[near] - wanted[near]), 1.2e-7 * np.maximum(abs(x[near]), 1)
        assert (error <= most + 3e-7 * abs(wanted[near])).all(), name
        if name == "alone":
            small = near & (abs(x) < 1)
            assert (abs(y[small] - exact[small]) <= 4e-7 * abs(exact[small]) + 1e-37).all()
            assert (y[x > 7] == x[x > 7]).all() and (y[x < -7] == 0).all(), "infinities too"
            assert np.isnan(y[np.isnan(x)]).all()


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("kind", ["vectorized", "serial"])
def test_silu(target, kind):
    """The product of x and sigmoid(x) is one function, alone and inside a sum; to the ends of what float32 holds."""
    if not Target(target).features <= Target("cpu").features:
        pytest.skip("this machine lacks the instruction sets")
    x = np.concatenate([np.random.default_rng(0).uniform(-120, 120, 40_001), np.geomspace(1e-30, 1, 999), CORNERS])
    x = x.astype("f")
    with np.errstate(all="ignore"):
        exact = x / (1 + np.exp(-x.astype("d")))
    a = te.placeholder(x.shape, name="A")
    forms = {
        "alone": (lambda v: te.sigmoid(v) * v, exact),
        "sum": (lambda v: v * te.sigmoid(v) + v, exact + x),
    }
    for name, (form, wanted) in forms.items():
        c = te.compute(x.shape, partial(lambda form, i: form(a[i]), form), name="C")
        y = aligned(x.shape)
        built = compile_func(with_kinds(te.create_prim_func([a, c]), i=kind), target, name=name)
        vector_bytes = Target(target).vector_bits // 8
        assert vector_bytes == 16 or f"alignstack({vector_bytes})" in built.kernel.llvm, "spills keep to cache lines"
        run(built, [x, y])
        near = abs(x) < 87.3
        assert (abs(y[near] - wanted[near]) <= 5e-7 * abs(wanted[near]) + 1e-37).all(), name
        high = (x > 87.3) & (x < 1e38)
        assert (y[high] == wanted[high].astype("f")).all() and (y[np.isposinf(x)] == np.inf).all()
        assert np.isnan(y[np.isnan(x)]).all()
        if name == "alone":
            low = (x <= -87.3) & np.isfinite(x)
            assert (abs(y[low]) < 1e-35).all() and np.isnan(y[np.isneginf(x)]).all()


def test_the_exponential_has_no_denormal_results():
    x = np.concatenate([np.linspace(-110, -80, 4001), [-87.33654, -87.3366, -np.inf, -3e38]]).astype("f")
    y = evaluate("exp", x, "cpu", "vectorized")
    assert not ((y > 0) & (y < np.finfo("f").tiny)).any() and (y[x > -87.33] > 0).all() and (y[x < -87.34] == 0).all()


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_floats_as_integers_are_the_nearest_ones_and_no_number_is_0(dtype, source, target):
    edges = [np.nan, np.inf, -np.inf, -0.0, 0.9, -0.9, 1e5, -(2.0**31), 2.0**31, 2.0**31 - 1, -(2.0**63), 2.0**63, 1e30]
    with np.errstate(over="ignore"):
        x = np.concatenate([edges, np.random.default_rng(0).normal(0, 1e4, 54)]).astype(source)
    a = te.placeholder(x.shape, source, name="A")
    c = te.compute(x.shape, lambda i: a[i].astype(dtype), name="C")
    y = aligned(x.shape, dtype)
    run(compile_func(with_kinds(te.create_prim_func([a, c]), i="vectorized"), target, name="whole"), [x, y])
    ends = np.iinfo(dtype)
    wanted = [0 if v != v else ends.min if v <= ends.min else ends.max if v >= ends.max else int(v) for v in x.tolist()]
    np.testing.assert_array_equal(y, np.array(wanted, dtype))
