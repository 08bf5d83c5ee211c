"""Items that helpers fail at: each ends with a result or its own error."""

import subprocess
import sys
import threading
import types

import pytest

from autosched.codegen import compile_funcs, pool
from autosched.codegen.compile import Request
from autosched.codegen.pool import NotDone, SharedWork
from autosched.errors import CodegenError
from tests.codegen.test_compile import check, empty_cache, scale  # noqa: F401  (a fixture)


class _Helper:
    """A helper whose answers come from a function: the pipe's other end without the process."""

    def __init__(self, answer):
        self._answer, self._asked = answer, []

    def ask(self, message):
        self._asked.append(message)

    def answer(self):
        return self._answer(self._asked.pop(0))

    def close(self):
        pass


def in_processes(work, here, message, helpers, finished=int):
    """The result, or the exception, for each item of `work`, which this process and `helpers` others do."""
    shared = SharedWork(here, message, finished)
    for key, item in work.items():
        shared.add(key, item)
    for _ in range(helpers):
        shared.start_helper()
    return shared.finish()


def _raise(error):
    raise error


@pytest.mark.parametrize(
    "error", [AttributeError("no such class"), MemoryError(), ValueError("odd"), EOFError(), OSError(), TypeError("x")]
)
def test_what_a_helper_fails_at_is_done_here(monkeypatch, error):
    monkeypatch.setattr(pool, "take_spare", lambda: _Helper(lambda message: _raise(error)))
    work = {n: n for n in range(6)}
    assert in_processes(work, lambda n: -n, lambda n: n, helpers=2) == {n: -n for n in work}


def test_what_cannot_be_sent_is_done_here(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: _Helper(lambda message: message))
    results = in_processes({1: 1, 2: 2}, lambda n: -n, lambda n: _raise(TypeError("cannot pickle")), helpers=1)
    assert results == {1: -1, 2: -2}


def test_what_a_helper_says_it_has_not_done_is_done_here(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: _Helper(lambda message: NotDone()))
    finished = []
    results = in_processes({1: 1, 2: 2}, lambda n: -n, lambda n: n, 1, lambda: finished.append(1))
    assert (results, len(finished)) == ({1: -1, 2: -2}, 2)


def test_where_no_helper_starts_all_is_done_here(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: None)
    monkeypatch.setattr(pool, "Helper", lambda: _raise(ValueError("embedded null byte")))
    assert in_processes({1: 1}, lambda n: -n, lambda n: n, 3) == {1: -1}


def test_helpers_that_end_early_cost_nothing_but_time(monkeypatch):
    ends = [sys.executable, "-c", "pass"]
    start = lambda module: subprocess.Popen(ends, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: E731
    monkeypatch.setattr(pool, "_start", start)
    found = in_processes({i: i for i in range(20)}, lambda x: x * x, lambda x: x, 2)
    assert found == {i: i * i for i in range(20)}


def test_an_error_is_its_items_own(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: None)
    error = CodegenError("not this one")
    results = in_processes({1: 1, 2: 2}, lambda n: _raise(error) if n == 1 else n, lambda n: n, 0)
    assert results == {1: error, 2: 2}


def test_requests_that_a_real_helper_cannot_read_are_compiled(empty_cache, monkeypatch):  # noqa: F811
    """Their pickles name a module that is in this process alone."""
    module = types.ModuleType("only_in_this_process")
    exec("class Text(str):\n    pass", vars(module))
    module.Text.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    requests = [Request(scale(1.5 + n), "scale", config=module.Text("{}")) for n in range(6)]
    compiled = compile_funcs(requests, "cpu", jobs=2)
    for n, one in enumerate(compiled):
        check(one, 1.5 + n)


def test_helpers_begin_while_items_are_added(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: _Helper(lambda message: -message))
    done = threading.Event()
    shared: pool.SharedWork[int, int, int] = pool.SharedWork(lambda n: _raise(ValueError()), lambda n: n, done.set)
    shared.start_helper()
    shared.add(1, 1)
    assert done.wait(60)
    assert shared.finish() == {1: -1}


def test_a_helper_has_its_next_item_before_it_is_done_with_one(monkeypatch):
    """Except at the end, where what is left is for whoever is free."""
    waiting, done = [], threading.Event()
    helper = _Helper(lambda message: waiting.append(len(helper._asked)) or -message)
    monkeypatch.setattr(pool, "take_spare", lambda: helper)
    shared: pool.SharedWork[int, int, int] = pool.SharedWork(
        lambda n: done.wait(60) and n, lambda n: n, lambda: len(waiting) == 7 and done.set()
    )
    for n in range(8):
        shared.add(n, n)
    thread = threading.Thread(target=lambda: shared._work(shared._todo))  # begins one, and waits
    thread.start()
    while len(shared._todo) == 8:
        pass
    shared.start_helper()
    assert done.wait(60)
    thread.join()
    assert waiting == [1, 1, 1, 1, 0, 0, 0]
    assert shared.finish() == {0: 0} | {n: -n for n in range(1, 8)}


def test_work_that_is_given_up_ends_its_helpers(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: _Helper(lambda message: -message))
    shared: pool.SharedWork[int, int, int] = pool.SharedWork(lambda n: n, lambda n: n)
    shared.start_helper()
    shared.close()
    assert shared.finish() == {}


def test_one_worker_does_what_is_akin_one_after_the_other(monkeypatch):
    monkeypatch.setattr(pool, "take_spare", lambda: None)
    done = []
    shared: pool.SharedWork[int, int, None] = pool.SharedWork(done.append, lambda n: n, kin=lambda n: n % 2)
    for n in range(6):
        shared.add(n, n)
    shared.finish()
    assert done == [0, 2, 4, 1, 3, 5]


def test_two_workers_begin_with_what_is_not_akin(monkeypatch):
    """The helper's first item waits until this process has begun one."""
    here, begun = [], threading.Event()
    monkeypatch.setattr(pool, "take_spare", lambda: _Helper(lambda message: begun.wait(60) and -message))
    asked = threading.Event()

    def message(n):
        asked.set()
        return n

    shared: pool.SharedWork[int, int, int] = pool.SharedWork(
        lambda n: here.append(n) or begun.set() or n, message, kin=lambda n: n // 10
    )
    for n in (1, 2, 11):
        shared.add(n, n)
    shared.start_helper()
    assert asked.wait(60)
    results = shared.finish()
    assert here[0] == 11 and results[1] == -1
