import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from autosched.codegen.native import native_object
from autosched.env import child_environment
from autosched.errors import ArtifactError
from autosched.runtime import native_abi
from autosched.runtime.affinity import Claims
from autosched.runtime.pool import _make_pool, open_pool
from autosched.runtime.program import Program
from tests.runtime.kernels import chain, double_kernel

_ROOT = str(Path(__file__).parents[2])


def _program(threads, rows=16, n_nodes=6):
    executable = chain(rows, n_nodes, flops=10**9, constant=True)
    program = Program(executable.graph, executable.kernels, executable.constants, executable.native, threads)
    x, out = np.random.default_rng(0).random((2, rows, 64), "float32")
    program.place(0, x)
    program.place(executable.graph.outputs[0], out)
    return program, x * 2**n_nodes + executable.constants[0], out


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_threads(threads):
    program, expected, out = _program(threads)
    for _ in range(200):
        out[:] = -1
        program.run()
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("threads", "rows"), [(2, 3), (3, 37), (20, 64), (20, 23)])
def test_every_piece_is_run_once_whatever_ranges_there_are(threads, rows):
    program, expected, out = _program(threads, rows)
    for _ in range(20):
        out[:] = -1
        assert program.run() == threads
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("epoch", [2**31 - 3, 2**32 - 3])
def test_epochs_come_round(epoch):
    """What a range's word says of 2**32 phases ago does not count."""
    pool = open_pool(native_object())
    programs = [_program(threads, rows=20, n_nodes=6) for threads in (2, 5, 3)]
    for program, _, _ in programs:
        program.run()
    now, soon = np.array([epoch, (epoch + 7) % 2**32], "uint64") << np.uint64(32)
    pool.words[native_abi.POOL_TICKET] = now.view("int64")
    pool.words[native_abi.POOL_RANGES :: native_abi.RANGE_WORDS] = soon.view("int64")  # all were taken
    for _, (program, expected, out) in zip(range(12), itertools.cycle(programs), strict=False):
        out[:] = -1
        program.run()
        np.testing.assert_array_equal(out, expected)


def test_one_pool_in_a_process_and_it_grows():
    pool = open_pool(native_object())
    assert open_pool(bytes(bytearray(native_object()))) is pool
    pool.ensure(3)
    assert len(pool._threads) >= 2
    pool.ensure(2)
    assert len(pool._threads) >= 2


def _cpus_of_threads(pool):
    """By the name of each worker the CPUs that it may run on now."""
    tasks = [int(task) for task in os.listdir("/proc/self/task")]
    names = {task: Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in tasks}
    wanted = {f"autosched-{i}" for i in range(1, len(pool._threads) + 1)}
    return {name: os.sched_getaffinity(task) for task, name in names.items() if name in wanted}


@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="no CPUs to choose from")
@pytest.mark.parametrize("floats", [False, True])
def test_threads_have_cpus_of_their_own_for_a_while(floats, monkeypatch):
    if floats:
        monkeypatch.setattr(Claims, "choose", lambda self, *args: None)
    code = native_object()
    pool, usual = _make_pool(code), os.sched_getaffinity(0)
    pool.ensure(2)
    before = _cpus_of_threads(pool)
    with pool.threads_apart():
        own, workers = os.sched_getaffinity(0), _cpus_of_threads(pool)
        assert own and own.isdisjoint(*workers.values()) and all(len(cpus) == 1 for cpus in workers.values())
    assert os.sched_getaffinity(0) == usual and _cpus_of_threads(pool) == before
    pool.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no affinity")
def test_threads_stay_where_there_are_too_few_cpus_or_nobody_wants_pins(monkeypatch):
    pool, usual = open_pool(native_object()), os.sched_getaffinity(0)
    pool.ensure(2)
    monkeypatch.setattr(pool, "_cpus", sorted(usual))
    with pool.threads_apart():
        assert os.sched_getaffinity(0) == usual
    monkeypatch.setattr(pool, "_cpus", [min(usual)])
    monkeypatch.setenv("AUTOSCHED_AFFINITY", "off")
    with pool.threads_apart():
        assert os.sched_getaffinity(0) == usual


def test_another_caller_meanwhile_runs_alone():
    pool = open_pool(native_object())
    program, expected, out = _program(2)
    assert program.run() == 2
    pool.words[48] = 1  # as if another caller held it
    try:
        out[:] = -1
        assert program.run() == 1
        np.testing.assert_array_equal(out, expected)
    finally:
        pool.words[48] = 0


def test_programs_on_several_python_threads():
    results = []

    def work(seed):
        program, expected, out = _program(2)
        for _ in range(300):
            out[:] = seed
            program.run()
            results.append(bool((out == expected).all()))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(results) == 1200
    assert all(results)


def test_profile_gives_each_nodes_time():
    program, expected, out = _program(2)
    seconds = program.profile(5)
    assert seconds.shape == (7,)
    assert (seconds > 0).all()
    assert seconds.sum() < 1
    np.testing.assert_array_equal(out, expected)


def test_workers_wake_from_sleep():
    program, expected, out = _program(2)
    for _ in range(5):
        program.run()
        time.sleep(0.02)  # they fall asleep after less than a millisecond
        out[:] = -1
        program.run()
        np.testing.assert_array_equal(out, expected)


def test_idle_workers_use_no_cpu_time():
    program, _, _ = _program(4)
    program.run()
    time.sleep(0.1)
    before = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    time.sleep(0.5)
    assert sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - before < 0.05


def test_a_forked_child_starts_its_own_threads():
    program, expected, out = _program(2)
    program.run()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pool = open_pool(native_object())
            alone = not pool._threads
            out[:] = -1
            team = program.run()
            code = 0 if alone and team == 2 and len(pool._threads) == 1 and (out == expected).all() else 2
        finally:
            os._exit(code)
    for _ in range(300):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_fork_while_other_threads_compute_gives_right_results_in_the_child():
    running, stop = threading.Event(), threading.Event()

    def work():
        program, _, _ = _program(2)
        while not stop.is_set():
            program.run(50)
            running.set()

    busy = threading.Thread(target=work)
    busy.start()
    assert running.wait(30)
    program, expected, out = _program(2)
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    out[:] = -1
                    team = program.run(20)
                    code = 0 if team == 2 and (out == expected).all() else 2
                finally:
                    os._exit(code)
            assert _wait_for(child, 30) == 0
    finally:
        stop.set()
        busy.join(30)


def _wait_for(child, seconds):
    """Give the exit code of a child, which is killed after some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_the_caller_keeps_its_affinity_and_does_not_hand_a_narrow_one_on(tmp_path):
    code = """
import os
from pathlib import Path
from tests.runtime.test_pool import _program
allowed = os.sched_getaffinity(0)
program, expected, out = _program(2)
os.sched_setaffinity(0, {min(allowed)})
assert program.run() == 2 and (out == expected).all()
assert os.sched_getaffinity(0) == {min(allowed)}
for task in Path("/proc/self/task").iterdir():
    if (task / "comm").read_text().startswith("autosched-"):
        own = os.sched_getaffinity(int(task.name))
        print(len(own), bool(own & {min(allowed)}), len(allowed))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment({"PYTHONPATH": _ROOT, "TMPDIR": str(tmp_path)}),  # no claims of other tests
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    n_cpus, is_shared, n_allowed = done.stdout.split()
    assert n_cpus == "1"
    assert (is_shared == "True") == (n_allowed == "1")


def test_signals_reach_the_thread_that_runs_python():
    pool = open_pool(native_object())
    pool.ensure(2)
    masks = []
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("autosched-"):
            line = next(text for text in (task / "status").read_text().splitlines() if text.startswith("SigBlk"))
            masks.append(int(line.split()[1], 16))
    assert masks
    assert all(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


def test_short_kernels_stay_on_one_thread():
    executable = chain(2, 3)
    program = Program(executable.graph, executable.kernels, executable.constants, executable.native, 2)
    program.place(0, np.zeros((2, 64), "float32"))
    assert program.run() == 1


def test_the_process_ends_with_workers_awake():
    code = """
import numpy as np
from tests.runtime.test_pool import _program
program, expected, out = _program(4)
program.run(200)
print((out == expected).all())
"""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=child_environment({"PYTHONPATH": _ROOT}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_object_code_without_the_functions_is_refused():
    with pytest.raises(ArtifactError, match="lacks its functions"):
        open_pool(double_kernel().object_code)


def test_a_wrong_affinity_is_said_before_a_thread_starts():
    """A thread that nobody knows of would read its block after that is gone."""
    code = """
import os
from tests.runtime.test_pool import _program
program, _, _ = _program(4)
before = len(os.listdir("/proc/self/task"))
try:
    program.run()
except ValueError as error:
    print(error)
print(len(os.listdir("/proc/self/task")) - before)
"""
    environment = child_environment({"PYTHONPATH": str(Path(__file__).parents[2]), "AUTOSCHED_AFFINITY": "bad"})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    said, threads = done.stdout.splitlines()
    assert "AUTOSCHED_AFFINITY='bad'" in said and threads == "0"
