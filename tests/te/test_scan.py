"""te.scan: recurrences along the first dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched as tvm
from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError


def cumsum(m: Any, n: Any) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    x = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: x[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    return x, update, te.scan(init, update, state, inputs=[x])


@pytest.mark.parametrize("change", ["nothing", "split", "vectorize"])
def test_cumsum_of_sizes_known_when_called(change: str) -> None:
    x, update, result = cumsum(te.var("m"), te.var("n"))
    s = te.create_schedule(result.op)
    if change != "nothing":
        _, inner = s[update].split(update.op.axis[1], 4)
        if change == "vectorize":
            s[update].vectorize(inner)
    f = tvm.build(s, [x, result], "llvm", name="scan")
    a = np.random.default_rng(0).random((5, 10), np.float32)
    out = tvm.nd.empty((5, 10))
    f(tvm.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), a.cumsum(axis=0), rtol=1e-6)


def test_two_stages_and_compute_at() -> None:
    m, n = 4, 10
    x, state = te.placeholder((m, n), name="X"), te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: x[0, i])
    first = te.compute((m, n), lambda t, i: state[t - 1, i] * 2, name="s1")
    second = te.compute((m, n), lambda t, i: first[t, i] + x[t, i], name="s2")
    result = te.scan(init, second, state)
    s = te.create_schedule(result.op)
    outer, _ = s[second].split(second.op.axis[1], 4)
    s[first].compute_at(s[second], outer)
    f = tvm.build(s, [x, result])
    a = np.random.default_rng(0).random((m, n), np.float32)
    out = tvm.nd.empty((m, n))
    f(tvm.nd.array(a), out)
    want = [a[0]]
    for row in a[1:]:
        want.append(want[-1] * 2 + row)
    np.testing.assert_allclose(out.numpy(), np.stack(want), rtol=1e-6)


def test_several_states_flow_into_each_other() -> None:
    m, n = 5, 3
    x, a, b = te.placeholder((m, n), name="X"), te.placeholder((m, n)), te.placeholder((m, n))
    starts = [te.compute((1, n), lambda _, i: x[0, i]), te.compute((1, n), lambda _, i: 0.0)]
    steps = [
        te.compute((m, n), lambda t, i: a[t - 1, i] + x[t, i]),
        te.compute((m, n), lambda t, i: b[t - 1, i] + a[t - 1, i]),
    ]
    outs = te.scan(starts, steps, [a, b], inputs=[x])
    f = tvm.build(te.create_schedule(outs[0].op), [x, *outs])
    data = np.random.default_rng(1).random((m, n), np.float32)
    one, two = tvm.nd.empty((m, n)), tvm.nd.empty((m, n))
    f(tvm.nd.array(data), one, two)
    sums = data.cumsum(axis=0)
    np.testing.assert_allclose(one.numpy(), sums, rtol=1e-6)
    np.testing.assert_allclose(two.numpy(), np.vstack([np.zeros((1, n)), sums[:-1].cumsum(axis=0)]), rtol=1e-5)


def test_a_reduction_inside_of_a_recurrence() -> None:
    m, n = 4, 6
    x, w, state = te.placeholder((m, n), name="X"), te.placeholder((n, n), name="W"), te.placeholder((m, n))
    k = te.reduce_axis((0, n), "k")
    init = te.compute((1, n), lambda _, i: 0.0)
    hidden = te.compute((m, n), lambda t, i: te.sum(state[t - 1, k] * w[k, i], axis=k), name="hidden")
    update = te.compute((m, n), lambda t, i: te.tanh(hidden[t, i] + x[t, i]))
    result = te.scan(init, update, state, inputs=[x, w])
    f = tvm.build(te.create_schedule(result.op), [x, w, result])
    rng = np.random.default_rng(0)
    a, b = rng.random((m, n), np.float32), rng.random((n, n), np.float32)
    out = tvm.nd.empty((m, n))
    f(tvm.nd.array(a), tvm.nd.array(b), out)
    want = [np.zeros(n, np.float32)]
    for row in a[1:]:
        want.append(np.tanh(want[-1] @ b + row))
    np.testing.assert_allclose(out.numpy(), np.stack(want), rtol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    x, state = te.placeholder((4, 3)), te.placeholder((4, 3))
    init = te.compute((1, 3), lambda _, i: x[0, i])
    update = te.compute((4, 3), lambda t, i: state[t - 1, i])
    with pytest.raises(InvalidTypeError, match="init"):
        te.scan(5, update, state)
    with pytest.raises(InvalidTypeError, match="placeholder"):
        te.scan(init, update, update)
    with pytest.raises(InvalidValueError, match="dimensions"):
        te.scan(te.compute((1,), lambda i: x[0, i]), update, state)
    with pytest.raises(InvalidValueError, match="different shapes"):
        te.scan(init, te.compute((5, 3), lambda t, i: state[t - 1, i]), state)


def test_a_row_that_reads_itself_is_refused() -> None:
    x, state = te.placeholder((4, 3)), te.placeholder((4, 3))
    init = te.compute((1, 3), lambda _, i: x[0, i])
    update = te.compute((4, 3), lambda t, i: state[t, i] + x[t, i])
    result = te.scan(init, update, state)
    with pytest.raises(InvalidValueError, match="reads row"):
        tvm.lower(te.create_schedule(result.op), [x, result])
