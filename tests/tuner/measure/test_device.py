"""Candidates on a device: right ones are timed, wrong ones found, on the emulator's device."""

from __future__ import annotations

import contextlib
import dataclasses
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
from autosched.templates import default_config
from autosched.tir import PrimFunc
from autosched.tuner.measure.base import CandidateError, MeasureOptions
from autosched.tuner.measure.compiler import TemplateCompiler
from autosched.tuner.measure.device import DeviceBench, Guarded, spoils_the_device
from autosched.tuner.measure.reference import Reference
from autosched.tuner.measure.run_role import COMPARISONS, NATIVE, Entry, Interleave, Run, RunRole

TARGET = Target("nvidia/nvidia-h200")
OPTIONS = MeasureOptions(repeat_s=1e-4, round_s=1e-4, budget_s=0.02, min_repeats=3)


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
    made = {}
    for name, add in (("right", 1.0), ("wrong", 2.0)):
        func = adds(add)
        made[name] = TemplateCompiler().compile(func, default_config(func, TARGET), TARGET)[0]
    return made


def adds(number: float, rows: int = 5) -> PrimFunc:
    x = te.placeholder((rows, 33), name="x")
    return te.create_prim_func([x, te.compute((rows, 33), lambda i, j: x[i, j] + number, name="out")])


def reference(rows: int = 5) -> Reference:
    x = np.random.default_rng(0).normal(size=(rows, 33)).astype("float32")
    return Reference((x,), (x.astype("float64") + 1,), (1e-6,), 0)


class Stored:
    """A reference that is there already."""

    def load(self) -> Reference:
        return reference()


@pytest.fixture(scope="module")
def comparisons() -> Any:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    return TemplateCompiler().comparisons(TARGET)


@pytest.fixture(params=["on the host", "on the device"])
def compared(request: pytest.FixtureRequest, comparisons: Any) -> Any:
    """What results are compared with: nothing, so that the host does it, or the device's kernel."""
    return comparisons if request.param == "on the device" else None


def role(comparisons: Any = None) -> RunRole:
    made = RunRole()
    if comparisons is not None:
        made.learn(COMPARISONS, comparisons)
    made.learn(NATIVE, b"")
    made.learn("task", Stored())
    return made


class Counted:
    """A device that counts the bytes which the host reads of it."""

    def __init__(self, driver: Any):
        self._driver, self.n_read = driver, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def copy_out(self, data: np.ndarray, source: int) -> None:
        self.n_read += data.nbytes
        self._driver.copy_out(data, source)


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_a_right_candidate_has_times(kernels: dict[str, Any], cache: Any, compared: Any) -> None:
    options = MeasureOptions(repeat_s=1e-4, round_s=1e-4, budget_s=0.02, min_repeats=3, cache=cache)
    found = role(compared).do(Run(Entry(kernels["right"], (), 1), "task", options))
    assert found.status is Status.OK and found.median_s > 0 and found.how["cache"] == cache


def test_cold_calls_are_timed_each_by_itself_and_waited_for_together(kernels: dict[str, Any]) -> None:
    bench, events = DeviceBench(reference()), list[str]()
    loaded = bench.load(kernels["right"], (), None, 1, cold_bytes=1)

    class Logged(Counted):
        def fill(self, to: int, byte: int, size_bytes: int) -> None:
            events.append("empty")

        def launch(self, *given: Any) -> None:
            events.append("launch")

        def record(self) -> int:
            events.append("mark")
            return len(events)

        def seconds_between(self, first: int, last: int) -> float:
            events.append("wait")
            return float(last - first)

    loaded.driver = Logged(bench.driver)
    assert loaded.run(3) == 3 * 2.0  # from the mark before a launch to the one behind it
    assert events == ["empty", "mark", "launch", "mark"] * 3 + ["wait"] * 3


def test_a_wrong_candidate_is_found(kernels: dict[str, Any], compared: Any) -> None:
    with pytest.raises(CandidateError, match="out") as caught:
        role(compared).do(Run(Entry(kernels["wrong"], (), 1), "task", OPTIONS))
    assert caught.value.status is Status.WRONG_RESULT


def test_candidates_in_turn(kernels: dict[str, Any]) -> None:
    entries = (Entry(kernels["right"], (), 1), Entry(kernels["wrong"], (), 1))
    times = role().do(Interleave(entries, "task", OPTIONS, 3))
    assert len(times) == 2 and all(t > 0 for row in times for t in row)


def test_other_arguments_are_refused(kernels: dict[str, Any]) -> None:
    bench = DeviceBench(Reference((), (np.zeros(3),), (0.0,), 0))
    with pytest.raises(CandidateError, match="other arguments"):
        bench.load(kernels["right"], (), None, 1)


def test_what_is_written_beside_is_seen(kernels: dict[str, Any], compared: Any) -> None:
    bench = DeviceBench(reference(), comparisons=compared)
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


def test_what_is_right_stays_on_the_device(comparisons: Any) -> None:
    """The host reads guards and counts, which do not grow with the arrays."""
    read = []
    for rows in (600, 1200):
        func = adds(1.0, rows)
        kernel, _ = TemplateCompiler().compile(func, default_config(func, TARGET), TARGET)
        bench = DeviceBench(reference(rows), comparisons=comparisons)
        bench.driver = bench._comparisons.driver = Counted(bench.driver)
        loaded = bench.load(kernel, (), None, 1)
        bench.make_fresh(loaded)
        loaded.run()
        before = bench.driver.n_read
        bench.check(loaded, (), OPTIONS)
        bench.recheck(loaded, (), OPTIONS)
        read.append(bench.driver.n_read - before)
    assert read[0] == read[1] < 16 * 1024


@pytest.mark.parametrize("place", [0, 7, 164])
@pytest.mark.parametrize(
    ("value", "status"),
    [
        (np.nan, Status.NON_FINITE),
        (np.inf, Status.NON_FINITE),
        (-np.inf, Status.NON_FINITE),
        (9.0, Status.WRONG_RESULT),
    ],
)
def test_one_wrong_value_is_seen_before_and_after_timing(
    kernels: dict[str, Any], compared: Any, place: int, value: float, status: Status
) -> None:
    bench = DeviceBench(reference(), comparisons=compared)
    loaded = bench.load(kernels["right"], (), None, 1)
    bench.make_fresh(loaded)
    loaded.run()
    bench.check(loaded, (), OPTIONS)
    bench.driver.copy_in(loaded.outputs[0].address + 4 * place, np.array([value], "float32"))
    for check in (bench.check, bench.recheck):
        with pytest.raises(CandidateError, match=rf"out\[{place // 33}, {place % 33}\]") as caught:
            check(loaded, (), OPTIONS)
        assert caught.value.status is status


@pytest.mark.parametrize(("found", "is_right"), [(np.nan, True), (1.0, False), (np.inf, False)])
def test_not_a_number_has_to_be_none(kernels: dict[str, Any], compared: Any, found: float, is_right: bool) -> None:
    """Where that is what is expected."""
    whole = reference()
    whole.outputs[0][3, 3] = np.nan
    bench = DeviceBench(whole, comparisons=compared)
    loaded = bench.load(kernels["right"], (), None, 1)
    bench.make_fresh(loaded)
    loaded.run()
    bench.driver.copy_in(loaded.outputs[0].address + 4 * (3 * 33 + 3), np.array([found], "float32"))
    with contextlib.nullcontext() if is_right else pytest.raises(CandidateError, match=r"out\[3, 3\]"):
        bench.check(loaded, (), OPTIONS)


@pytest.mark.parametrize("found", [1e30, np.nan, np.inf])
def test_of_what_was_not_evaluated_all_is_right_that_is_finite(
    kernels: dict[str, Any], compared: Any, found: float
) -> None:
    whole = reference()
    whole.outputs[0][2] = np.nan
    bench = DeviceBench(dataclasses.replace(whole, is_part=True), comparisons=compared)
    loaded = bench.load(kernels["right"], (), None, 1)
    bench.make_fresh(loaded)
    loaded.run()
    bench.check(loaded, (), OPTIONS)
    bench.driver.copy_in(loaded.outputs[0].address + 4 * (2 * 33 + 5), np.array([found], "float32"))
    if np.isfinite(found):
        return bench.check(loaded, (), OPTIONS)
    with pytest.raises(CandidateError) as caught:
        bench.check(loaded, (), OPTIONS)
    assert caught.value.status is Status.NON_FINITE


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool", "float16"])
def test_other_types(dtype: str, compared: Any) -> None:
    x = te.placeholder((5, 33), dtype, name="x")
    func = te.create_prim_func([x, te.compute((5, 33), lambda i, j: x[i, 32 - j], name="out")])
    kernel, _ = TemplateCompiler().compile(func, default_config(func, TARGET), TARGET)
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 9, (5, 33)).astype(dtype)
    expected = values[:, ::-1].astype("float64" if dtype == "float16" else dtype)
    bench = DeviceBench(Reference((values,), (expected,), (0.0,), 0), comparisons=compared)
    loaded = bench.load(kernel, (), None, 1)
    bench.make_fresh(loaded)
    with pytest.raises(CandidateError):
        bench.check(loaded, (), OPTIONS)
    loaded.run()
    bench.check(loaded, (), OPTIONS)
    size = values.dtype.itemsize
    bench.driver.copy_in(loaded.outputs[0].address + 164 * size, np.array([1 - expected[4, 32]]).astype(dtype))
    with pytest.raises(CandidateError, match=r"out\[4, 32\]"):
        bench.check(loaded, (), OPTIONS)


def test_a_comparison_that_overlooks_something_is_not_used(
    kernels: dict[str, Any], comparisons: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has to refuse all of what was not written."""
    from autosched.runtime.cuda.comparisons import Comparisons

    bench = DeviceBench(reference(), comparisons=comparisons)
    monkeypatch.setattr(Comparisons, "n_wrong", lambda *given, **more: 0)
    loaded = bench.load(kernels["wrong"], (), None, 1)
    bench.make_fresh(loaded)
    loaded.run()
    with pytest.raises(CandidateError, match="out"):
        bench.check(loaded, (), OPTIONS)
    assert "the host compares" in caplog.text


def test_without_room_for_copies_the_host_compares(
    kernels: dict[str, Any], comparisons: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = DeviceBench(reference(), comparisons=comparisons)
    monkeypatch.setattr(bench, "_allocate", lambda size_bytes: None)
    loaded = bench.load(kernels["wrong"], (), None, 1)
    bench.make_fresh(loaded)
    loaded.run()
    with pytest.raises(CandidateError, match="out"):
        bench.check(loaded, (), OPTIONS)


def test_results_that_nobody_wrote_are_none(kernels: dict[str, Any], compared: Any) -> None:
    bench = DeviceBench(reference(), comparisons=compared)
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
