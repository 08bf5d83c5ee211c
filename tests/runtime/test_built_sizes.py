import threading
import time

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.codegen import counters
from autosched.runtime.built_sizes import BuiltSizes


def test_the_sizes_used_longest_ago_go_first(monkeypatch):
    monkeypatch.setenv("AUTOSCHED_SYMBOLIC_SIZES", "2")
    sizes, made = BuiltSizes(), []

    def ask(size):
        return sizes.get(size, lambda: made.append(size) or size)

    assert [ask(size) for size in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2]
    assert made == [1, 2, 3, 2]
    assert len(sizes) == 2


def test_threads_that_ask_at_once_build_once_and_others_need_not_wait():
    sizes, made, answers = BuiltSizes(), [], []
    begun, go = threading.Event(), threading.Event()

    def build():
        made.append(1)
        begun.set()
        assert go.wait(30)
        return "slow"

    threads = [threading.Thread(target=lambda: answers.append(sizes.get(1, build))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    time.sleep(0.02)
    assert sizes.get(2, lambda: "quick") == "quick"
    go.set()
    for thread in threads:
        thread.join(30)
    assert (answers, len(made)) == (["slow"] * 4, 1)


def test_what_could_not_be_built_is_tried_again():
    sizes = BuiltSizes()
    with pytest.raises(ZeroDivisionError):
        sizes.get(1, lambda: 1 // 0)
    assert sizes.get(1, lambda: "now") == "now"
    for size in range(2, 50):
        with pytest.raises(ZeroDivisionError):
            sizes.get(size, lambda: 1 // 0)
    assert not sizes._building, "what failed leaves nothing behind"


def test_a_symbolic_function_keeps_no_more_sizes_than_it_may(monkeypatch):
    monkeypatch.setenv("AUTOSCHED_SYMBOLIC_SIZES", "3")
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    built = autosched.build(te.create_prim_func([a, te.compute((n,), lambda i: a[i] * 3.0, name="B")]), target="llvm")
    function, before = built.entry_func, counters.COMPILES.value
    for size in (5, 6, 7, 8, 9, 8):
        x, out = np.ones(size, np.float32), np.zeros(size, np.float32)
        function(x, out)
        np.testing.assert_array_equal(out, 3 * x)
    assert len(function._ready) == 3
    assert counters.COMPILES.value == before
