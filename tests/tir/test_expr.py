"""Constants: their types, and arithmetic that stays inside of them."""

from __future__ import annotations

import pytest

from autosched import tir
from autosched.errors import InvalidTypeError


@pytest.mark.parametrize(
    ("value", "dtype"), [(2**31 - 1, "int32"), (2**31, "int64"), (-(2**31), "int32"), (-(2**31) - 1, "int64")]
)
def test_an_integer_gets_a_type_that_has_it(value: int, dtype: str) -> None:
    assert (tir.const(value).dtype, int(tir.const(value))) == (dtype, value)


@pytest.mark.parametrize(("dtype", "value"), [("int8", 300), ("int8", -129), ("uint8", -1), ("int32", 2**31)])
def test_a_value_that_a_type_has_not_is_refused(dtype: str, value: int) -> None:
    for make in (lambda: tir.IntImm(dtype, value), lambda: tir.const(value, dtype)):
        with pytest.raises(ValueError, match=f"{value} .*{dtype}"):
            make()


def test_what_is_no_number_is_another_error() -> None:
    with pytest.raises(InvalidTypeError, match="number"):
        tir.const("three", "int32")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (lambda: tir.const(255, "uint8") + 1, 0),
        (lambda: tir.const(127, "int8") + tir.const(1, "int8"), -128),
        (lambda: tir.const(0, "uint8") - 1, 255),
        (lambda: tir.const(2**31 - 1, "int32") * 2, -2),
        (lambda: tir.const(1, "int8") << 9, 0),
        (lambda: tir.const(300, "int32").astype("int8"), 44),
        (lambda: tir.const(7, "int32").astype("bool"), 1),
        (lambda: tir.truncmod(tir.const(-(2**60) - 1, "int64"), tir.const(2, "int64")), -1),
    ],
)
def test_constants_fold_as_the_machine_computes(made, value: int) -> None:  # type: ignore[no-untyped-def]
    assert int(made()) == value


def test_a_number_beside_an_expression_widens_it_where_it_must() -> None:
    x = tir.Var("x", "uint8")
    assert [(x + n).dtype for n in (255, 256, 2**40)] == ["uint8", "int32", "int64"]
