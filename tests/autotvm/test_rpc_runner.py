"""TVM's RPC runners: AutoTVM and the meta schedule measure on the devices of a tracker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched import autotvm, rpc, te
from autosched import meta_schedule as ms
from autosched.errors import RPCError
from tests.autotvm.test_autotvm import N, matmul
from tests.rpc.parts import wait_until

assert matmul is not None, "its template is registered by the import"


@pytest.fixture(scope="module")
def tracker() -> Iterator[rpc.Tracker]:
    with rpc.Tracker("127.0.0.1", 0, silent=True) as found:
        place = "127.0.0.1", found.port
        with rpc.Server("127.0.0.1", 0, key="board", tracker_addr=place, silent=True):
            wait_until(lambda: bool(found.summary()["server_info"]))
            yield found


def test_autotvm(tracker: rpc.Tracker) -> None:
    task = autotvm.task.create("tests/matmul", args=(N, "float32"), target="llvm")
    runner = autotvm.RPCRunner("board", "127.0.0.1", tracker.port, number=1, repeat=3, cooldown_interval=0)
    tuner = autotvm.tuner.RandomTuner(task)
    results = []
    tuner.tune(3, autotvm.measure_option("local", runner), callbacks=[lambda _, __, found: results.extend(found)])
    assert len(results) == 3 and all(r.error_no == 0 and r.costs[0] > 0 for r in results)
    assert runner.n_parallel == 1 and tuner.best_config is not None


def test_a_tracker_that_is_not_there() -> None:
    with pytest.raises(RPCError, match="no server answers"):
        autotvm.RPCRunner("board", "127.0.0.1", 1)


def test_a_tracker_without_such_a_device(tracker: rpc.Tracker) -> None:
    with pytest.raises(RPCError, match="has no device 'phone'; there are: 'board'"):
        autotvm.RPCRunner("phone", "127.0.0.1", tracker.port)


def test_meta_schedule(tracker: rpc.Tracker, tmp_path: Path) -> None:
    a, k = te.placeholder((16, 64), name="A"), te.reduce_axis((0, 64), "k")
    b = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name="B")
    config = ms.runner.RPCConfig("127.0.0.1", tracker.port, "board", session_timeout_sec=60)
    found = ms.tune_tir(
        te.create_prim_func([a, b]), "llvm -num-cores=1", str(tmp_path), 3, runner=ms.runner.RPCRunner(config)
    )
    assert found.get_all_tuning_records()


def test_no_tracker_is_named() -> None:
    with pytest.raises(ValueError, match="names no tracker"):
        ms.runner.RPCConfig("127.0.0.1")
