"""Other instances beside the one that is measured: they run while it is timed, stand still else, and none is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.errors import InvalidValueError
from autosched.task import Status
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.local import LocalMeasurer
from tests.tuner.measure.kernels import config, evaluate, matmul_task

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
OPTIONS = MeasureOptions(build_timeout_s=10, run_timeout_s=5, builders=1, companions=2)
TASK = matmul_task()


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    compiler = "tests.tuner.measure.kernels:KernelCompiler"
    with LocalMeasurer("cpu", OPTIONS, compiler=compiler, evaluate=evaluate) as measurer:
        yield measurer


def fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def busy(pid: int) -> int:
    """Clock ticks that a process has computed."""
    return int(fields(pid)[11])


def are_stopped(pids: tuple[int, ...]) -> bool:
    """Whether all stand still, which the system takes a moment for."""
    deadline = time.monotonic() + 5
    while any(fields(pid)[0] != "T" for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return all(fields(pid)[0] == "T" for pid in pids)


def others(measurer: LocalMeasurer) -> tuple[int, ...]:
    assert measurer._runner is not None
    return measurer._runner._companions.process_ids


def test_they_run_while_a_candidate_is_timed_and_only_then(measurer: LocalMeasurer) -> None:
    (first,) = measurer.measure(TASK, [config("right")])
    assert first.measurement.status is Status.OK
    assert (first.measurement.how["as"], first.measurement.how["companions"]) == ("throughput", 2)
    pids = others(measurer)
    assert len(pids) == 2 and are_stopped(pids)
    before = [busy(pid) for pid in pids]
    for _ in range(5):
        (trial,) = measurer.measure(TASK, [config("packed")])
        assert trial.measurement.status is Status.OK
    results = measurer.compare(TASK, [config("right"), config("packed")])
    assert all(found.measurement.how["as"] == "throughput" for found in results)
    assert others(measurer) == pids and sum(map(busy, pids)) > sum(before)
    assert are_stopped(pids)


def test_one_that_dies_is_replaced_and_a_bad_candidate_harms_none(measurer: LocalMeasurer) -> None:
    next(iter(measurer.measure(TASK, [config("right")])))
    gone, stays = others(measurer)
    os.kill(gone, signal.SIGKILL)
    os.waitpid(gone, os.WNOHANG)
    for kind, status in (("one_term_short", Status.WRONG_RESULT), ("right", Status.OK)):
        (trial,) = measurer.measure(TASK, [config(kind)])
        assert trial.measurement.status is status
    assert len(others(measurer)) == 2 and gone not in others(measurer) and stays in others(measurer)


def test_none_is_left(measurer: LocalMeasurer) -> None:
    pids = others(measurer)
    measurer.close()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_options() -> None:
    assert MeasureOptions().run_as == "latency" and MeasureOptions(companions=0).run_as == "throughput"
    with pytest.raises(InvalidValueError, match="companions"):
        MeasureOptions(companions=-1)
