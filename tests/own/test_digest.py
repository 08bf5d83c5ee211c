"""The version of a function changes with what it computes, and with nothing else."""

from __future__ import annotations

from typing import Any

import numba

from autosched.own.digest import digest
from autosched.own.specialise import read_source

LIMIT = 5


def helper(x: Any) -> Any:
    return x + 1


jitted = numba.njit(helper)


def func(x: Any, block: int = 1) -> Any:
    return jitted(x) + LIMIT * block


def same(text: str) -> str:
    """The digest of a text that stands in a module like this one."""
    import linecache

    scope = dict(globals())
    name = f"<digest {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), scope)
    return digest(scope["func"], {})


TEXT = "def func(x, block=1):\n    return jitted(x) + LIMIT * block\n"


def test_comments_defaults_and_annotations_do_not_count() -> None:
    assert read_source(func) is not None
    assert digest(func, {}) == same(TEXT)
    head = 'def func(x: int, block=64) -> float:\n    """Says more."""\n    # comment\n'
    changed = head + "    return jitted( x ) + LIMIT*block\n"
    assert same(changed) == same(TEXT)


def test_code_options_globals_and_callees_count(monkeypatch: Any) -> None:
    before = same(TEXT)
    assert same(TEXT.replace("+", "-")) != before
    assert digest(func, {"fastmath": True}) != before
    monkeypatch.setitem(globals(), "LIMIT", 6)
    assert same(TEXT) != before
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "jitted", numba.njit(lambda x: x + 2))
    assert same(TEXT) != before
