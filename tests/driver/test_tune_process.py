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

from autosched.records import RecordFilter, open_store
from tests.driver.programs import ROOT, is_running, start_tuner


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
    deadline = time.monotonic() + 15
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"workers {left} are left"
        time.sleep(0.05)


def searched(database: Path) -> list[str]:
    """The configurations that were measured, without those of last comparisons."""
    with open_store(database, write=False) as store:
        assert store.check() == []
        return [r.config.key for r in store.records() if "interleaved" not in r.measurement.how]


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_killed_tuning_keeps_what_it_reported_and_goes_on(tmp_path: Path, kills: int) -> None:
    database, rng, reported = tmp_path / "r.db", random.Random(kills), 0
    for _ in range(kills):
        tuner = start_tuner(database, 100)
        n, workers = read(tuner, rng.randrange(1, 6))
        assert workers and all(map(is_running, workers))
        time.sleep(rng.random() * 0.3)
        tuner.kill()
        assert tuner.stdout is not None
        said = tuner.stdout.read()  # with what was read ahead, which `communicate` would lose
        tuner.communicate()
        lines = [line.split()[0] for line in said.splitlines(keepends=True) if line.endswith("\n")]
        reported += max([n, *map(int, lines)])
        wait_gone(workers)
        assert len(searched(database)) >= reported
    tuner = start_tuner(database, 3)
    out, errors = tuner.communicate(timeout=100)
    assert tuner.returncode == 0 and out.endswith("finished 3\n"), errors
    configs = searched(database)
    assert len(configs) == len(set(configs)) >= reported + 3
    with open_store(database) as store:
        assert len(list(store.records(RecordFilter(winners_only=True)))) == 1


def test_ctrl_c_once_finishes_the_batch_and_names_the_winner(tmp_path: Path) -> None:
    tuner = start_tuner(tmp_path / "r.db", 1000)
    _, workers = read(tuner, 2)
    tuner.send_signal(signal.SIGINT)
    out, errors = tuner.communicate(timeout=60)
    assert tuner.returncode == 0 and "Traceback" not in errors, errors
    word, n = out.split()[-2:]
    assert word == "interrupted" and int(n) % 8 == 0
    assert len(searched(tmp_path / "r.db")) == int(n)
    with open_store(tmp_path / "r.db") as store:
        assert len(list(store.records(RecordFilter(winners_only=True)))) == 1
    wait_gone(workers)


def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    tuner = start_tuner(tmp_path / "r.db", 1000)
    _, workers = read(tuner, 1)
    for _ in range(2):
        tuner.send_signal(signal.SIGINT)
        time.sleep(0.05)
    begin = time.monotonic()
    out, errors = tuner.communicate(timeout=60)
    assert tuner.returncode == 0 and time.monotonic() - begin < 5, errors
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
    tuner.communicate(timeout=60)
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
    deadline = time.monotonic() + 60
    while not database.exists() or not searched(database):
        assert time.monotonic() < deadline and tuner.poll() is None, tuner.communicate()
        time.sleep(0.1)
    tuner.send_signal(number)
    _, errors = tuner.communicate(timeout=60)
    assert tuner.returncode == 130 and str(database) in errors and "Traceback" not in errors, errors
    assert ("Ctrl-C again ends it at once" in errors) == (number == signal.SIGINT)
    assert searched(database)
