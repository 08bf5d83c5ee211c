"""Calls with large inputs and outputs: kernels read and write the arrays themselves where nothing prevents it."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.errors import ShapeError
from autosched.relax import op
from tests.relax.transform.graphs import graph

SHAPE = (64, 513)  # 131 kB


@pytest.fixture(scope="module")
def model():
    """2x + y, and x - y."""

    def body(bb, x, y):
        return bb.emit(op.add(bb.emit(op.add(x, x)), y)), bb.emit(op.subtract(x, y))

    return autosched.build(graph({"x": SHAPE, "y": SHAPE}, body), threads=1, records=[])


def random(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype("f")


def at_byte(data: np.ndarray, offset: int) -> np.ndarray:
    """The same values so many bytes behind a multiple of 64."""
    block = np.empty(data.nbytes + 128, "u1")
    start = -block.ctypes.data % 64 + offset
    made = block[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    made[...] = data
    return made


def check(model, x, y) -> None:
    for got, want in zip(model(x, y), (2 * np.asarray(x) + y, np.asarray(x) - y), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("offset", [0, 4, 16, 62, 63])
def test_wherever_an_array_lies(model, offset: int) -> None:
    check(model, at_byte(random(), offset), random(1))


def test_whatever_its_strides_are(model) -> None:
    wide = np.random.default_rng(0).standard_normal((64, 1026)).astype("f")
    check(model, wide[:, ::2], np.asfortranarray(random(1)))
    check(model, np.broadcast_to(np.float32(3), SHAPE), random()[::-1])


def test_arrays_that_must_not_be_written_and_arrays_given_twice(model) -> None:
    x = random()
    x.setflags(write=False)
    check(model, x, x)


def test_results_stay_what_they_are(model) -> None:
    kept = [(model(random(n), random(n + 1)), random(n), random(n + 1)) for n in range(4)]
    for (first, second), x, y in kept:
        np.testing.assert_allclose(first.numpy(), 2 * x + y, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(second.numpy(), x - y, rtol=1e-6, atol=1e-6)
        first.numpy()[...] = 0  # a result is the caller's


def test_an_input_is_not_kept(model) -> None:
    x = random()
    model(x, random(1))
    x[...] = np.nan
    check(model, random(2), random(3))


def test_a_call_that_fails_changes_nothing(model) -> None:
    check(model, random(), random(1))
    with pytest.raises(ShapeError):
        model(random(), random()[:-1])
    executor = model.create_executor()
    executor.set_input("x", random(4))
    executor.set_input("y", random(5))
    with pytest.raises(ShapeError):
        executor.call([random(), random()[:-1]])
    executor.call([random(), random(1)])
    executor.set_input("x", random(4))
    executor.set_input("y", random(5))
    executor.run()
    np.testing.assert_allclose(executor.get_output(1).numpy(), random(4) - random(5), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("outputs", ["x x", "y y", "x y"])
def test_outputs_that_are_an_input_or_the_same_value(outputs: str) -> None:
    def body(bb, x):
        values = {"x": x, "y": bb.emit(op.add(x, x))}
        return tuple(values[name] for name in outputs.split())

    built = autosched.build(graph({"x": SHAPE}, body), threads=1, records=[])
    x = random()
    found = built(x)
    for name, got in zip(outputs.split(), found, strict=True):
        np.testing.assert_allclose(got.numpy(), x if name == "x" else 2 * x, rtol=1e-6)
    found[0].numpy()[...] = 7  # neither the input nor the other output
    np.testing.assert_array_equal(x, random())
    np.testing.assert_allclose(found[1].numpy(), x if outputs[-1] == "x" else 2 * x, rtol=1e-6)


def test_a_child_forked_while_another_thread_runs_a_call(model) -> None:
    """The child has no such thread: what that one would have set back at its end is set back when locks are renewed."""
    program = model.create_executor().program
    program.call([random(), random(1)])
    for ends in program._ends:
        for end in ends:
            program._slots[end.slots] = 0
    program.renew_locks()
    first, second = program.call([np.asfortranarray(random(2)), random(3)])
    np.testing.assert_allclose(first, 2 * random(2) + random(3), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(second, random(2) - random(3), rtol=1e-6, atol=1e-6)
