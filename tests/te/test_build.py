"""Writing tensor expressions."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, tir
from autosched.errors import InvalidTypeError, InvalidValueError


def values(tensor: te.Tensor, *inputs: tuple[te.Tensor, np.ndarray]) -> np.ndarray:
    func = te.create_prim_func([t for t, _ in inputs] + [tensor])
    out = np.zeros([int(s) for s in tensor.shape], tensor.dtype)
    tir.interpret(func, [a for _, a in inputs] + [out])
    return out


def test_elements_follow_the_function() -> None:
    t = te.compute((2, 3), lambda i, j: (i * 10 + j).astype("float32"), name="t")
    assert values(t).tolist() == [[0, 1, 2], [10, 11, 12]]


def test_varargs_and_named_axes() -> None:
    t = te.compute((2, 3, 4), lambda n, *rest: (n + rest[1]).astype("float32"), name="t")
    assert [iv.var.name for iv in t.op.axis] == ["n", "i1", "i2"]
    assert values(t)[1, 0, 3] == 4
    with pytest.raises(InvalidValueError, match="takes 1 arguments"):
        te.compute((2, 3), lambda i: i)


def test_tensors_slice_step_by_step() -> None:
    a = te.placeholder((2, 3), name="A")
    t = te.compute((3, 2), lambda i, j: a[j][i] * 2, name="t")
    given = np.arange(6, dtype="float32").reshape(2, 3)
    assert (values(t, (a, given)) == given.T * 2).all()
    with pytest.raises(InvalidValueError, match="2 dimensions"):
        a[0, 1, 2]
    with pytest.raises(InvalidValueError, match="2 dimensions"):
        te.compute((2,), lambda i: a[i] + 1.0)


@pytest.mark.parametrize(("reduce", "want"), [(te.sum, 10.0), (te.prod, 24.0), (te.max, 4.0), (te.min, 1.0)])
def test_reductions(reduce, want: float) -> None:  # type: ignore[no-untyped-def]
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), "k")
    t = te.compute((1,), lambda i: reduce(a[k], axis=k), name="t")
    assert values(t, (a, np.array([1, 2, 3, 4], "float32")))[0] == want
    combined = te.compute((1,), lambda i: reduce(a[0], a[1], a[2], 4), name="t")  # without an axis
    assert values(combined, (a, np.array([1, 2, 3, 4], "float32")))[0] == want


def test_a_reduction_stands_alone() -> None:
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), "k")
    with pytest.raises(InvalidValueError, match="whole expression"):
        te.compute((1,), lambda i: te.sum(a[k], axis=k) + 1.0)
    with pytest.raises(InvalidTypeError, match="reduce_axis"):
        te.sum(a[0], axis=3)
    with pytest.raises(InvalidValueError, match="start, end"):
        te.reduce_axis((0, 1, 2))


def test_several_outputs() -> None:
    a = te.placeholder((3,), name="A")
    x, y = te.compute((3,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="both")
    func = te.create_prim_func([a, x, y])
    arrays = [np.arange(3, dtype="float32"), np.zeros(3, "float32"), np.zeros(3, "float32")]
    tir.interpret(func, arrays)
    assert arrays[1].tolist() == [1, 2, 3] and arrays[2].tolist() == [0, 2, 4]


def test_conditions_are_no_python_truths() -> None:
    a = te.placeholder((3,), name="A")
    with pytest.raises(InvalidTypeError, match="if_then_else"):
        te.compute((3,), lambda i: a[i] if i < 2 else a[0])
    t = te.compute((3,), lambda i: te.if_then_else(te.all(i > 0, i < 2), a[i], 0.0), name="t")
    assert values(t, (a, np.ones(3, "float32"))).tolist() == [0, 1, 0]


def test_dtypes_meet() -> None:
    a = te.placeholder((3,), "int8", name="A")
    assert te.compute((3,), lambda i: a[i] + 1).dtype == "int8"
    assert te.compute((3,), lambda i: a[i].astype("int32") + a[i]).dtype == "int32"
    assert te.compute((3,), lambda i: a[i] * 0.5).dtype == "float32"


def test_functions_of_floats() -> None:
    a = te.placeholder((3,), name="A")
    t = te.compute((3,), lambda i: te.exp(te.abs(a[i])) + te.power(a[i], 2.0), name="t")
    given = np.array([-1, 0, 2], "float32")
    np.testing.assert_allclose(values(t, (a, given)), np.exp(np.abs(given)) + given**2, rtol=1e-6)
