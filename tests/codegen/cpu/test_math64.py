"""Our own float64 functions: units in the last place against 80-bit floats, and the corners."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.cpu.math64 import CIRCULAR_LIMIT
from autosched.target import Target
from tests.codegen.cpu.test_math import evaluate, ulps
from tests.codegen.programs import with_kinds

CORNERS = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e-310, 1, -1, 1e308, -1e308, 709.7, 709.79, 710, -708, -709]
    + [-745, -745.2, -746, -1e9, 0.625, -0.625, CIRCULAR_LIMIT, -CIRCULAR_LIMIT, 2.0**-1022]
)
needs_wide = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="the reference has 64 bits")


def inputs(positive):
    rng = np.random.default_rng(0)
    near = [rng.uniform(-745, 711, 20_001), rng.uniform(-1, 1, 20_000), 4 * rng.standard_normal(20_000)]
    tiny = 10.0 ** rng.uniform(-300, 2, 5_000)
    x = np.concatenate([CORNERS, *near, tiny, -tiny])
    if positive:
        x = np.concatenate([x, np.exp(rng.uniform(-745, 709, 20_000)), 1 + rng.uniform(-1e-5, 1e-5, 9_999)])
    return x


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@needs_wide
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("op, most", [("exp", 1), ("log", 1), ("tanh", 2.5), ("sigmoid", 2.5)])
def test_functions_of_float64(op, most, target):
    x = inputs(op == "log")
    if target == "llvm -mcpu=x86-64" and op == "sigmoid":
        x = x[~(x < -708)]  # where the exponential of -x is no number, this one gives 0
    with np.errstate(all="ignore"):
        exact = sigmoid(x.astype("g")) if op == "sigmoid" else getattr(np, op)(x.astype("g"))
        assert ulps(evaluate(op, x, target, "vectorized"), exact) <= most


@needs_wide
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("op", ["sin", "cos"])
def test_sine_and_cosine(op, target):
    rng = np.random.default_rng(3)
    quarters = np.concatenate([np.arange(-20_000, 20_000), rng.integers(-636_619_000, 636_619_000, 20_000)])
    far = [rng.uniform(-CIRCULAR_LIMIT, CIRCULAR_LIMIT, 20_000), 10.0 ** rng.uniform(9, 300, 500)]
    x = np.concatenate([inputs(False), quarters * (np.pi / 2), *far])
    x = x[np.isnan(x) | ~(abs(x) > 2.0**62) | np.isinf(x)]  # the reference is the 80-bit unit's
    with np.errstate(all="ignore"):
        y = evaluate(op, x, target, "vectorized")
        assert ulps(y, getattr(np, op)(x.astype("g"))) <= 2
    assert np.signbit(evaluate("sin", np.full(33, -0.0), target, "vectorized")).all()


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "sigmoid", "sin", "cos"])
def test_scalars_and_vectors_agree_to_the_bit(op):
    x = inputs(False)[:300]
    np.testing.assert_array_equal(evaluate(op, x, "cpu", "serial"), evaluate(op, x, "cpu", "vectorized"))


@pytest.mark.parametrize("cpu", ["-mcpu=x86-64-v3", "-mtriple=aarch64-linux-gnu"])
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "sigmoid", "sin", "cos"])
def test_vectors_are_not_taken_apart(op, cpu):
    """Only sin and cos call libm, where an argument is large."""
    a = te.placeholder((64,), "float64", name="A")
    func = with_kinds(
        te.create_prim_func([a, te.compute((64,), lambda i: getattr(te, op)(a[i]), name="C")]), i="vectorized"
    )
    llvm = compile_func(func, Target(f"llvm {cpu} -num-cores=1"), name="f").kernel.llvm
    assert (f"@{op}(" in llvm) == (op in ("sin", "cos"))
    assert "llvm.fma.v" in llvm
