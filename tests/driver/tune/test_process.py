"""Tuning as a process: killed, interrupted, two at once; what it reported is kept and nothing is left running."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records import RecordFilter, open_store
from benchmarks.models import get_model
from tests.driver.programs import ROOT, is_running, start_tuner

pytestmark = pytest.mark.early


def read(tuner: subprocess.Popen[str], until: int) -> tuple[int, list[int]]:
    """Read what a tuner says until it has measured so many trials; gives their number and its workers."""
    assert tuner.stdout is not None
    workers: list[int] = []
    for line in tuner.stdout:
        n, _, *pids = line.split()
        workers = [int(pid) for pid in pids]
        if int(n) >= until:
            return int(n), workers
    raise AssertionError(tuner.communicate()[1])


def wait_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"workers {left} are left"
        time.sleep(0.05)


def searched(database: Path) -> list[str]:
    """The configurations that were measured, without those of last comparisons."""
    with open_store(database, write=False) as store:
        assert store.check() == []
        found = (r for r in store.records() if "interleaved" not in r.measurement.how)
        return [f"{r.config.key} {r.workload.key}" for r in found]


def has_trials(database: Path) -> bool:
    """Whether a tuning that runs has stored something."""
    try:
        return bool(searched(database))
    except RecordError:  # not there, or just being made
        return False


@pytest.mark.parametrize(("kills", "budget"), [(1, 10), pytest.param(30, 200, marks=pytest.mark.slow)])
@pytest.mark.timeout(1500)
def test_a_killed_tuning_keeps_what_it_reported_and_spends_the_rest(tmp_path: Path, kills: int, budget: int) -> None:
    """At random moments, workers starting included; the same command then goes on, and no flag says so."""
    database, rng, reported = tmp_path / "r.db", random.Random(kills), 0
    for _ in range(kills):
        tuner = start_tuner(database, budget)
        n, workers = read(tuner, rng.randrange(0, 5))
        assert workers and all(map(is_running, workers))
        time.sleep(rng.random() * 0.4)
        tuner.kill()
        assert tuner.stdout is not None
        said = tuner.stdout.read()  # with what was read ahead, which `communicate` would lose
        tuner.communicate()
        lines = [line.split()[0] for line in said.splitlines(keepends=True) if line.endswith("\n")]
        reported += max([n, *map(int, lines)])
        wait_gone(workers)
        if reported or has_trials(database):
            assert len(searched(database)) >= reported
    before = len(searched(database)) if has_trials(database) else 0
    assert before < budget, "the kills came too late for what this test is about"
    tuner = start_tuner(database, budget)
    out, errors = tuner.communicate(timeout=200)
    assert tuner.returncode == 0 and out.endswith(f"finished {budget - before}\n"), errors
    configs = searched(database)
    assert len(configs) == len(set(configs)) == budget
    with open_store(database) as store:
        assert len(list(store.records(RecordFilter(winners_only=True)))) == 1
    again = start_tuner(database, 3)  # that tuning has come to its end: this is a new one
    assert again.communicate(timeout=200)[0].endswith("finished 3\n")


def test_ctrl_c_once_finishes_the_batch_and_names_the_winner(tmp_path: Path) -> None:
    tuner = start_tuner(tmp_path / "r.db", 1000)
    _, workers = read(tuner, 2)
    tuner.send_signal(signal.SIGINT)
    out, errors = tuner.communicate(timeout=200)
    assert tuner.returncode == 0 and "Traceback" not in errors, errors
    word, n = out.split()[-2:]
    assert word == "interrupted" and int(n) % 8 == 0
    assert len(searched(tmp_path / "r.db")) == int(n)
    with open_store(tmp_path / "r.db") as store:
        (winner,) = store.records(RecordFilter(winners_only=True))
    assert "complete" not in winner.measurement.how and winner.measurement.how["session_s"] > 0
    wait_gone(workers)


def test_ctrl_c_twice_leaves_the_winners_out(tmp_path: Path) -> None:
    tuner = start_tuner(tmp_path / "r.db", 1000)
    _, workers = read(tuner, 1)
    for _ in range(2):
        tuner.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, errors = tuner.communicate(timeout=200)
    assert tuner.returncode == 0, errors
    word, n = out.split()[-2:]
    assert word == "interrupted" and len(searched(tmp_path / "r.db")) == int(n) >= 1
    with open_store(tmp_path / "r.db") as store:
        assert not list(store.records(RecordFilter(winners_only=True)))
    wait_gone(workers)


@pytest.mark.slow
def test_a_terminated_tuning_leaves_no_workers(tmp_path: Path) -> None:
    tuner = start_tuner(tmp_path / "r.db", 1000)
    n, workers = read(tuner, 1)
    tuner.terminate()
    tuner.communicate(timeout=200)
    assert tuner.returncode == -signal.SIGTERM and len(searched(tmp_path / "r.db")) >= n
    wait_gone(workers)


@pytest.mark.slow
def test_two_tunings_share_a_database(tmp_path: Path) -> None:
    database = tmp_path / "r.db"
    tuners = [start_tuner(database, 12) for _ in range(2)]
    for tuner in tuners:
        out, errors = tuner.communicate(timeout=120)
        assert tuner.returncode == 0 and out.endswith("finished 12\n"), errors
    with open_store(database) as store:
        assert store.check() == [] and len(searched(database)) == 24
        assert {r.session for r in store.records()} == {
            r.session for r in store.records(RecordFilter(winners_only=True))
        }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model file of one dense layer."""
    onnx = pytest.importorskip("onnx")
    import numpy as np

    weight = np.random.default_rng(0).standard_normal((64, 48), dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["h"]), onnx.helper.make_node("Relu", ["h"], ["y"])],
        "small",
        [onnx.helper.make_tensor_value_info("x", 1, [32, 64])],
        [onnx.helper.make_tensor_value_info("y", 1, [32, 48])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    yield path


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_command_ends_with_130_and_has_saved(
    model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    database = tmp_path / "r.db"
    command = [sys.executable, "-m", "autosched", "tune", str(model), "--db", str(database), "--threads", "1"]
    tuner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    deadline = time.monotonic() + 200
    while not has_trials(database):
        assert time.monotonic() < deadline and tuner.poll() is None, tuner.communicate()
        time.sleep(0.1)
    tuner.send_signal(number)
    _, errors = tuner.communicate(timeout=200)
    assert tuner.returncode == 130 and str(database) in errors and "Traceback" not in errors, errors
    assert ("Ctrl-C again ends it at once" in errors) == (number == signal.SIGINT)
    assert searched(database)


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
kilobytes = int(sys.argv.pop())
from autosched.cli.process import run_process
import autosched.driver, autosched.records.sql
resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024,) * 2)
raise SystemExit(run_process(sys.argv[1:]))
"""


def tune_limited(folder: Path, kilobytes: int, *more: str) -> subprocess.CompletedProcess[str]:
    """Tune a small model where no file may grow beyond a size: the disk is full there."""
    model = folder / "m.onnx"
    if not model.exists():
        model.write_bytes(get_model("mlp", 1).SerializeToString())
    words = ["tune", str(model), "--db", str(folder / "r.db"), "--threads", "1", *more, str(kilobytes)]
    command = [sys.executable, "-c", LIMITED, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=200)


@pytest.mark.slow
def test_a_full_disk_is_said_clearly_and_loses_at_most_the_batch(tmp_path: Path) -> None:
    """The database grows up to the limit: what was reported is there, and with more room the tuning goes on."""
    full = tune_limited(tmp_path, 1000, "--trials", "500", "--strategy", "random", "--verify", "task")
    assert full.returncode in (1, 2), full.stderr
    last = full.stderr.strip().splitlines()[-1]
    assert "Traceback" not in full.stderr and ("disk" in full.stderr or "File too large" in full.stderr), last
    kept = searched(tmp_path / "r.db")
    more = tune_limited(tmp_path, 1 << 20, "--trials", str(len(kept) + 8), "--strategy", "random", "--verify", "task")
    assert more.returncode == 0, more.stderr
    after = searched(tmp_path / "r.db")
    assert set(kept) <= set(after) and len(after) == len(set(after)) == len(kept) + 8


@pytest.mark.slow
def test_a_clock_that_jumps_back_confuses_nothing(tmp_path: Path) -> None:
    """The second run's clock is an hour behind: its budget is what it is, and its winner is the one that counts."""
    database = tmp_path / "r.db"
    first = start_tuner(database, 6)
    assert first.communicate(timeout=200)[0].endswith("finished 6\n")
    second = start_tuner(database, 6, before="import time; real = time.time; time.time = lambda: real() - 3600")
    out, errors = second.communicate(timeout=200)
    assert out.endswith("finished 6\n") and second.returncode == 0, errors
    with open_store(database) as store:
        records = list(store.records())
        winners = [r for r in records if r.is_winner]
    assert [r.session for r in winners] == [records[0].session, records[-1].session]
    assert winners[0].session != winners[1].session and winners[-1].time == max(r.time for r in records)


WATCHED = """
import os, socket, sys
opened = []
def watch(event, args):
    if event == "socket.__new__" and args[1] != socket.AF_UNIX or event in ("socket.connect", "socket.bind"):
        opened.append((event, args))
sys.addaudithook(watch)
import autosched
from pathlib import Path
from autosched.driver import TuneOptions
from autosched.tuner.measure.process import _ALIVE
from tests.driver.programs import matmul
if __name__ == "__main__":
    def sockets(pid):  # but for pairs of this machine's own
        own = {f"socket:[{line.split()[6]}]" for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
        links = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
        return [x for x in (os.readlink(link) for link in links if os.path.lexists(link))
                if x.startswith("socket:") and x not in own]
    os.fork = lambda: sys.exit("forked")
    seen = []
    def look(report):
        if report.n_trials == 3:
            seen.extend(("parent", x) for x in sockets(os.getpid()))
            for worker in list(_ALIVE):
                seen.extend(("worker", x) for x in sockets(worker.pid))
                words = Path(f"/proc/{worker.pid}/cmdline").read_bytes().split(bytes(1))
                assert words[1] == b"-c", words  # a new interpreter, or a fork of one
                assert b"measure.worker" in words[2] or b"measure.nursery" in words[2], words
            print("looked", len(_ALIVE), flush=True)
    autosched.tune(matmul(), "cpu", records=sys.argv[1], progress=look, options=TuneOptions(trials=4, threads=1))
    print("sockets", seen, opened, flush=True)
"""


def test_local_tuning_opens_no_network_socket_and_never_forks_the_caller(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WATCHED, str(tmp_path / "r.db")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=200)
    assert run.returncode == 0, run.stderr
    looked, sockets = run.stdout.splitlines()[-2:]
    assert looked.startswith("looked ") and int(looked.split()[1]) >= 2
    assert sockets == "sockets [] []", "network sockets are not needed to tune here"
