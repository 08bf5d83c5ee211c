"""find_gelu."""

import math

import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.transform import DeadCodeElimination, FindGelu
from tests.relax.transform.graphs import assert_same_results, calls, graph

HALF, ONE, ROOT = relax.const(0.5), relax.const(1.0), relax.const(math.sqrt(2))
SLOPE = math.sqrt(2 / math.pi)
SHARE = relax.const(np.float32([math.sqrt(0.5)]))


def _names(build, shapes=None):
    before = graph(shapes or {"x": (3, 4)}, build)
    after = DeadCodeElimination()(FindGelu()(before))
    assert_same_results(before, after)
    return calls(after)


def _spread(bb, x):
    return bb.emit(op.add(bb.emit(op.erf(bb.emit(op.divide(x, ROOT)))), ONE))


SPELLINGS = (
    lambda bb, x: op.multiply(bb.emit(op.multiply(x, _spread(bb, x))), HALF),
    lambda bb, x: op.multiply(bb.emit(op.multiply(HALF, x)), _spread(bb, x)),
    lambda bb, x: op.multiply(x, bb.emit(op.multiply(_spread(bb, x), HALF))),
    lambda bb, x: op.multiply(bb.emit(op.multiply(x, HALF)), op.add(ONE, op.erf(op.multiply(SHARE, x)))),
)


@pytest.mark.parametrize("build", SPELLINGS)
def test_spellings(build):
    def emitted(bb, x):
        return bb.normalize(build(bb, bb.emit(op.tanh(x))))

    assert _names(emitted) == ["tanh", "nn.gelu"]


def _cube(bb, x):
    return op.multiply(bb.emit(op.multiply(x, x)), x)


def _half(number):
    return float(np.float16(number))


def _large(bb, x):
    return op.power(bb.emit(op.power(bb.emit(op.multiply(x, relax.const(2e38))), relax.const(3.0))), relax.const(3.0))


def _by_tanh(bb, x, cube, slope=0.044715, scale=SLOPE):
    inner = bb.emit(op.add(x, bb.emit(op.multiply(bb.emit(cube(bb, x)), relax.const(slope)))))
    inner = bb.emit(op.multiply(relax.const(scale), inner))
    return op.multiply(bb.emit(op.multiply(HALF, x)), bb.emit(op.add(bb.emit(op.tanh(inner)), ONE)))


def _by_fast_tanh(bb, x):
    square = bb.emit(op.multiply(bb.emit(op.multiply(x, relax.const(0.044715))), x))
    root = bb.emit(op.multiply(x, relax.const(0.7978845608)))
    total = bb.emit(op.add(ONE, op.tanh(bb.emit(op.multiply(root, bb.emit(op.add(ONE, square)))))))
    return op.multiply(bb.emit(op.multiply(HALF, x)), total)


@pytest.mark.parametrize(
    "build",
    (
        lambda bb, x: _by_tanh(bb, x, lambda bb, x: op.power(x, relax.const(3.0))),
        lambda bb, x: _by_tanh(bb, x, _cube),
        lambda bb, x: _by_tanh(bb, x, _cube, *map(_half, (0.044715, SLOPE))),
        _by_fast_tanh,
    ),
)
def test_by_tanh(build):
    assert _names(lambda bb, x: bb.normalize(build(bb, bb.emit(op.exp(x))))) == ["exp", "nn.gelu_tanh"]
    square = {"cube": lambda bb, x: op.power(x, relax.const(2.0))}
    others = ({"slope": 0.0447}, {"scale": 0.7979}, square)
    for other in others:
        assert "nn.gelu_tanh" not in _names(lambda bb, x, o=other: _by_tanh(bb, x, **{"cube": _cube, **o}))


def test_numbers_beyond_float64():
    before = graph({"x": (3, 4)}, lambda bb, x: _by_tanh(bb, x, _large))
    assert calls(FindGelu()(before)) == calls(before)


def test_others_stay():
    def with_numbers(half, one, root):
        def build(bb, x):
            spread = bb.emit(op.add(bb.emit(op.erf(bb.emit(op.divide(x, relax.const(root))))), relax.const(one)))
            return op.multiply(bb.emit(op.multiply(x, spread)), relax.const(half))

        return "nn.gelu" in _names(build)

    root = math.sqrt(2)
    assert with_numbers(0.5, 1.0, root)
    assert not any((with_numbers(0.6, 1.0, root), with_numbers(0.5, 1.1, root), with_numbers(0.5, 1.0, 1.5)))

    def of_another(bb, x, y):
        return op.multiply(bb.emit(op.multiply(y, _spread(bb, x))), HALF)

    assert "nn.gelu" not in _names(of_another, {"x": (3, 4), "y": (3, 4)})

    def scaled(bb, x):
        scale = relax.const(np.float32([1, 2, 3, 4]))
        return op.multiply(bb.emit(op.multiply(bb.emit(op.multiply(x, scale)), _spread(bb, x))), HALF)

    assert "nn.gelu" not in _names(scaled)

    def wider(bb, x):
        half = relax.const(np.full((1, 1, 1), 0.5, np.float32))
        return op.multiply(bb.emit(op.multiply(x, _spread(bb, x))), half)

    assert "nn.gelu" not in _names(wider)


def test_parts_that_others_read_stay():
    def build(bb, x):
        spread = _spread(bb, x)
        return op.multiply(bb.emit(op.multiply(x, spread)), HALF), spread

    assert _names(build) == ["divide", "erf", "add", "nn.gelu"]
