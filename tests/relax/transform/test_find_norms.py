"""find_norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.transform import DeadCodeElimination, FindNorms
from tests.relax.transform.graphs import assert_same_results, calls, graph

Build = Callable[..., Any]
RNG = np.random.default_rng(0)
GAMMA, BETA = (relax.const(RNG.random(4).astype("float32") + 0.5) for _ in range(2))
TWO, ONE, SMALL = relax.const(2.0), relax.const(1.0), relax.const(1e-5)
WHOLE = ["tanh", "nn.layer_norm"]


def names(build: Build) -> list[str]:
    before = graph({"x": (2, 3, 4)}, build)
    after = DeadCodeElimination()(FindNorms()(before))
    assert_same_results(before, after)
    return list(calls(after))


def mean(x: Any, axis: Any = -1, keepdims: bool = True) -> Any:
    return op.mean(x, axis=axis, keepdims=keepdims)


def centred(x: Any, axis: Any = -1) -> Any:
    return op.subtract(x, mean(x, axis))


def emitted(build: Callable[[Any], Any]) -> Build:
    """The spelling with every call bound, of a value that is computed."""
    return lambda bb, x: bb.normalize(build(bb.emit(op.tanh(x))))


RMS: dict[str, Callable[[Any], Any]] = {
    "rsqrt": lambda x: op.multiply(x, op.rsqrt(op.add(mean(op.multiply(x, x)), SMALL))),
    "power": lambda x: op.multiply(op.rsqrt(op.add(SMALL, mean(op.power(x, TWO)))), x),
    "root": lambda x: op.divide(x, op.sqrt(op.add(mean(op.square(x)), SMALL))),
    "reciprocal": lambda x: op.multiply(x, op.divide(ONE, op.sqrt(op.add(mean(op.multiply(x, x)), SMALL)))),
}


@pytest.mark.parametrize("spelling", RMS)
def test_root_mean_squares(spelling: str) -> None:
    assert names(emitted(RMS[spelling])) == ["tanh", "nn.rms_norm"]
    assert names(emitted(lambda x: op.multiply(GAMMA, RMS[spelling](x)))) == ["tanh", "nn.rms_norm"]
    assert names(emitted(lambda x: op.add(RMS[spelling](x), BETA))) == ["tanh", "nn.rms_norm", "add"]


def layer(x: Any, axis: Any = -1) -> Any:
    c = centred(x, axis)
    return op.divide(c, op.sqrt(op.add(mean(op.power(c, TWO), axis), SMALL)))


LAYER: dict[str, Callable[[Any], Any]] = {
    "root": layer,
    "two subtractions": lambda x: op.divide(
        centred(x), op.sqrt(op.add(mean(op.multiply(c := centred(x), c)), SMALL))
    ),
    "variance": lambda x: op.multiply(
        centred(x), op.rsqrt(op.add(op.variance(x, axis=-1, keepdims=True), SMALL))
    ),
    "two axes": lambda x: layer(x, (1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("spelling", LAYER)
def test_layer_norms(spelling: str) -> None:
    whole = spelling != "two axes"
    assert names(emitted(LAYER[spelling])) == WHOLE
    scaled = emitted(lambda x: op.multiply(LAYER[spelling](x), GAMMA))
    assert names(scaled) == (WHOLE if whole else [*WHOLE, "multiply"])
    both = emitted(lambda x: op.add(BETA, op.multiply(GAMMA, LAYER[spelling](x))))
    assert names(both) == (WHOLE if whole else [*WHOLE, "multiply", "add"])
    biased = emitted(lambda x: op.multiply(op.add(LAYER[spelling](x), BETA), GAMMA))
    assert names(biased)[:3] == ([*WHOLE, "multiply"] if whole else [*WHOLE, "add"])


OTHERS: dict[str, Callable[[Any], Any]] = {
    "all axes": lambda x: layer(x, (0, 1, 2)),
    "first axis": lambda x: op.multiply(x, op.rsqrt(op.add(mean(op.multiply(x, x), 0), SMALL))),
    "cubes": lambda x: op.multiply(x, op.rsqrt(op.add(mean(op.power(x, relax.const(4.0))), SMALL))),
    "sum": lambda x: op.multiply(x, op.rsqrt(op.add(op.sum(op.multiply(x, x), axis=-1, keepdims=True), SMALL))),
    "of another": lambda x: op.multiply(op.exp(x), op.rsqrt(op.add(mean(op.multiply(x, x)), SMALL))),
    "centred alone": lambda x: op.multiply(x, op.rsqrt(op.add(mean(op.multiply(c := centred(x), c)), SMALL))),
    "other axes": lambda x: op.multiply(centred(x, 1), op.rsqrt(op.add(op.variance(x, -1, True), SMALL))),
    "vector": lambda x: op.multiply(x, op.rsqrt(op.add(mean(op.multiply(x, x)), BETA))),
}


@pytest.mark.parametrize("other", OTHERS)
def test_others_stay(other: str) -> None:
    assert not {"nn.rms_norm", "nn.layer_norm"} & set(names(emitted(OTHERS[other])))


def test_a_norm_that_others_read_keeps_its_scale_apart() -> None:
    def build(bb: Any, x: Any) -> Any:
        norm = bb.emit(layer(x))
        return bb.normalize(op.add(op.multiply(norm, GAMMA), norm))

    assert names(build) == ["nn.layer_norm", "multiply", "add"]
