"""GELU behind a product: both forms, as models write them and as operators."""

import math

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax import op
from tests.relax.transform.graphs import graph

N = 8


def _by_erf(bb, x):
    inner = bb.emit(op.erf(bb.emit(op.divide(x, relax.const(np.float32(math.sqrt(2)))))))
    return op.multiply(bb.emit(op.multiply(x, relax.const(np.float32(0.5)))), bb.emit(op.add(inner, relax.const(1.0))))


def _by_tanh(bb, x):
    cube = bb.emit(op.multiply(bb.emit(op.multiply(x, x)), x))
    inner = bb.emit(op.add(x, bb.emit(op.multiply(cube, relax.const(np.float32(0.044715))))))
    tanh = bb.emit(op.tanh(bb.emit(op.multiply(inner, relax.const(np.float32(math.sqrt(2 / math.pi)))))))
    return op.multiply(bb.emit(op.multiply(x, relax.const(np.float32(0.5)))), bb.emit(op.add(tanh, relax.const(1.0))))


def _exact(x):
    return np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])


def _exact_tanh(x):
    x = np.clip(x, -1e60, 1e60)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMS = {
    "erf": (_by_erf, _exact),
    "tanh": (_by_tanh, _exact_tanh),
    "gelu": (lambda bb, x: op.nn.gelu(x), _exact),
    "gelu_tanh": (lambda bb, x: op.nn.gelu_tanh(x), _exact_tanh),
}


@pytest.mark.parametrize("form", FORMS)
def test_gelu_behind_a_product(form):
    """The product with the unit matrix is x itself, so that the error is GELU's."""
    make, exact = FORMS[form]
    rng = np.random.default_rng(0)
    large = np.geomspace(10, 1e30, 36)
    x = np.concatenate([rng.uniform(-8, 8, 1004), np.geomspace(1e-38, 1, 20), large, -large]).astype("f")
    x = np.concatenate([x, np.zeros(-x.size % N, "f")]).reshape(-1, N)

    def build(bb, x):
        return make(bb, bb.emit(op.matmul(x, relax.const(np.eye(N, dtype="f")))))

    built = autosched.build(graph({"x": x.shape}, build), target="cpu", records=[], threads=1)
    y, true = built(x).numpy().ravel(), exact(x.astype("d").ravel())
    x = x.ravel()
    assert (abs(y - true) <= 3e-7 * abs(x)).all()
    np.testing.assert_array_equal(y[x >= 10], x[x >= 10])
    np.testing.assert_array_equal(y[x <= -20], 0)
