"""Knobs become constants in the text that is compiled."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from autosched.own.specialise import read_source, specialise, specialise_text

OFFSET = 10


def read_only(x: Any, n: int, block: int = 4) -> Any:
    """Add blocks."""
    # a comment stays
    return [x + block for _ in range(0, n, block)]  # and here: block


def set_inside(n: int, block: int = 4) -> int:
    block = min(block, n)
    return block


def shadowed(n: int, block: int = 4) -> Any:
    inner = lambda block: block + n  # noqa: E731
    return inner(block)


def short(n: int, block: int = 4) -> int: return n // block + OFFSET  # fmt: skip  # noqa: E704


def specialised(func: Any, **knobs: Any) -> tuple[Any, str]:
    text = specialise_text(read_source(func) or "", knobs)
    arguments = [name for name in inspect.signature(func).parameters if name not in knobs]
    return specialise(func, text, knobs, arguments), text


def test_the_text_keeps_comments_and_shows_constants() -> None:
    func, text = specialised(read_only, block=8)
    assert text == (
        'def read_only(x, n):\n    """Add blocks."""\n    # a comment stays\n'
        "    return [x + 8 for _ in range(0, n, 8)]  # and here: block\n"
    )
    assert func(1, 16) == [9, 9] and list(inspect.signature(func).parameters) == ["x", "n"]


def test_a_knob_that_the_body_sets_is_set_first() -> None:
    func, text = specialised(set_inside, block=8)
    assert "    block = 8\n    block = min(block, n)\n" in text
    assert func(3) == 3 and func(100) == 8


def test_a_name_that_is_a_parameter_inside_is_left_alone() -> None:
    assert specialised(shadowed, block=8)[0](1) == 9


def test_a_definition_in_one_line() -> None:
    func, text = specialised(short, block=2)
    assert func(8) == 14 and "n // 2 + OFFSET" in text


def test_closures_and_tuples() -> None:
    factor = 3

    def inner(x: int, tile: tuple[int, int] = (1, 2)) -> int:
        return x * factor + tile[1]

    func, _ = specialised(inner, tile=(4, 5))
    assert func(2) == 11
    factor = 4
    assert func(2) == 13, "the cell is shared, not copied"


@pytest.mark.parametrize("value", [True, "text", -3, (1, 2)])
def test_any_kind_of_value(value: Any) -> None:
    assert f"return [x + {value!r} for" in specialised(read_only, block=value)[1]


def test_a_function_without_source_is_called_through() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x, block=1):\n    return x * block", scope)
    assert read_source(scope["f"]) is None
    assert specialise(scope["f"], None, {"block": 5}, ["x"])(2) == 10


def test_a_traceback_shows_the_line() -> None:
    def fails(x: Any, block: int = 1) -> Any:
        return x // (block - block)

    func, _ = specialised(fails, block=7)
    with pytest.raises(ZeroDivisionError) as caught:
        func(1)
    assert "x // (7 - 7)" in str(caught.traceback[-1].statement)
