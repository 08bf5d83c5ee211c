"""The version of a function changes with what it computes, and with nothing else."""

from __future__ import annotations

import ctypes
import linecache
import sys
import types
from typing import Any

import numba
import numpy as np
import pytest
from numba.extending import overload

from autosched import autotune
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


def other_module(k: int) -> types.ModuleType:
    made = types.ModuleType("other_module")
    vars(made).update(LIMIT=k, helper=(lambda: lambda x: x + k)())
    return made


def with_default(k: int) -> Any:
    def helper(x: Any, step: int = k) -> Any:
        return x + step

    return numba.njit(helper)


def overloaded(k: int) -> Any:
    def made(x: Any) -> Any: ...

    overload(made)(lambda x: lambda x: x + k)
    return made


def jit_class(k: int) -> Any:
    class Made:
        def __init__(self) -> None:
            self.a = k

    return numba.experimental.jitclass([("a", numba.int64)])(Made)


def long_tuple(k: int) -> Any:
    return (np.arange(5000) // 4999 * k, k)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (other_module, "{}.LIMIT"),
        (other_module, "{}.helper(x)"),
        (with_default, "{}(x)"),
        (lambda k: numba.vectorize(lambda x: x + k), "{}(x)"),
        (overloaded, "{}(x)"),
        (jit_class, "{}().a"),
        (long_tuple, "{}[0][4999]"),
        (lambda k: (with_default(k),), "{}[0](x)"),
        (lambda k: (numba.int32, numba.int64)[k - 2], "{}(x)"),
        (lambda k: np.dtype([("a", "f4", k)]), "{}"),
        (lambda k: (ctypes.pythonapi.PyOS_strtol, ctypes.pythonapi.PyOS_strtoul)[k - 2], "{}(x)"),
    ],
)
def test_what_is_read_through_other_values_counts(make: Any, read: str, monkeypatch: Any) -> None:
    text = TEXT.replace("LIMIT", read.format("given"))
    found = []
    for k in (2, 3, 2):
        monkeypatch.setitem(globals(), "given", make(k))
        found.append(same(text))
    assert found[0] == found[2] != found[1]


def test_flags_count_in_any_order() -> None:
    assert digest(func, {"fastmath": {"nnan", "ninf"}}) == digest(func, {"fastmath": {"ninf", "nnan"}})
    assert digest(func, {"fastmath": {"nnan"}}) != digest(func, {"fastmath": {"ninf"}})


def test_a_file_that_has_changed_since_is_not_read(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "changing.py"
    file.write_text("def func(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import changing  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "changing")
    assert read_source(changing.func) is not None
    file.write_text("def func(x):\n    return x * 31\n")
    assert read_source(changing.func) is None
    assert digest(changing.func, {}) != same("def func(x):\n    return x * 31\n")


def test_kept_code_knows_globals_as_they_are_when_it_is_compiled(monkeypatch: Any) -> None:
    """A process that changes a global and compiles for other types must not leave that for one that does not."""
    tuned = autotune({"block": [1, 2]})(numba.njit(func))
    dispatcher = tuned._dispatcher(tuned.space.default)
    before = dispatcher._cache._of()
    monkeypatch.setitem(globals(), "LIMIT", 6)
    assert dispatcher._cache._of() != before
