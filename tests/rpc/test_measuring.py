"""Candidates on remote devices: right and wrong ones, those that crash or hang, and servers that are lost."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from autosched import rpc
from autosched.errors import AutoschedError, RPCError, UsageError
from autosched.rpc.reach import Address, count_devices, open_session
from autosched.target import Target
from autosched.task import Status
from autosched.templates.cpu.winograd_pack import WinogradPack
from autosched.templates.pack import Pack
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.remote.measurer import RemoteMeasurer
from autosched.tuner.measure.remote.messages import (
    options_entry,
    pack_entries,
    read_options,
    read_packs,
)
from autosched.tuner.measure.remote.place import RemoteDevices
from tests.rpc.parts import SERVER, TRACKER, start, wait_until
from tests.tuner.measure.kernels import config, matmul_task

COMPILER = "tests.tuner.measure.kernels:KernelCompiler"
OPTIONS = MeasureOptions(build_timeout_s=10, run_timeout_s=2, builders=1, memory_limit_bytes=4 << 30)
TASK = matmul_task()


def open_measurer(*ports: int, absent_s: float = 60.0) -> RemoteMeasurer:
    openers = [partial(open_session, Address("127.0.0.1", port, "board")) for port in ports]
    return RemoteMeasurer("cpu", OPTIONS, openers, compiler=COMPILER, absent_s=absent_s)


@pytest.fixture(scope="module")
def measurer(server: rpc.Server) -> Iterator[RemoteMeasurer]:
    with open_measurer(server.port) as found:
        yield found


@pytest.mark.parametrize(
    ("kind", "status", "text"),
    [
        ("refused", Status.INVALID, "tile 7 does not fit"),
        ("packed", Status.RUN_ERROR, "packed by Transposed cannot be measured remotely"),
        ("needs_python", Status.RUN_ERROR, "PyErr_SetString"),
        ("other_arguments", Status.RUN_ERROR, "other arguments than the task's function"),
        ("scratch_memory", Status.OUT_OF_MEMORY, "100. GiB"),
        ("one_term_short", Status.WRONG_RESULT, "C[5, 7]"),
        ("makes_nan", Status.NON_FINITE, "1536 of 1536 values"),
        ("beside_output", Status.WRONG_RESULT, "beside its output 'C'"),
        ("into_input", Status.WRONG_RESULT, "its input 'A'"),
        ("works_once", Status.WRONG_RESULT, "C[0, 0]"),
        ("wild_store", Status.CRASH, "SIGSEGV"),
        ("endless", Status.TIMEOUT, "no result after 2 s"),
    ],
)
def test_a_bad_candidate_costs_itself_alone(measurer: RemoteMeasurer, kind: str, status: Status, text: str) -> None:
    trials = {t.config["kind"]: t.measurement for t in measurer.measure(TASK, [config(kind), config("right")])}
    assert trials[kind].status is status, trials[kind].error
    assert text in trials[kind].error and trials[kind].times_s == ()
    assert trials["right"].status is Status.OK, trials["right"].error


def test_a_good_candidate_has_times_and_says_how_they_came(measurer: RemoteMeasurer) -> None:
    (trial,) = measurer.measure(TASK, [config("right")])
    found = trial.measurement
    assert found.status is Status.OK and len(found.times_s) >= 3 and found.checked_against == "float64 reference"
    assert found.how["threads"] == 1 and found.how["cache"] == "warm" and found.how["build_s"] > 0


def test_comparison_drops_failures(measurer: RemoteMeasurer) -> None:
    configs = [config("slow", rounds=5), config("makes_nan"), config("right")]
    baseline, failure, other = measurer.compare(TASK, configs, rounds=6)
    assert baseline.ratio == 1.0 and failure.measurement.status is Status.NON_FINITE and other.measurement.is_ok


def test_packs_and_options_come_back_as_they_were() -> None:
    packs = (Pack((40, 3, 3), (16, 0, 0), (0, 2, 3, 1)), None, WinogradPack((64, 8, 3, 3), 4, 32, 2))
    assert read_packs(pack_entries(packs)) == packs
    assert read_options(options_entry(OPTIONS)) == OPTIONS


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"what": "sing"}, "nothing is measured by 'sing'"),
        ({}, "KeyError"),
        ({"what": "kernel", "manifest": {"backend": "cpu"}}, "KeyError"),
        ({"what": "reference", "key": "k", "inputs": [9], "outputs": []}, "no array 9"),
        ({"what": "run", "entries": [{"kernel": 99}], "reference": "x", "options": {}}, "99"),
    ],
)
def test_requests_that_are_none(server: rpc.Server, request_: dict[str, object], text: str) -> None:
    with rpc.connect("127.0.0.1", server.port, "board") as session:
        with pytest.raises(AutoschedError, match=text):
            session.ask("measure", **request_)
        assert session.ask("list") == []


def test_a_device_that_goes_costs_what_it_was_measuring() -> None:
    (first, port_1), (second, port_2) = (start(SERVER) for _ in range(2))
    try:
        with open_measurer(port_1, port_2) as measurer:
            trials = []
            for trial in measurer.measure(TASK, [config("slow", rounds=20 + i) for i in range(6)]):
                trials.append(trial)
                if len(trials) == 2:
                    first.kill()
            assert len(trials) == 6 and all(t.is_ok for t in trials), [t.measurement.error for t in trials]
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def test_no_device_is_left() -> None:
    process, port = start(SERVER)
    with open_measurer(port, absent_s=0.5) as measurer:
        process.kill()
        process.wait()
        with pytest.raises(AutoschedError, match="no remote device is left"):
            list(measurer.measure(TASK, [config("right")]))


def test_a_server_that_comes_back_is_found_again(server: rpc.Server) -> None:
    process, port = start(SERVER)
    again: list[subprocess.Popen[str]] = []
    revive = SERVER.replace('"127.0.0.1", 0,', f'"127.0.0.1", {port}, {port + 1},')

    def bring_back() -> None:
        time.sleep(1.0)
        again.append(start(revive)[0])

    try:
        with open_measurer(port) as measurer:
            process.kill()
            process.wait()
            threading.Thread(target=bring_back).start()
            (trial,) = measurer.measure(TASK, [config("right")])
        assert trial.is_ok, trial.measurement.error
    finally:
        wait_until(lambda: bool(again))
        for one in again:
            one.kill()
            one.wait()


def test_devices_of_a_tracker() -> None:
    tracker, tracker_port = start(TRACKER)
    servers = [start(SERVER, str(tracker_port))[0] for _ in range(2)]
    address = Address("127.0.0.1", tracker_port, "board")
    try:
        wait_until(lambda: count_of(address) == 2)
        with pytest.raises(UsageError, match="is a tracker"):
            open_session(Address("127.0.0.1", tracker_port))
        there = RemoteDevices([address])
        assert len(there.openers) == 2 and there.device.fingerprint == Target("cpu").fingerprint()
        with RemoteMeasurer("cpu", OPTIONS, there.openers, compiler=COMPILER) as measurer:
            assert all(t.is_ok for t in measurer.measure(TASK, [config("right", again=i) for i in range(4)]))
        wait_until(lambda: free_of(tracker_port) == 2)
    finally:
        for process in (tracker, *servers):
            process.kill()
            process.wait()


def count_of(address: Address) -> int:
    try:
        return count_devices(address)
    except RPCError:
        return 0


def free_of(port: int) -> int:
    return int(rpc.connect_tracker("127.0.0.1", port).summary()["queue_info"]["board"]["free"])


@pytest.mark.slow
def test_kills_at_random_moments() -> None:
    """kill -9 of servers and of the tracker, and sessions ended: every trial is right or lost, and ports are free."""
    rng = random.Random(0)
    tracker, tracker_port = start(TRACKER)
    servers = [start(SERVER, str(tracker_port)) for _ in range(2)]
    address = Address("127.0.0.1", tracker_port, "board")
    wait_until(lambda: count_of(address) == 2)
    stop = threading.Event()

    def kill_some() -> None:
        for _ in range(30):
            if stop.wait(rng.uniform(0.1, 0.8)):
                return
            i = rng.randrange(2)
            process, port = servers[i]
            process.send_signal(signal.SIGKILL)
            process.wait()
            revived = SERVER.replace('"127.0.0.1", 0,', f'"127.0.0.1", {port}, {port + 1},')
            servers[i] = start(revived, str(tracker_port))

    killer = threading.Thread(target=kill_some)
    try:
        killer.start()
        openers = [partial(open_session, address, None, 60.0)] * 2
        found = []
        with RemoteMeasurer("cpu", OPTIONS, openers, compiler=COMPILER) as measurer:
            while killer.is_alive():
                kinds = [
                    config(rng.choice(("right", "slow", "one_term_short")), again=len(found) + i) for i in range(4)
                ]
                found += list(measurer.measure(TASK, kinds))
        wrong = [t for t in found if t.is_ok == (t.config["kind"] == "one_term_short")]
        assert all(t.measurement.status is Status.LOST for t in wrong), [t.measurement.error for t in wrong]
        assert sum(t.is_ok for t in found) > 10
    finally:
        stop.set()
        killer.join()
        for process in (tracker, *(process for process, _ in servers)):
            process.kill()
            process.wait()
