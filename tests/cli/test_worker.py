"""`autosched worker` and `tune --on`: what is refused, and a whole tuning on three workers of which two are lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.cli.measuring import cannot_run_here
from autosched.records import RecordFilter, open_store
from autosched.target import Target
from autosched.tuner.measure.cluster.device import this_device
from tests.cli.models import dense_file
from tests.tuner.measure.cluster.processes import LARGE, SMALL, processes, start_three

pytest.importorskip("distributed", reason="dask.distributed is not installed")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["worker"], 2, "Missing argument 'ADDRESS'"),
        (["worker", "http://x"], 2, "is no scheduler's address"),
        (["worker", "198.51.100.7:8786"], 2, "others can reach it"),
        (["worker", "tls://127.0.0.1:1"], 2, "needs certificates"),
        (["worker", "127.0.0.1:1", "--builders", "0"], 2, "--builders"),
        (["worker", "127.0.0.1:1", "--target", "abacus"], 2, "abacus"),
        (["worker", "127.0.0.1:1", "--target", "cuda"], 2, "a worker measures on its CPU"),
        (["worker", "tls://127.0.0.1:1", "--tls-ca", "none.pem"], 2, "no file none.pem"),
        (["worker", f"127.0.0.1:{free_port()}"], 1, "no scheduler answers at tcp://127.0.0.1:"),
    ],
)
def test_what_a_worker_refuses(words: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    said = capsys.readouterr()
    assert text in said.err and said.out == "" and "Traceback" not in said.err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--insecure"], 2, "--insecure does nothing without --on"),
        (["--tls-ca", "ca.pem"], 2, "--tls-ca does nothing without --on"),
        (["--on", "x:y"], 2, "is no scheduler's address"),
        (["--on", "198.51.100.7"], 2, "others can reach it"),
        (["--on", f"127.0.0.1:{free_port()}"], 1, "no scheduler answers at"),
    ],
)
def test_what_tune_refuses(
    words: list[str], code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = dense_file(tmp_path / "m.onnx")
    assert main(["tune", str(model), "--db", str(tmp_path / "r.db"), *words]) == code
    assert text in capsys.readouterr().err


def test_models_are_judged_here_only_on_the_same_kind_of_device() -> None:
    here = this_device(threads=1)
    assert cannot_run_here(here, 1) == ""
    assert "threads, and this machine has" in cannot_run_here(here, 4096)
    assert "another kind of device" in cannot_run_here(this_device(SMALL), 1)


@pytest.mark.slow
def test_a_tuning_ends_though_one_worker_is_killed_and_one_hangs(tmp_path: Path) -> None:
    model, database = dense_file(tmp_path / "m.onnx"), tmp_path / "r.db"
    open_store(database).close()

    def n_records() -> int:
        with open_store(database, write=False) as store:
            return store.count()

    with processes(tmp_path) as running:
        address = running.scheduler()
        killed, _, hung = start_three(running, address, (SMALL, SMALL, LARGE))
        command = ["tune", str(model), "--on", address, "--target", SMALL, "--threads", "1", "--trials", "32"]
        tuner = subprocess.Popen(
            [sys.executable, "-m", "autosched", *command, "--db", str(database), "--strategy", "random"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        running.wait_for(lambda: n_records() >= 5 or tuner.poll() is not None, 120)
        os.killpg(killed.pid, signal.SIGKILL)
        os.kill(hung.pid, signal.SIGSTOP)
        out, _ = tuner.communicate(timeout=200)
    assert tuner.returncode == 0, out
    assert "winners are judged task by task, not inside the model: it is for" in out
    device = Target(SMALL).fingerprint()
    with open_store(database) as store:
        records = list(store.records())
        searched = [r.config for r in records if "interleaved" not in r.measurement.how]
        assert len(searched) == len(set(searched)) == 32, "all records, none twice"
        assert {r.device for r in records} == {device} and not {str(r.measurement.status) for r in records} - {
            "ok",
            "invalid",
        }
        assert len(list(store.records(RecordFilter(winners_only=True)))) == 1


HOOK = """
import os, sys
def note(event, args):
    if event in ("socket.bind", "socket.connect"):
        with open(os.environ["AUTOSCHED_TEST_SOCKETS"], "a") as file:
            file.write(f"{event} {args[1:]}\\n")
sys.addaudithook(note)
"""


@pytest.mark.slow
def test_local_tuning_opens_no_socket(tmp_path: Path) -> None:
    model, noted = dense_file(tmp_path / "m.onnx"), tmp_path / "sockets"
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join([str(tmp_path / "hook"), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "AUTOSCHED_TEST_SOCKETS": str(noted)}
    command = [sys.executable, "-m", "autosched", "tune", str(model), "--trials", "4", "--db", str(tmp_path / "r.db")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert not noted.exists(), noted.read_text()
    probe = [sys.executable, "-c", "import socket; socket.socket().bind(('127.0.0.1', 0))"]
    subprocess.run(probe, env=environment, check=True)
    assert noted.read_text().startswith("socket.bind"), "the hook sees sockets"
