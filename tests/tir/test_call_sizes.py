"""The symbols of a function, from the shapes that it is called with."""

from __future__ import annotations

import pytest

from autosched import te, topi
from autosched.errors import InvalidValueError
from autosched.tir.expr import PrimExpr, Var, floordiv
from autosched.tir.size_expr import call_sizes, same_extent

H, W = Var("h", "int64"), Var("w", "int64")


def halves(size: PrimExpr) -> PrimExpr:
    return floordiv(size + 1, 2)


def test_a_symbol_in_a_compound_extent() -> None:
    """Rows and columns of an image that was made smaller share a kernel: its extent has the form of both."""
    x = te.placeholder((halves(halves(H)), 4), name="x")
    func = te.create_prim_func([x, topi.relu(x)])
    for given in (W, H, W * 2 + 3):
        (found,) = call_sizes(func, [(halves(halves(given)), 4)] * 2)
        assert same_extent(found, given)
    for wrong in (floordiv(W + 2, 2), halves(W), halves(floordiv(W, 2))):
        with pytest.raises(InvalidValueError, match="does not say its symbols"):
            call_sizes(func, [(wrong, 4)] * 2)
