"""Several threads, and forked children, that use one model at once."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from autosched.codegen.native import native_object
from autosched.errors import TVMError
from autosched.runtime import Executable, Graph, GraphModule, Node, Storage, Value
from autosched.runtime.executor_pool import ExecutorPool
from tests.runtime.kernels import chain, double_kernel

_ROWS = 64


def _in_threads(count, work):
    """Run `work(number)` in threads; raises what the first that failed raised."""
    problems = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  (raised in the test's thread)
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if problems:
        raise problems[0]


def test_an_executable_called_from_eight_threads_answers_each():
    executable = chain(_ROWS, 4)

    def work(number):
        for turn in range(100):
            x = np.full((_ROWS, 64), number * 1000 + turn, np.float32)
            np.testing.assert_array_equal(executable(x).numpy(), x * 16)

    _in_threads(8, work)


def test_a_graph_module_used_from_eight_threads_answers_each():
    module = GraphModule(chain(_ROWS, 4))

    def work(number):
        for turn in range(100):
            x = np.full((_ROWS, 64), number * 1000 + turn, np.float32)
            module.set_input("x", x)
            time.sleep(0)  # lets another thread set its own
            module.run()
            time.sleep(0)
            np.testing.assert_array_equal(module.get_output(0).numpy(), x * 16)

    _in_threads(8, work)


def test_an_input_that_a_thread_gets_and_writes_is_its_own():
    module = GraphModule(chain(_ROWS, 1))
    everybody = threading.Barrier(4)

    def work(number):
        x = np.full((_ROWS, 64), number, np.float32)
        module.get_input("x").copyfrom(x)
        everybody.wait(30)
        module["run"]()
        everybody.wait(30)
        np.testing.assert_array_equal(module["get_output"](0).numpy(), x * 2)

    _in_threads(4, work)


def test_what_the_first_thread_sets_counts_where_another_sets_nothing_else():
    executable = chain(_ROWS, 1, constant=True)
    module = GraphModule(executable)
    x, bias = np.ones((_ROWS, 64), np.float32), np.full((_ROWS, 64), 5, np.float32)
    module.set_input("x", 0 * x)
    module.set_input("bias", bias)

    def work(_):
        module.run(x=x)
        np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * x + bias)

    _in_threads(2, work)
    changed, seen = threading.Event(), threading.Event()

    def work_later(_):
        module.run(x=x)
        seen.set()
        assert changed.wait(30)
        module.run()
        np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * x + 7)

    moved = GraphModule(executable).get_input("bias").copyfrom(bias * 0 + 7)
    worker = threading.Thread(target=lambda: _in_threads(1, work_later))
    worker.start()
    assert seen.wait(30)
    module.set_input_zero_copy("bias", moved)
    changed.set()
    worker.join(60)
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), 0 * x + 7)


def test_an_input_that_a_graph_overwrites_is_no_threads_but_its_own():
    shape = (_ROWS, 64)
    values = (
        Value("x", shape, "float32", Storage("input", 0)),
        Value("y", shape, "float32", Storage("input", 1)),
        Value("z", shape, "float32", Storage("alias", 0)),
    )
    nodes = (Node("double", "double", (1,), (2,)),)
    graph = Graph(values, nodes, (0, 1), (2,), 0)
    module = GraphModule(Executable({"double": double_kernel(_ROWS)}, graph, (), native_object()))
    x = np.ones(shape, np.float32)
    module.run(x=x, y=x)
    _in_threads(1, lambda _: module.run(y=10 * x))
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * x)


def test_one_thread_may_set_and_another_run_and_read():
    module = GraphModule(chain(_ROWS, 1))
    x = np.ones((_ROWS, 64), np.float32)
    _in_threads(1, lambda _: module.set_input("x", x))
    _in_threads(1, lambda _: module.run())
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * x)


def test_who_sets_nothing_among_several_that_do_is_told():
    module = GraphModule(chain(_ROWS, 1))
    x = np.ones((_ROWS, 64), np.float32)
    set_, done = threading.Barrier(3), threading.Event()

    def work(_):
        module.set_input("x", x)
        set_.wait(30)
        assert done.wait(30)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    set_.wait(30)
    try:
        with pytest.raises(TVMError, match="2 threads set inputs"):
            module.run()
    finally:
        done.set()
        for thread in threads:
            thread.join(30)


def test_a_thread_takes_over_the_executor_of_one_that_ended():
    module = GraphModule(chain(_ROWS, 1))
    x = np.ones((_ROWS, 64), np.float32)
    module.set_input("x", x)
    used = set()

    def work(number):
        module.set_input("x", x * number)
        used.add(id(module._to_use().executor))

    for _turn in range(5):
        _in_threads(1, work)
    assert len(used) == 1
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * x)


def test_no_more_executors_are_made_than_allowed():
    pool, made = ExecutorPool(2), []
    first, second = pool.take(lambda: made.append(1) or "a"), pool.take(lambda: made.append(1) or "b")
    third = []
    waiting = threading.Thread(target=lambda: third.append(pool.take(lambda: made.append(1) or "c")))
    waiting.start()
    time.sleep(0.05)
    assert not third
    pool.give_back(second)
    waiting.join(30)
    assert (third, len(made)) == (["b"], 2)
    pool.give_back(first)


def test_an_executor_that_could_not_be_made_leaves_room():
    pool = ExecutorPool(1)

    def fail():
        raise MemoryError

    with pytest.raises(MemoryError):
        pool.take(fail)
    assert pool.take(lambda: "a") == "a"


def _wait_for_child(child):
    for _ in range(300):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_forked_while_other_threads_run_the_model_runs_it_too(threads):
    executable = chain(_ROWS * 8, 40, flops=10**9)
    module = GraphModule(executable, threads=threads)
    x = np.ones((_ROWS * 8, 64), np.float32)
    module.set_input("x", x)
    stop, running = threading.Event(), threading.Barrier(3)

    def busy(run):
        run()
        running.wait(30)
        while not stop.is_set():
            run()

    runs = (lambda: executable(x), module.run)
    workers = [threading.Thread(target=busy, args=(run,)) for run in runs]
    for worker in workers:
        worker.start()
    running.wait(30)
    codes = []
    try:
        for _ in range(4):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    right = (executable(x).numpy() == x * 2.0**40).all()
                    module.set_input("x", x)
                    module.run()
                    code = 0 if right and (module.get_output(0).numpy() == x * 2.0**40).all() else 2
                finally:
                    os._exit(code)
            codes.append(_wait_for_child(child))
    finally:
        stop.set()
        for worker in workers:
            worker.join(30)
    assert codes == [0] * 4
