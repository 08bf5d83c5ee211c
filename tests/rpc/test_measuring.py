"""Candidates on remote devices: right and wrong ones, those that crash or hang, and servers that are lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autosched import rpc
from autosched.cli import main
from autosched.errors import AutoschedError, RPCError, UsageError
from autosched.rpc.reach import Address, count_devices, open_session
from autosched.target import Target
from autosched.task import Status
from autosched.templates.pack import Pack
from autosched.templates.winograd_pack import WinogradPack
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.remote.measurer import RemoteMeasurer
from autosched.tuner.measure.remote.messages import (
    options_entry,
    pack_entries,
    read_options,
    read_packs,
)
from autosched.tuner.measure.remote.place import RemoteDevices
from tests.rpc.parts import SERVER, TRACKER, is_free, save_model, start, wait_until
from tests.tuner.measure.kernels import config, matmul_task

COMPILER = "tests.tuner.measure.kernels:KernelCompiler"
OPTIONS = MeasureOptions(build_timeout_s=10, run_timeout_s=2, builders=1, memory_limit_bytes=4 << 30)
TASK = matmul_task()


def open_measurer(*ports: int, absent_s: float = 60.0) -> RemoteMeasurer:
    openers = [partial(open_session, Address("127.0.0.1", port, "board")) for port in ports]
    return RemoteMeasurer("cpu", OPTIONS, openers, compiler=COMPILER, absent_s=absent_s)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device counts as gone after half a second, and is looked after every fifth of one."""
    monkeypatch.setattr("autosched.tuner.measure.remote.measurer._LOOKS_S", 0.2)
    monkeypatch.setattr("autosched.tuner.measure.remote.runner._RECONNECT_S", (0.1, 0.2, 0.2))


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
        ("scratch_memory", Status.OUT_OF_MEMORY, "107374182976 bytes of memory are needed"),
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
        time.sleep(0.5)
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
def test_kills_at_random_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 of servers, the tracker and the tuner: nothing is recorded wrongly, and the ports are free again."""
    rng = random.Random(0)
    model, where = save_model(tmp_path / "model.onnx"), tmp_path / "records.db"
    tracker, tracker_port = start(TRACKER)
    servers = [start(SERVER, str(tracker_port)) for _ in range(2)]
    address = Address("127.0.0.1", tracker_port, "board")
    command = ["tune", str(model), "--remote", str(address), "--trials", "100000", "--until", "0", "--db", str(where)]

    def tune() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "autosched", *command, "--threads", "1", "-q"], stderr=errors)

    def ended(process: subprocess.Popen[Any]) -> None:
        process.kill()
        process.wait()

    with open(tmp_path / "errors", "wb") as errors:
        wait_until(lambda: count_of(address) == 2)
        client, counts = tune(), []
        try:
            for _ in range(30):
                time.sleep(rng.uniform(0.5, 4.0))
                counts.append(trials_and_failures(where, capsys)[0])
                match rng.choice(("server", "server", "tracker", "client")):
                    case "server":
                        i = rng.randrange(2)
                        process, port = servers[i]
                        ended(process)
                        assert is_free(port)
                        again = SERVER.replace('"127.0.0.1", 0,', f'"127.0.0.1", {port}, {port + 1},')
                        servers[i] = start(again, str(tracker_port))
                    case "tracker":
                        ended(tracker)
                        assert is_free(tracker_port)
                        tracker, _ = start(TRACKER, str(tracker_port))
                        wait_until(lambda: count_of(address) == 2)
                    case "client":
                        ended(client)
                        client = tune()
                if client.poll() is not None:  # it said that no device was there
                    client = tune()
            wait_until(lambda: trials_and_failures(where, capsys)[0] > counts[-1], within_s=120)  # it still gets on
        finally:
            for process in (client, tracker, *(process for process, _ in servers)):
                ended(process)
    assert counts == sorted(counts), "nothing that was recorded is lost"
    trials, failures = trials_and_failures(where, capsys)
    assert trials > 20 and failures == 0


def trials_and_failures(where: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """How many trials a database holds, and how many of them are failures of their candidates."""
    if not where.exists():
        return 0, 0
    capsys.readouterr()
    assert main(["logs", "list", "--db", str(where), "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return sum(row["n_trials"] for row in rows), sum(row["n_failed"] for row in rows)


def test_a_device_of_another_architecture_gets_its_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine code that calls kernels there is that of the device, as the kernels are."""
    machines = []

    class Runner:
        is_here = False

        def __init__(self, opener: object, options: object, native: Callable[[], bytes]):
            machines.append(int.from_bytes(native()[18:20], "little"))  # ELF's e_machine

        def close(self) -> None: ...

    monkeypatch.setattr("autosched.tuner.measure.remote.measurer.RemoteRunner", Runner)
    for triple in ("aarch64", "x86_64"):
        with RemoteMeasurer(f"llvm -mtriple={triple}-linux-gnu -num-cores=1", None, [lambda: None]):  # type: ignore[list-item, return-value]
            pass
    assert machines == [183, 62]
