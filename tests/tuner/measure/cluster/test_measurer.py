"""A cluster of three worker processes with two kinds of device: tags hold, one may be killed and one may hang."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autosched.errors import AutoschedError, UsageError
from autosched.records.record import host_id
from autosched.target import Target, host_cpu
from autosched.task import Status
from autosched.tuner.measure import MeasureOptions
from tests.tuner.measure.cluster.canned import VARIABLE, make_file
from tests.tuner.measure.cluster.processes import LARGE, SMALL, Processes, processes, start_three
from tests.tuner.measure.kernels import config, matmul_task

pytest.importorskip("distributed", reason="dask.distributed is not installed")
from autosched.tuner.measure.cluster.measurer import Cluster, ClusterMeasurer, Patience  # noqa: E402
from autosched.tuner.measure.cluster.security import Access  # noqa: E402

pytestmark = pytest.mark.early

COMPILER = "tests.tuner.measure.cluster.canned:CannedCompiler"
OPTIONS = MeasureOptions(build_timeout_s=20, run_timeout_s=5, builders=1)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, str, list[subprocess.Popen[bytes]]]]:
    folder = tmp_path_factory.mktemp("cluster")
    make_file(folder / "kernels")
    with pytest.MonkeyPatch.context() as patch, processes(folder) as running:
        patch.setenv(VARIABLE, str(folder / "kernels"))
        address = running.scheduler()
        yield running, address, start_three(running, address, (SMALL, SMALL, LARGE))


@pytest.fixture(scope="module")
def cluster(found: Any) -> Iterator[Cluster]:
    with Cluster(Access(found[1]), Patience(silent_s=5, empty_s=2)) as cluster:
        yield cluster


def open_measurer(cluster: Cluster, target: str) -> ClusterMeasurer:
    return cluster.measurer(cluster.choose(target), OPTIONS, compiler=COMPILER)


def test_devices_are_told_apart(cluster: Cluster) -> None:
    devices = {device.fingerprint.l2_bytes: n for device, n in cluster.devices().items()}
    assert devices == {262144: 2, 4194304: 1}
    assert cluster.choose(LARGE).fingerprint.l2_bytes == 4194304
    assert cluster.choose(LARGE).target.fingerprint() == cluster.choose(LARGE).fingerprint
    for missing in ("cpu", "llvm -mcpu=x86-64-v3 -l2-bytes=1048576", "llvm -mcpu=x86-64-v3"):
        with pytest.raises(UsageError, match="choose one with --target") as caught:
            cluster.choose(missing)
        first = host_cpu().cache.l1_bytes // 1024
        assert f"caches {first}/256/" in str(caught.value) and "2 × " in str(caught.value)


def test_runs_stay_on_their_device_and_builds_go_anywhere(cluster: Cluster, found: Any) -> None:
    small, also_small, large = (worker.pid for worker in found[2])
    where = {}
    for name in (cluster.choose(SMALL).tag, cluster.choose(LARGE).tag, "autosched build"):
        futures = [cluster.client.submit(os.getpid, pure=False, resources={name: 1}) for _ in range(12)]
        where[name] = set(cluster.client.gather(futures))
    assert list(where.values()) == [{small, also_small}, {large}, {small, also_small, large}]


def test_each_candidate_has_its_own_outcome(cluster: Cluster) -> None:
    measurer = open_measurer(cluster, LARGE)
    kinds = ("right", "refused", "wild_store", "one_term_short", "build_error")
    status = {
        t.config["kind"]: t.measurement for t in measurer.measure(matmul_task(), [config(kind) for kind in kinds])
    }
    assert {kind: str(m.status) for kind, m in status.items()} == {
        "right": "ok", "refused": "invalid", "wild_store": "crash", "one_term_short": "wrong_result",
        "build_error": "build_error",
    }  # fmt: skip
    assert status["right"].how["host"] == host_id() and "build_s" in status["right"].how


def test_one_worker_is_killed_and_one_hangs(cluster: Cluster, found: Any) -> None:
    killed, _, hung = found[2]
    configs = [config("slow", rounds=n) for n in range(1, 9)]
    trials = []
    for trial in open_measurer(cluster, SMALL).measure(matmul_task(), configs):
        trials.append(trial)
        if len(trials) == 2:
            os.killpg(killed.pid, signal.SIGKILL)
            os.kill(hung.pid, signal.SIGSTOP)
    assert sorted(t.config["rounds"] for t in trials) == list(range(1, 9))
    assert all(t.measurement.status is Status.OK for t in trials)
    compared = open_measurer(cluster, SMALL).compare(matmul_task(), [config("right"), config("slow", rounds=9)])
    assert compared[0].ratio == 1.0 and compared[1].ratio > 2 and not compared[1].is_faster


def test_a_result_that_does_not_come_is_awaited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker has died with it: the scheduler has the work done again."""
    monkeypatch.setattr("distributed.wait", lambda futures, **rest: None)

    class Late:
        status, asked = "finished", 0

        def result(self, timeout: float) -> str:
            self.asked += 1
            if self.asked < 3:
                raise TimeoutError
            return "found"

    client = SimpleNamespace(as_current=contextlib.nullcontext)
    cluster: Any = SimpleNamespace(url="tcp://none:1", client=client, look_after=print)
    device: Any = SimpleNamespace(tag="one", target=Target("cpu"))
    late = Late()
    assert list(ClusterMeasurer(cluster, device, OPTIONS, COMPILER)._completed([late])) == [(late, "found")]
    assert late.asked == 3


def test_a_lost_result_is_not_a_lost_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there, and its worker died before it was fetched."""
    future: Any = SimpleNamespace(status="lost", result=lambda timeout: "found")
    monkeypatch.setattr("distributed.wait", lambda futures, **rest: looks.append(futures))
    looks: list[Any] = []

    class Client:
        @contextlib.contextmanager
        def as_current(self) -> Iterator[None]:
            yield
            if len(looks) == 3:
                future.status = "finished"

    cluster: Any = SimpleNamespace(url="tcp://none:1", client=Client(), look_after=print)
    device: Any = SimpleNamespace(tag="one", target=Target("cpu"))
    measurer = ClusterMeasurer(cluster, device, OPTIONS, COMPILER)
    assert list(measurer._completed([future])) == [(future, "found")] and len(looks) == 3


def test_nobody_is_left(cluster: Cluster, found: Any) -> None:
    os.killpg(found[2][1].pid, signal.SIGKILL)
    with pytest.raises(AutoschedError, match="no worker at tcp.* any more; waited 2 s"):
        list(open_measurer_of_gone(cluster).measure(matmul_task(), [config("right")]))


def open_measurer_of_gone(cluster: Cluster) -> ClusterMeasurer:
    from autosched.tuner.measure.cluster.device import this_device

    return cluster.measurer(this_device(SMALL, 1), OPTIONS, compiler=COMPILER)
