"""Exponentials that are known to be at most 1."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen.cpu.math import EXP_BELOW
from autosched.ir.node import preorder
from autosched.templates.cpu.powers import bound_powers
from autosched.tir import Call


def powers(*tensors):
    func = bound_powers(te.create_prim_func(list(tensors)))
    return [x.op for x in preorder(func.body) if isinstance(x, Call) and "exp" in x.op]


@pytest.mark.parametrize("shape", [(7, 30), (2, 3, 40), (1, 16)])
@pytest.mark.parametrize("softmax", [topi.softmax, topi.log_softmax])
def test_softmax(softmax, shape):
    x = te.placeholder(shape, name="x")
    assert set(powers(x, softmax(x))) == {EXP_BELOW}


def test_softmax_of_what_is_computed():
    x, y = te.placeholder((4, 30), name="x"), te.placeholder((30,), name="y")
    assert powers(x, y, topi.softmax(topi.add(x, y)))[-1] == EXP_BELOW


def largest(x, rows, columns):
    k = te.reduce_axis((0, columns), "k")
    return te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="largest")


def test_what_may_be_larger_keeps_its_guard():
    x, y = te.placeholder((8, 30), name="x"), te.placeholder((8, 30), name="y")
    top = largest(x, 8, 30)
    others = [
        te.compute((8, 30), lambda i, j: te.exp(y[i, j] - top[i])),  # of something else
        te.compute((8, 30), lambda i, j: te.exp(x[7 - i, j] - top[i])),  # of another row
        te.compute((8, 30), lambda i, j: te.exp(x[i, j] + top[i])),
        te.compute((8, 30), lambda i, j: te.exp(top[i] - x[i, j])),
        te.compute((8, 30), lambda i, j: te.exp(x[i, j] * 2.0 - top[i])),
    ]
    for result in others:
        assert "exp" in "".join(powers(x, y, result))
        assert EXP_BELOW not in powers(x, y, result), result
    part = largest(x, 8, 20)
    assert EXP_BELOW not in powers(x, te.compute((8, 30), lambda i, j: te.exp(x[i, j] - part[i])))
    x64 = te.placeholder((8, 30), "float64", name="x64")
    assert EXP_BELOW not in powers(x64, topi.softmax(x64))


@pytest.mark.parametrize(
    "row", [[-np.inf] * 20, [np.nan] + [0.0] * 19, [np.inf] + [1.0] * 19, [-3e38, 3e38] * 10, [-1e9] + [5.0] * 19]
)
def test_edges(row):
    import autosched

    x = te.placeholder((3, 20), name="x")
    built = autosched.build(te.create_prim_func([x, topi.softmax(x)]))
    given = np.tile(np.array(row, np.float32), (3, 1))
    out = autosched.nd.array(np.full((3, 20), 7, np.float32))
    built(autosched.nd.array(given), out)
    with np.errstate(all="ignore"):
        power = np.exp((given - np.maximum(given.max(1, keepdims=True), np.float32(-3.40282347e38))).astype(np.float64))
        expected = power / power.sum(1, keepdims=True)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-7)
