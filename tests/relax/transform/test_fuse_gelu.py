import math

import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.transform import DeadCodeElimination, FuseGelu
from tests.relax.transform.graphs import assert_same_results, calls, graph

SHAPE = {"x": (3, 5)}
ROOT = math.sqrt(2)


def number(value):
    return relax.const(np.float32(value))


def erf_of(bb, x, divided=True, scale=1 / ROOT):
    scaled = op.divide(x, number(1 / scale)) if divided else op.multiply(number(scale), x)
    return bb.emit(op.add(bb.emit(op.erf(bb.emit(scaled))), number(1)))


def tanh_of(bb, x, power=True, factor=0.044715):
    cube = op.power(x, number(3)) if power else op.multiply(bb.emit(op.multiply(x, x)), x)
    inner = bb.emit(op.add(x, bb.emit(op.multiply(number(factor), bb.emit(cube)))))
    return bb.emit(op.add(number(1), bb.emit(op.tanh(bb.emit(op.multiply(number(0.7978845608), inner))))))


ORDERS = {
    "(x * s) * 0.5": lambda bb, x, s: op.multiply(bb.emit(op.multiply(x, s)), number(0.5)),
    "(0.5 * x) * s": lambda bb, x, s: op.multiply(bb.emit(op.multiply(number(0.5), x)), s),
    "x * (s * 0.5)": lambda bb, x, s: op.multiply(x, bb.emit(op.multiply(s, number(0.5)))),
    "(s * x) / 2": lambda bb, x, s: op.divide(bb.emit(op.multiply(s, x)), number(2)),
}


def fused(build):
    module = graph(SHAPE, build)
    result = DeadCodeElimination()(FuseGelu()(module))
    assert_same_results(module, result)
    return calls(result)


@pytest.mark.parametrize("order", ORDERS)
def test_both_forms_in_every_order(order):
    for divided in (True, False):
        assert fused(lambda bb, x, d=divided: ORDERS[order](bb, x, erf_of(bb, x, d))) == ["nn.gelu"]
    for power in (True, False):
        assert fused(lambda bb, x, p=power: ORDERS[order](bb, x, tanh_of(bb, x, p))) == ["nn.gelu_tanh"]


def test_an_argument_that_is_a_product_itself():
    def build(bb, x):
        y = bb.emit(op.multiply(x, number(0.5)))
        return ORDERS["(x * s) * 0.5"](bb, y, erf_of(bb, y))

    assert fused(build) == ["multiply", "nn.gelu"]


@pytest.mark.parametrize(
    "build",
    [
        lambda bb, x: ORDERS["(x * s) * 0.5"](bb, x, erf_of(bb, x, scale=0.7)),
        lambda bb, x: ORDERS["(x * s) * 0.5"](bb, x, tanh_of(bb, x, factor=0.045)),
        lambda bb, x: ORDERS["(x * s) * 0.5"](bb, bb.emit(op.negative(x)), erf_of(bb, x)),
        lambda bb, x: op.multiply(x, erf_of(bb, x)),
        lambda bb, x: op.multiply(bb.emit(op.multiply(x, erf_of(bb, x))), relax.const(np.full((1, 3, 5), 0.5, "f"))),
        lambda bb, x: op.multiply(bb.emit(op.multiply(x, erf_of(bb, x))), relax.const(np.full((1, 1, 1), 0.5, "f"))),
    ],
)
def test_what_is_no_gelu_stays(build):
    assert not any("gelu" in name for name in fused(build))
