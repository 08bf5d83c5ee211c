"""Equality and hash by form."""

from __future__ import annotations

import pytest

from autosched.ir import assert_structural_equal, structural_equal, structural_hash, structural_key
from autosched.ir.structural import function_texts
from autosched.script import from_source

TEXT = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("{block}"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32({factor})
"""


def test_a_block_s_name_is_no_part_of_the_form() -> None:
    one, other = (from_source(TEXT.format(block=name, factor=2)) for name in ("B", "scaled"))
    assert structural_equal(one, other)
    assert structural_hash(one) == structural_hash(other)
    assert_structural_equal(one, other)


def test_a_key_of_generated_code_counts_it() -> None:
    one, other = (from_source(TEXT.format(block=name, factor=2)) for name in ("B", "scaled"))
    assert structural_key(one) != structural_key(other)
    assert structural_key(one, labelled=False) == structural_key(other, labelled=False)


def test_everything_else_counts() -> None:
    one, other = (from_source(TEXT.format(block="B", factor=factor)) for factor in (2, 3))
    assert not structural_equal(one, other)
    assert structural_hash(one) != structural_hash(other)
    with pytest.raises(ValueError, match="StructuralEqual"):
        assert_structural_equal(one, other)


def test_texts_of_a_function_are_its_key_and_the_names_of_its_variables_in_order() -> None:
    text = TEXT.format(block="B", factor=2)
    one, other = from_source(text), from_source(text.replace("A: T", "C: T").replace("A[vi]", "C[vi]"))
    (key, names), (other_key, other_names) = function_texts(one), function_texts(other)
    assert key == other_key == structural_key(one)
    assert names != other_names and [n.replace("C", "A") for n in other_names.split(",")] == names.split(",")
    assert sorted(names.split(",")) == sorted([p.name for p in one.params] + ["A", "B", "i", "vi"])
