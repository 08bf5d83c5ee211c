import json

import pytest

from autosched import te
from autosched.errors import InvalidValueError
from autosched.ir import structural_equal
from autosched.tir.expr import maximum
from autosched.tir.serialize import from_json, to_json


def dense_relu():
    a, b = te.placeholder((7, 5), name="A"), te.placeholder((5, 9), name="B")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((7, 9), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((7, 9), lambda i, j: maximum(c(i, j), 0.0), name="D")
    return te.create_prim_func([a, b, d])


def test_round_trip_keeps_the_form():
    func = dense_relu()
    again = from_json(to_json(func))
    assert structural_equal(func, again)
    assert to_json(again) == to_json(func)


def test_a_changed_constant_is_another_function():
    func = dense_relu()
    text = to_json(func).replace('"value":9', '"value":8', 1)
    assert not structural_equal(func, from_json(text))


@pytest.mark.parametrize(
    "text", ["", "[]", "[1]", '[["os", {}]]', '[["Var", {"nam": "x"}]]', '[["Var", {"name": "x"}]]']
)
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidValueError, match="stored function"):
        from_json(text)


def test_the_document_is_plain_json():
    assert isinstance(json.loads(to_json(dense_relu())), list)
