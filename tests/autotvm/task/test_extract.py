"""AutoTVM's tasks of a model, and their templates."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import autotvm, relay
from autosched.ir import IRModule
from autosched.target import Target


def model() -> IRModule:
    x, w, d, v = (
        relay.var(n, shape=s)
        for n, s in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3)), ("d", (4, 1, 3, 3)), ("v", (5, 64)))
    )
    y = relay.nn.conv2d(x, w, strides=(2, 2), padding=(1, 1))
    y = relay.nn.conv2d(y, d, padding=(1, 1), groups=4)
    y = relay.nn.conv2d(y, d, padding=(1, 1), groups=4)
    return IRModule.from_expr(relay.Function([x, w, d, v], relay.nn.dense(relay.nn.batch_flatten(y), v)))


def test_each_operator_once() -> None:
    tasks = autotvm.task.extract_from_program(model(), {}, "llvm")
    assert [t.name for t in tasks] == ["conv2d_nchw.x86", "depthwise_conv2d_nchw.x86", "dense_nopack.x86"]
    assert tasks[0].args[:2] == (("TENSOR", (1, 3, 8, 8), "float32"), ("TENSOR", (4, 3, 3, 3), "float32"))
    assert all(len(t.config_space) > 1 and t.flop for t in tasks)


def test_those_that_are_asked_for() -> None:
    only = autotvm.task.extract_from_program(model()["main"], {}, "llvm", ops=(relay.op.get("nn.dense"),))
    assert [t.name for t in only] == ["dense_nopack.x86"]
    both = autotvm.task.extract_from_multiple_program([model(), model()], [{}, {}], "llvm", ops=("nn.conv2d",))
    assert len(both) == 2


@pytest.mark.parametrize("number", [0, 3])
def test_every_configuration_computes_the_operator(number: int) -> None:
    rng = np.random.default_rng(0)
    task = autotvm.task.extract_from_program(model(), {}, "llvm", ops=("nn.conv2d",))[0]
    with Target("llvm"):
        sch, args = task.instantiate(task.config_space.get(number))
        built = autosched.build(sch, args, "llvm")
    x, w = rng.random((1, 3, 8, 8), dtype=np.float32), rng.random((4, 3, 3, 3), dtype=np.float32)
    out = np.zeros((1, 4, 4, 4), np.float32)
    built(x, w, out)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    np.testing.assert_allclose(out, np.einsum("nchwij,ocij->nohw", windows, w), rtol=1e-5)
