"""Which functions compute each part of a batch by itself, and which do not."""

from __future__ import annotations

from typing import Any

import pytest

from autosched import te, topi
from autosched.tir import PrimFunc
from autosched.tir.expr import Var
from autosched.tir.separable import NotSeparableError, Share, part_extent, share_of, shares

N = Var("n", "int64")


def function(shape: tuple[Any, ...], body: Any) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, body(x)])


def found(func: PrimFunc) -> list[Share | None]:
    return [shares(func)[b] for b in func.buffers]


def test_rows_of_a_product() -> None:
    a, b = te.placeholder((N, 8), name="a"), te.placeholder((8, 4), name="b")
    func = te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])
    assert found(func) == [Share(0, 1), None, Share(0, 1)]


def test_a_part_may_be_several_rows_or_an_image() -> None:
    rows = function((3 * N, 8), lambda x: te.compute((3 * N, 8), lambda i, j: x[i, j] + 1.0, name="y"))
    assert found(rows) == [Share(0, 3), Share(0, 3)] and part_extent(shares(rows)) == 3
    folded = function((3 * N, 8), lambda x: te.compute((N, 3, 8), lambda i, j, k: x[i * 3 + j, k], name="y"))
    assert found(folded) == [Share(0, 3), Share(0, 1)]
    unfolded = function((N, 3, 8), lambda x: te.compute((3 * N, 8), lambda i, j: x[i // 3, i % 3, j], name="y"))
    assert found(unfolded) == [Share(0, 1), Share(0, 3)]
    images = function((N, 2, 6, 6), lambda x: topi.nn.softmax(topi.exp(x), -1))
    assert found(images) == [Share(0, 1), Share(0, 1)]


def test_ones_may_stand_before_the_batch() -> None:
    func = function((1, N, 8), lambda x: te.compute((1, N, 8), lambda o, i, j: x[o, i, j] * 2.0, name="y"))
    assert found(func) == [Share(1, 1), Share(1, 1)]


def test_positions_may_be_read_from_the_batch() -> None:
    ids, table = te.placeholder((N,), "int64", name="ids"), te.placeholder((9, 4), name="table")
    func = te.create_prim_func([ids, table, te.compute((N, 4), lambda i, j: table[ids[i], j], name="y")])
    assert found(func) == [Share(0, 1), None, Share(0, 1)]


@pytest.mark.parametrize(
    ("shape", "body", "why"),
    [
        ((N, 4), lambda x: te.compute((N, 4), lambda i, j: x[N - 1 - i, j], name="y"), "reads another part"),
        ((N, 4), lambda x: te.compute((N, 4), lambda i, j: x[i, j] + x[0, j], name="y"), "reads another part"),
        ((N, 4), lambda x: te.compute((N, 4), lambda i, j: x[i, i % 4], name="y"), "position in the batch"),
        ((N, 4), lambda x: te.compute((N, 4), lambda i, j: x[i, j] * i.astype("float32"), name="y"), "position in"),
        ((N, 4), lambda x: te.compute((N, 4), lambda i, j: x[i, j] / N.astype("float32"), name="y"), "its size"),
        ((N, 4), lambda x: te.compute((N, 4), lambda i, j: te.if_then_else(i < 3, x[i, j], 0.0), name="y"), "position"),
        ((3 * N, 4), lambda x: te.compute((N, 4), lambda i, j: x[i, j], name="y"), "reads another part"),
        ((3 * N, 4), lambda x: te.compute((N, 4), lambda i, j: x[i * 3 + j, j], name="y"), "reads another part"),
        ((N, 4), lambda x: topi.sum(x, 0), "reduces over the batch"),
        ((N, 4), lambda x: topi.transpose(x), "no one leading dimension"),
        ((4, N), lambda x: topi.exp(x), "no one leading dimension"),
        ((N + 1, 4), lambda x: topi.exp(x), "no multiple of 'n'"),
    ],
)
def test_what_is_not_separable_says_why(shape: tuple[Any, ...], body: Any, why: str) -> None:
    with pytest.raises(NotSeparableError, match=why):
        shares(function(shape, body))


def test_a_function_of_two_sizes_is_not_separable() -> None:
    with pytest.raises(NotSeparableError, match="depend on n, m"):
        shares(function((N, Var("m", "int64")), topi.exp))
    assert share_of((1, 2 * N, 5), N) == Share(1, 2) and share_of((4, 5), N) is None
