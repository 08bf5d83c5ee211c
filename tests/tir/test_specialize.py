"""Numbers in place of symbolic extents."""

from __future__ import annotations

from autosched import te
from autosched.tir.function import shape_vars, specialize


def test_a_specialised_function_is_the_one_written_with_numbers() -> None:
    def double(n: object) -> te.Tensor:
        a = te.placeholder((n, 4), name="A")
        return te.create_prim_func([a, te.compute((n, 4), lambda i, j: a[i, j] * 2, name="B")])

    n = te.var("n")
    symbolic = double(n)
    assert shape_vars(symbolic) == [n]
    special = specialize(symbolic, {n: 6})
    assert shape_vars(special) == []
    assert special.script() == double(6).script()
    assert shape_vars(symbolic) == [n]  # the given one stays as it was
