"""Functions over symbols of their own in place of long extents."""

from __future__ import annotations

from autosched import te, topi
from autosched.ir.structural import structural_equal
from autosched.tir.expr import PrimExpr, SizeVar, Var, cast, floordiv
from autosched.tir.function import PrimFunc, size_vars
from autosched.tir.named_extents import name_extents

H, W = SizeVar("h", "int64"), SizeVar("w", "int64")


def halves(size: PrimExpr) -> PrimExpr:
    return floordiv(size + 1, 2)


def doubled(size: PrimExpr) -> PrimFunc:
    x = te.placeholder((size, 4), name="x")
    return te.create_prim_func([x, topi.relu(x)])


def every_second(size: PrimExpr) -> PrimFunc:
    x = te.placeholder((1, 4, size, 8), name="x")
    weight = te.placeholder((4, 4, 1, 1), name="w")
    return te.create_prim_func([x, weight, topi.nn.conv2d_nchw(x, weight, 2, 0, 1)])


def test_long_extents_are_symbols() -> None:
    """Layers at all depths have one form; what follows from an extent says so."""
    for make in (doubled, every_second):
        plain, (found, other) = make(H), map(name_extents, map(make, (halves(halves(H)), halves(W))))
        assert len(size_vars(found)) == 1
        assert structural_equal(found, plain) and structural_equal(other, plain)
    out = name_extents(every_second(halves(H))).buffers[-1]
    assert out.shape[2].dtype == "int64" and not isinstance(out.shape[2], Var)


def test_sums_of_products_are_found_in_any_order() -> None:
    area = halves(H) * halves(W)
    x = te.placeholder((area * 4,), name="x")
    y = te.placeholder((area,), name="y")
    out = te.compute((area * 4 + area,), lambda i: te.if_then_else(i < 4 * area, x[i], y[i - area * 4]), name="out")
    found = name_extents(te.create_prim_func([x, y, out]))
    assert not {"h", "w"} & {v.name for v in size_vars(found)}


def test_functions_that_stay() -> None:
    """One of plain symbols, and one that needs more than its extents say."""
    x = te.placeholder((halves(H),), name="x")
    uses_h = te.create_prim_func([x, te.compute((halves(H),), lambda i: x[i] * cast("float32", H), name="out")])
    for func in (doubled(H * W), uses_h):
        assert name_extents(func) is func
