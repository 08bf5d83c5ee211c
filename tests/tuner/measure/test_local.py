"""Measurement end to end, with real processes, real kernels and real crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from autosched.errors import AutoschedError, InvalidValueError
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.task import Measurement, Status, Trial
from autosched.tuner.measure import Built, MeasureOptions
from autosched.tuner.measure.base import Candidate
from autosched.tuner.measure.builder import LocalBuilder
from autosched.tuner.measure.local import LocalMeasurer
from autosched.tuner.measure.run_role import clock_khz
from autosched.tuner.measure.runner import LocalRunner
from tests.tuner.measure.kernels import K, KernelCompiler, N, config, evaluate, matmul_task

pytestmark = pytest.mark.early

COMPILER = "tests.tuner.measure.kernels:KernelCompiler"
OPTIONS = MeasureOptions(build_timeout_s=10, run_timeout_s=2, builders=1, memory_limit_bytes=4 << 30)
TASK = matmul_task()


def open_measurer(options: MeasureOptions = OPTIONS) -> LocalMeasurer:
    return LocalMeasurer("cpu", options, compiler=COMPILER, evaluate=evaluate)


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with open_measurer() as measurer:
        yield measurer


def measure_one(measurer: LocalMeasurer, kind: str) -> Trial:
    (trial,) = measurer.measure(TASK, [config(kind)])
    return trial


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["right", "packed"])
def test_a_good_candidate_has_times(measurer: LocalMeasurer, kind: str) -> None:
    measurement = measure_one(measurer, kind).measurement
    assert measurement.status is Status.OK and measurement.error == ""
    assert 1e-8 < measurement.median_s < 1e-2 and len(measurement.times_s) >= 3
    assert measurement.checked_against == "float64 reference"
    assert measurement.how["threads"] == 1 and measurement.how["cache"] == "warm"
    assert 0 <= measurement.how["interval"] < 1
    assert ("clock_mhz" in measurement.how) == (clock_khz() is not None)


@pytest.mark.parametrize(
    ("kind", "status", "text"),
    [
        ("refused", Status.INVALID, "tile 7 does not fit"),
        ("build_error", Status.BUILD_ERROR, "ValueError: no such instruction"),
        ("build_exit", Status.BUILD_ERROR, "SystemExit: 3"),
        ("build_hard_exit", Status.CRASH, "exited with code 5"),
        ("build_crash", Status.CRASH, "SIGSEGV"),
        ("build_memory", Status.OUT_OF_MEMORY, "100. GiB"),
        ("needs_python", Status.RUN_ERROR, "PyErr_SetString"),
        ("other_arguments", Status.RUN_ERROR, "other arguments than the task's function"),
        ("scratch_memory", Status.OUT_OF_MEMORY, "107374182976 bytes of memory are needed"),
        ("one_term_short", Status.WRONG_RESULT, "C[5, 7]"),
        ("last_row_missing", Status.WRONG_RESULT, "C[31, 0] is nan"),
        ("makes_nan", Status.NON_FINITE, "1536 of 1536 values"),
        ("beside_output", Status.WRONG_RESULT, "beside its output 'C'"),
        ("into_input", Status.WRONG_RESULT, "its input 'A'"),
        ("works_once", Status.WRONG_RESULT, "C[0, 0]"),
        ("wild_store", Status.CRASH, "SIGSEGV"),
        ("endless", Status.TIMEOUT, "not finished after 2 s"),
    ],
)
def test_a_bad_candidate_costs_itself_alone(measurer: LocalMeasurer, kind: str, status: Status, text: str) -> None:
    bad, good = measurer.measure(TASK, [config(kind), config("right")])
    if bad.config != config(kind):  # what is not built comes before what is
        bad, good = good, bad
    assert bad.measurement.status is status, bad.measurement.error
    assert text in bad.measurement.error and bad.measurement.times_s == ()
    assert good.measurement.status is Status.OK, good.measurement.error


def test_a_build_that_hangs_is_ended() -> None:
    options = MeasureOptions(build_timeout_s=1, builders=1)
    with open_measurer(options) as measurer:
        trials = {t.config["kind"]: t for t in measurer.measure(TASK, [config("build_hang"), config("refused")])}
    assert trials["build_hang"].measurement.status is Status.BUILD_TIMEOUT
    assert trials["refused"].measurement.status is Status.INVALID


@pytest.mark.alone
def test_what_is_clearly_worse_is_cut_short(measurer: LocalMeasurer) -> None:
    best_s = measure_one(measurer, "right").median_s
    (slow,) = measurer.measure(TASK, [config("slow", rounds=20)], best_s)
    assert slow.is_ok and slow.measurement.how["cut"] and len(slow.measurement.times_s) == 3
    (alone,) = measurer.measure(TASK, [config("slow", rounds=20)])
    assert "cut" not in alone.measurement.how and len(alone.measurement.times_s) > 3


def test_what_is_hopeless_once_it_is_built_is_not_run(measurer: LocalMeasurer) -> None:
    asked: list[tuple[object, float | None]] = []

    class Expectation:
        def is_hopeless(self, built: Built, best_s: float | None) -> bool:
            asked.append((built.candidate.config, best_s))
            return built.candidate.config == config("endless")

    measurer.foresight = Expectation()
    try:
        (found,) = measurer.measure(TASK, [config("endless"), config("right")])
    finally:
        measurer.foresight = None
    assert found.is_ok and found.config == config("right")
    assert asked == [(config("endless"), None), (config("right"), None)]


@pytest.mark.alone
def test_comparison_ranks_and_drops_failures(measurer: LocalMeasurer) -> None:
    configs = [config("slow", rounds=5), config("makes_nan"), config("right"), config("slow", rounds=5, again=1)]
    baseline, failure, faster, same = measurer.compare(TASK, configs, rounds=15)
    assert baseline.ratio == 1.0 and not baseline.is_faster
    assert failure.measurement.status is Status.NON_FINITE and not failure.is_faster
    assert faster.is_faster and faster.low <= faster.ratio <= faster.high < 0.8
    assert 0.5 < same.ratio < 2 and len(same.measurement.times_s) == 15


def test_finalists_are_checked_on_two_more_seeds(measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seeds = LocalRunner.check, list[int]()

    def check(self: LocalRunner, built: Built, seed: int) -> Measurement | None:
        seeds.append(seed)
        if seed == 2 and built.candidate.config.knobs["kind"] == "right":
            return Measurement(Status.WRONG_RESULT, error="right by luck until now")
        return real(self, built, seed)

    monkeypatch.setattr(LocalRunner, "check", check)
    baseline, lucky = measurer.compare(TASK, [config("slow", rounds=5), config("right")], rounds=3)
    assert sorted(seeds) == [0, 0, 1, 1, 2, 2] and baseline.measurement.is_ok
    assert lucky.measurement.status is Status.WRONG_RESULT and not lucky.is_faster


def test_comparison_survives_a_crash(measurer: LocalMeasurer) -> None:
    good, crash = measurer.compare(TASK, [config("right"), config("wild_store")], rounds=3)
    assert good.measurement.is_ok and crash.measurement.status is Status.CRASH


def test_cold_weights_rotate() -> None:
    options = MeasureOptions(builders=1, cache="cold")
    with open_measurer(options) as measurer:
        plain, rotated = measurer.measure(TASK, [config("right"), config("packed")])
        assert plain.is_ok and plain.measurement.how["copies"] == 1  # it has no packed argument
        assert rotated.is_ok and rotated.measurement.how["cache"] == "cold"
        assert rotated.measurement.how["copies"] * N * K * 4 > min(host_cpu().cache.l3_bytes, 4096 * N * K * 4 - 1)
        first, second = measurer.compare(TASK, [config("packed"), config("packed", again=1)], rounds=6)
        assert first.measurement.is_ok and second.measurement.how["cache"] == "cold"


def test_weights_are_no_colder_than_in_the_model() -> None:
    """A model whose weights fit the last cache finds them there at every run."""
    options = MeasureOptions(builders=1, cache="cold", weight_bytes=10 * N * K * 4)
    with open_measurer(options) as measurer:
        (trial,) = measurer.measure(TASK, [config("packed")])
    assert trial.measurement.how["copies"] == 10


def test_threads_are_the_options_or_the_knob() -> None:
    task = matmul_task(threads=2)
    with open_measurer(MeasureOptions(builders=1, threads=2)) as measurer:
        configs = [config("right"), config("right", threads=1), config("right", threads=8)]
        trials = list(measurer.measure(task, configs))
    assert [t.measurement.status for t in trials] == [Status.OK] * 3
    assert [t.measurement.how["threads"] for t in trials] == [2, 1, 2]


def test_leaving_early_leaves_a_usable_measurer(measurer: LocalMeasurer) -> None:
    for trial in measurer.measure(TASK, [config("right"), config("packed"), config("slow")]):
        assert trial.is_ok
        break
    assert measure_one(measurer, "right").is_ok


def test_the_reference_is_made_while_candidates_are_built(measurer: LocalMeasurer) -> None:
    builder, busy = measurer.builder, list[int]()
    candidates = [Candidate(TASK, config("right"))]
    (built,) = builder.build(candidates, meanwhile=lambda: busy.append(len(builder.pool._busy)))
    assert busy == [1] and isinstance(built, Built)
    with pytest.raises(ZeroDivisionError):
        list(builder.build(candidates, meanwhile=lambda: 1 // 0))
    assert measure_one(measurer, "right").is_ok  # the measurer is as good as before


def test_a_worker_that_died_idle_is_replaced_without_blame(measurer: LocalMeasurer) -> None:
    pids = measurer.process_ids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    while any(map(is_running, pids)):
        time.sleep(0.01)
    assert measure_one(measurer, "right").is_ok


def test_a_worker_killed_by_the_system_ran_out_of_memory() -> None:
    trials: list[Trial] = []
    with open_measurer(MeasureOptions(builders=1, run_timeout_s=60)) as measurer:
        assert measure_one(measurer, "right").is_ok
        worker = measurer._parts()[1].pool.workers[0]
        begin_s, deadline = processor_time(worker.pid), time.monotonic() + 60
        thread = threading.Thread(target=lambda: trials.extend(measurer.measure(TASK, [config("endless")])))
        thread.start()
        while processor_time(worker.pid) < begin_s + 0.5:  # it runs the candidate, which never ends
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(worker.pid, signal.SIGKILL)
        thread.join(20)
    assert trials[0].measurement.status is Status.OUT_OF_MEMORY


def processor_time(pid: int) -> float:
    """What a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_close_leaves_nothing() -> None:
    measurer = open_measurer()
    pids, folder = measurer.process_ids, measurer._folder
    assert measure_one(measurer, "right").is_ok and len(pids) >= 2
    measurer.close()
    measurer.close()
    assert not any(map(is_running, pids)) and not folder.exists()
    with pytest.raises(InvalidValueError, match="closed"):
        list(measurer.measure(TASK, [config("right")]))


PARENT = """
import signal, sys
from tests.tuner.measure.test_local import *
if __name__ == "__main__":
    measurer = open_measurer(MeasureOptions(builders=1, run_timeout_s=300))
    list(measurer.measure(TASK, [config("right")]))
    print(*measurer.process_ids, measurer._folder, flush=True)
    if sys.argv[1] == "return":
        sys.exit(0)
    list(measurer.measure(TASK, [config("endless")]))
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGINT, -signal.SIGINT),
        pytest.param(signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("return", 0, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_when_the_parent_ends(how: signal.Signals | str, code: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(how)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    *pids, folder = parent.stdout.readline().split()
    assert len(pids) >= 2
    if isinstance(how, signal.Signals):
        assert all(is_running(int(pid)) for pid in pids)
        time.sleep(0.5)  # the runner is in its endless kernel by now
        parent.send_signal(how)
    assert parent.wait(120) == code
    deadline = time.monotonic() + 60
    while any(is_running(int(pid)) for pid in pids) or Path(folder).exists():
        assert time.monotonic() < deadline, "a worker or its folder is left"
        time.sleep(0.05)


def test_a_worker_that_cannot_start_says_why() -> None:
    with pytest.raises(AutoschedError, match="No module named 'tests.no_such_module'"):
        LocalMeasurer("cpu", OPTIONS, compiler="tests.no_such_module:Compiler")


class WithoutLoop(KernelCompiler):
    """A compiler whose native loop fails, with a traceback."""

    def native_loop(self) -> bytes:
        """Fail."""
        raise OSError("no space left")


def test_a_native_loop_that_cannot_be_built_is_one_line() -> None:
    builder = LocalBuilder(Target("cpu"), OPTIONS, compiler=f"{__name__}:WithoutLoop")
    try:
        with pytest.raises(AutoschedError, match="^the native loop cannot be built: .*no space left$"):
            builder.native_loop()
    finally:
        builder.pool.close()


def test_impossible_options() -> None:
    for options in ({"threads": 0}, {"run_timeout_s": -1.0}, {"builders": 0}, {"cache": "hot"}):
        with pytest.raises(InvalidValueError):
            MeasureOptions(**options)  # type: ignore[arg-type]


def test_nothing_to_compare(measurer: LocalMeasurer) -> None:
    with pytest.raises(InvalidValueError, match="no configuration"):
        measurer.compare(TASK, [])


def test_workers_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_measurer() as measurer:
        pool = measurer._parts()[1].pool
        pool._most_jobs = 2
        first = pool._workers[0].pid
        trials = [measure_one(measurer, "right") for _ in range(4)]
        assert all(trial.is_ok for trial in trials) and pool._workers[0].pid != first


def test_the_configuration_travels(measurer: LocalMeasurer) -> None:
    (trial,) = measurer.measure(TASK, [Config("test", {"kind": "right", "tile": (2, 3)})])
    assert trial.config["tile"] == (2, 3) and trial.is_ok


def test_a_comparison_blames_the_one_that_fails_in_it(measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is right whenever it is checked, and crashes when it is timed in turn with others."""
    runner = measurer._parts()[1]
    culprit, real = config("right", culprit=1), runner.interleave

    def interleave(built: Sequence[Built], rounds: int) -> list[list[float]] | Measurement:
        if any(one.candidate.config == culprit for one in built):
            return Measurement(Status.CRASH, error="signal 11")
        return real(built, rounds)

    monkeypatch.setattr(runner, "interleave", interleave)
    others = [config("right"), config("slow", rounds=5)]
    for position in range(3):
        configs = [*others[:position], culprit, *others[position:]]
        found = measurer.compare(TASK, configs, rounds=6)
        assert [r.config for r in found] == configs
        assert [r.measurement.status for r in found if r.config != culprit] == [Status.OK] * 2
        assert found[position].measurement.status is Status.CRASH and not found[position].is_faster


@pytest.mark.alone
def test_slow_kernels_have_fewer_rounds(measurer: LocalMeasurer) -> None:
    slow = [config("slow", rounds=2000), config("slow", rounds=2000, again=1)]
    first, second = measurer.compare(TASK, slow, rounds=1000)
    assert first.measurement.is_ok and 6 <= len(first.measurement.times_s) < 1000
    assert len(second.measurement.times_s) == len(first.measurement.times_s)


def test_a_hanging_candidate_says_where(measurer: LocalMeasurer) -> None:
    error = measure_one(measurer, "endless").measurement.error
    assert "not finished after 2 s" in error and "time_calls" not in error and "in _run" in error
