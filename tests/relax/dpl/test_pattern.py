"""Patterns: what they match, several at once, and rewriting."""

from __future__ import annotations

import pytest

from autosched import relax
from autosched.ir import structural_equal
from autosched.relax.dpl import (
    PatternContext,
    is_call_tir,
    is_const,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)  # fmt: skip
from autosched.relax.dpl.pattern import DFPattern
from autosched.script import relax as R  # noqa: N812


@R.function
def chain(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
    with R.dataflow():
        a = R.add(x, y)
        b = R.multiply(a, R.const(2.0, "float32"))
        c = R.nn.relu(b)
        gv = R.subtract(c, a)
        R.output(gv)
    return gv


VALUES = {b.var: b.value for b in chain.bindings()}
A, B, C, GV = VALUES.values()


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        (is_op("relax.add")(wildcard(), wildcard()), A, True),
        (is_op("relax.add")(wildcard(), wildcard()), B, False),
        (is_op("relax.add")(wildcard()), A, False),
        (is_op("relax.multiply")(is_const(), wildcard()), B, True),  # products match in either order
        (is_op("relax.subtract")(is_op("relax.add")(wildcard(), wildcard()), wildcard()), GV, False),  # not these
        (is_op("relax.nn.relu")(is_op("relax.multiply")(wildcard(), is_const())), C, True),
        (is_op("relax.add")(wildcard(), wildcard()) | is_op("relax.nn.relu")(wildcard()), C, True),
        (wildcard().has_dtype("float32") & wildcard().has_shape((2, 3)), A, True),
        (wildcard().has_shape((3, 2)), A, False),
        (~is_const(), A, True),
        (is_var("x"), chain.params[0], True),
        (is_var("y"), chain.params[0], False),
        (is_tuple_get_item(wildcard(), 0), A, False),
        (is_tuple([wildcard()]), A, False),
        (is_call_tir("f"), A, False),
    ],
)
def test_match(pattern: DFPattern, value: relax.Expr, fits: bool) -> None:
    assert pattern.match(value, VALUES) is fits


def test_a_pattern_that_occurs_twice_matches_one_value() -> None:
    x = wildcard()
    assert not is_op("relax.add")(x, x).match(A)
    v = chain.params[0]
    assert is_op("relax.add")(x, x).match(relax.op.add(v, v))


def test_what_was_matched() -> None:
    x = wildcard()
    found = is_op("relax.nn.relu")(x).extract_matched_expr(C, VALUES)
    assert found is not None and VALUES[found[x]] is B
    assert is_op("relax.exp")(x).extract_matched_expr(C, VALUES) is None


def test_rewrite_call_replaces_and_drops_what_is_not_read() -> None:
    x = wildcard()
    pattern = is_op("relax.nn.relu")(is_op("relax.multiply")(x, is_const()))
    new = rewrite_call(pattern, lambda expr, found: relax.op.nn.gelu(found[x]), chain)
    text = new.script()
    assert "R.nn.gelu(a)" in text and "relu" not in text and "multiply" not in text
    assert rewrite_call(is_op("relax.exp")(x), lambda expr, found: expr, chain) is chain


def test_context_follows_uses() -> None:
    with PatternContext() as ctx:
        first, last = is_op("relax.add")(wildcard(), wildcard()), is_op("relax.subtract")(wildcard(), wildcard())
        first.used_by(last, 1)
        found = ctx.match_dfb(chain.body.blocks[0])
    assert found is not None and found[first].name == "a" and found[last].name == "gv"
    with PatternContext() as ctx:
        only = is_op("relax.add")(wildcard(), wildcard())
        only.only_used_by(is_op("relax.subtract")(wildcard(), wildcard()))
        assert ctx.match_dfb(chain.body.blocks[0]) is None  # the product reads it too


def test_rewrite_bindings() -> None:
    with PatternContext() as ctx:
        product, relu = is_op("relax.multiply")(wildcard(), wildcard()), is_op("relax.nn.relu")(wildcard())
        product.used_by(relu)
    new = rewrite_bindings(ctx, lambda found, values: {found[relu]: relax.op.tanh(found[product])}, chain)
    assert "R.tanh(b)" in new.script()
    assert structural_equal(rewrite_bindings(ctx, lambda found, values: {}, chain), chain)


def test_refused() -> None:
    with pytest.raises(ValueError, match="PatternContext"):
        wildcard().used_by(wildcard())
    with pytest.raises(TypeError):
        is_op("relax.add")(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no operator"):
        is_op("relax.nobody")
