"""Kernels that write over their input, built and run."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import autosched
from autosched.ir import IRModule
from autosched.relax import op
from autosched.runtime import Executable
from autosched.runtime.graph_executor import GraphExecutor
from tests.relax.transform.graphs import Weights, graph, run

W = Weights()


def _softmaxes(bb, x):
    """Rows in place, lengths with a rest."""
    for _ in range(3):
        x = op.nn.softmax(op.multiply(x, W(1, 45)))
    return op.nn.layer_norm(x, W(45), W(45), axes=-1)


def _residual(bb, x):
    """Sums over a value that nobody else reads: the convolution's result takes its place."""
    for _ in range(2):
        y = bb.emit(op.nn.relu(op.nn.conv2d(x, W(16, 16, 3, 3), padding=1)))
        x = bb.emit(op.nn.relu(op.add(op.nn.conv2d(y, W(16, 16, 1, 1)), x)))
    return x


def _slices(bb, x):
    """Parts of a value that others read and write over: each row meets its neighbour, and what was there at first."""
    wide = bb.emit(op.reshape(bb.emit(op.matmul(x, W(16, 16))), (4, 1, 16)))
    rows = [bb.emit(op.squeeze(bb.emit(op.strided_slice(wide, [0], [n], [n + 1])), axis=[0])) for n in range(4)]
    state = bb.emit(op.tanh(rows[0]))
    for row in rows[1:]:
        state = bb.emit(op.tanh(op.add(op.matmul(state, W(16, 16)), row)))
    return op.add(op.nn.softmax(wide), state)


CASES = {"softmax": ((7, 45), _softmaxes), "residual": ((1, 16, 9, 9), _residual), "slices": ((4, 16), _slices)}


@functools.cache  # weights are drawn as it is made
def _module(name: str) -> IRModule:
    shape, build = CASES[name]
    return graph({"x": shape}, build)


@functools.cache
def _built(name: str) -> Executable:
    return autosched.build(_module(name), target="cpu", records=())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, threads: int) -> None:
    module, executor = _module(name), GraphExecutor(_built(name), threads=threads)
    x = np.random.default_rng(1).standard_normal(CASES[name][0]).astype(np.float32)  # what `run` takes
    (expected,) = run(module)
    for _ in range(2):  # the second run finds what the first one left
        executor.set_input("x", x)
        executor.run()
        np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(executor.get_input("x").numpy(), x)


@pytest.mark.parametrize("name", CASES)
def test_something_is_written_over(name: str) -> None:
    made = _built(name).graph
    places = [(made.values[n.outputs[0]].storage, made.values[i].storage) for n in made.nodes for i in n.inputs]
    assert any(out == data and out.kind == "arena" for out, data in places)
