"""Candidates on a device: right ones are timed, wrong ones found, on the emulator's device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import DeviceError
from autosched.runtime.cuda.devices import use_driver
from autosched.target import Target
from autosched.task import Status
from autosched.tir import PrimFunc
from autosched.tuner.measure.base import CandidateError, MeasureOptions
from autosched.tuner.measure.compiler import TemplateCompiler
from autosched.tuner.measure.device import DeviceBench, Guarded, spoils_the_device
from autosched.tuner.measure.reference import Reference
from autosched.tuner.measure.run_role import Entry, Interleave, Run, RunRole

TARGET = Target("nvidia/nvidia-h200")
OPTIONS = MeasureOptions(repeat_s=1e-4, budget_s=0.02, min_repeats=3)


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    from autosched.codegen.cuda.emulate import EmulatorDriver

    with use_driver(EmulatorDriver):
        yield


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    """x + 1 and, with the same signature, x + 2."""
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    from autosched.templates import default_config

    made = {}
    for name, add in (("right", 1.0), ("wrong", 2.0)):
        func = adds(add)
        made[name] = TemplateCompiler().compile(func, default_config(func, TARGET), TARGET)[0]
    return made


def adds(number: float) -> PrimFunc:
    x = te.placeholder((5, 33), name="x")
    return te.create_prim_func([x, te.compute((5, 33), lambda i, j: x[i, j] + number, name="out")])


def reference() -> Reference:
    x = np.random.default_rng(0).normal(size=(5, 33)).astype("float32")
    return Reference((x,), (x.astype("float64") + 1,), (1e-6,), 0)


class Stored:
    """A reference that is there already."""

    def load(self) -> Reference:
        return reference()


def role() -> RunRole:
    made = RunRole()
    made.learn("task", Stored())
    made._native = object()  # type: ignore[assignment]  # no kernel of a CPU is run
    return made


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_a_right_candidate_has_times(kernels: dict[str, Any], cache: Any) -> None:
    options = MeasureOptions(repeat_s=1e-4, budget_s=0.02, min_repeats=3, cache=cache)
    found = role().do(Run(Entry(kernels["right"], (), 1), "task", options))
    assert found.status is Status.OK and found.median_s > 0 and found.how["cache"] == cache


def test_a_wrong_candidate_is_found(kernels: dict[str, Any]) -> None:
    with pytest.raises(CandidateError, match="out") as caught:
        role().do(Run(Entry(kernels["wrong"], (), 1), "task", OPTIONS))
    assert caught.value.status is Status.WRONG_RESULT


def test_candidates_in_turn(kernels: dict[str, Any]) -> None:
    entries = (Entry(kernels["right"], (), 1), Entry(kernels["wrong"], (), 1))
    times = role().do(Interleave(entries, "task", OPTIONS, 3))
    assert len(times) == 2 and all(t > 0 for row in times for t in row)


def test_other_arguments_are_refused(kernels: dict[str, Any]) -> None:
    bench = DeviceBench(Reference((), (np.zeros(3),), (0.0,), 0))
    with pytest.raises(CandidateError, match="other arguments"):
        bench.load(kernels["right"], (), None, 1)


def test_what_is_written_beside_is_seen(kernels: dict[str, Any]) -> None:
    bench = DeviceBench(reference())
    loaded = bench.load(kernels["right"], (), None, 1)
    bench.make_fresh(loaded)
    loaded.run()
    bench.check(loaded, (), OPTIONS)
    out = loaded.outputs[0]
    bench.driver.fill(out.address + out.size_bytes, 0, 4)
    with pytest.raises(CandidateError, match="wrote beside its output"):
        bench.check(loaded, (), OPTIONS)
    loaded = bench.load(kernels["right"], (), None, 1)
    loaded.run()
    bench.driver.fill(loaded.sets[0][0].address, 0, 4)
    with pytest.raises(CandidateError, match="wrote into or beside its input"):
        bench.check(loaded, (), OPTIONS)


def test_results_that_nobody_wrote_are_none(kernels: dict[str, Any]) -> None:
    bench = DeviceBench(reference())
    loaded = bench.load(kernels["right"], (), None, 1)
    bench.make_fresh(loaded)
    with pytest.raises(CandidateError):
        bench.check(loaded, (), OPTIONS)


def test_guards() -> None:
    from autosched.runtime.cuda.devices import driver_of

    memory = Guarded(driver_of(0), 40)
    assert memory.guards_hold() and np.isnan(memory.read((10,), "float32")).all()


def test_an_illegal_address_spoils_the_process() -> None:
    assert spoils_the_device(DeviceError("H200 reports: an illegal memory access was encountered"))
    assert not spoils_the_device(DeviceError("H200 has no room for 3 bytes more"))
    assert not spoils_the_device(ValueError("illegal"))


class SpoiltRole:
    """Says of every failure that the process cannot go on."""

    failure = Status.RUN_ERROR

    def learn(self, key: str, value: Any) -> None: ...

    def do(self, message: Any) -> Any:
        import os

        if message == "fail":
            raise DeviceError("an illegal memory access was encountered")
        return os.getpid()

    def is_spoilt_by(self, error: BaseException) -> bool:
        return spoils_the_device(error)


def test_the_next_job_is_served_by_a_new_process(tmp_path: Path) -> None:
    import os

    from autosched.tuner.measure.process import Job
    from autosched.tuner.measure.worker import Setup
    from autosched.tuner.measure.worker_pool import WorkerPool

    setup = Setup(f"{__name__}:SpoiltRole", {}, None, os.getpid(), str(tmp_path))
    pool = WorkerPool(setup, 1, 60.0, Status.TIMEOUT, spare=False)
    try:
        replies = dict(pool.run([Job("pid"), Job("fail"), Job("pid")]))
    finally:
        pool.close()
    assert [replies[i].status for i in range(3)] == [Status.OK, Status.RUN_ERROR, Status.OK]
    assert "illegal memory access" in replies[1].error
    assert replies[0].value != replies[2].value
