"""Rows that are larger than the cache ask for the next one while they compute."""

from __future__ import annotations

import pytest

from autosched import te, topi
from autosched.ir.node import walk
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import For, PrimFunc

HASWELL = Target("llvm -mcpu=haswell")


def _scheduled(rows: int, length: int) -> PrimFunc:
    x = te.placeholder((rows, length), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    return apply_config(func, default_config(func, HASWELL), HASWELL).func


def _prefetches(func: PrimFunc) -> list[dict[str, int]]:
    found = [n.annotations.get("prefetch") for n in walk(func.body) if isinstance(n, For)]
    return [{str(getattr(k, "value", k)): int(v) for k, v in x.items()} for x in found if x]


@pytest.mark.parametrize(
    ("rows", "length", "expected"), [(512, 512, [{"x": 16}]), (8, 512, []), (65536, 16, [{"x": 4}])]
)
def test_softmax_asks_for_the_next_row(rows, length, expected) -> None:
    assert _prefetches(_scheduled(rows, length)) == expected
