"""`autosched rpc` and `--remote`: a server in another process runs, measures and tunes what the commands send."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from autosched.env import child_environment
from tests.rpc.parts import save_model, wait_until


def serve(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server or tracker, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "autosched", "rpc", *arguments, "--port", "0"], stderr=subprocess.PIPE, text=True,
        env=child_environment(),
    )  # fmt: skip
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found, line
    return process, found[0]


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    process, address = serve("serve", "--key", "board")
    yield f"{address}/board"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("rpc") / "model.onnx")


def test_run_there_gives_what_it_gives_here(place: str, model: Path, tmp_path: Path) -> None:
    here, there, built = (tmp_path / name for name in ("here.npz", "there.npz", "model.asx"))
    assert main(["run", str(model), "-o", str(here), "-q"]) == 0
    assert main(["run", str(model), "-o", str(there), "-q", "--remote", place.partition("/")[0]]) == 0
    np.testing.assert_array_equal(np.load(there)["y"], np.load(here)["y"])
    assert main(["build", str(model), "-o", str(built), "-q"]) == 0
    assert main(["run", str(built), "--check", str(here), "-q", "--remote", place, "--threads", "1"]) == 0


def test_bench_there(place: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--runs", "12", "--warmup", "0.01s", "--threads", "1", "-f", "json"]
    assert main(["bench", str(model), "--remote", place, *options]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["threads"] == 1 and row["n_runs"] >= 12 and row["median_s"] > 0 and row["cpu_s"] is None


def test_tune_there(place: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "there.db"
    assert main(["tune", str(model), "--remote", place, "--trials", "6", "--threads", "1", "--db", str(db)]) == 0
    assert "measuring on 1 × " in capsys.readouterr().err
    assert main(["logs", "list", "--db", str(db), "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["n_trials"] >= 6 and row["n_failed"] == 0


def test_devices_of_a_tracker(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker, address = serve("track")
    server, own = serve("serve", "--key", "dev", "--tracker", address)
    try:

        def listed() -> list[dict[str, object]]:
            assert main(["rpc", "devices", address, "-f", "json"]) == 0
            found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
            return found

        assert main(["run", str(model), "--remote", f"{address}/dev2"]) == 1  # at once: nothing is waited for
        assert f"the tracker at {address}/dev2 has no device 'dev2'" in capsys.readouterr().err
        wait_until(lambda: bool(listed()))
        assert listed() == [{"key": "dev", "address": own, "state": "free", "waiting": 0}]
    finally:
        for process in (server, tracker):
            process.terminate()
            assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "{model}", "--remote", "nowhere"], "is no remote device"),
        (["run", "{model}", "--remote", "127.0.0.1:99999"], "is no remote device"),
        (["run", "{model}", "--remote", "::1:80"], "brackets"),
        (["run", "{model}", "--remote", "127.0.0.1:1"], "no server answers"),
        (["run", "{model}", "--remote", "{other}"], "wrong key"),
        (["run", "{model}", "--remote", "192.0.2.1:9091"], "other machines need TLS"),
        (["run", "{model}", "--tls-ca", "ca.pem"], "do nothing without --remote"),
        (["run", "{model}", "--remote", "{place}", "--checks"], "--checks runs on this machine"),
        (["bench", "{model}", "--remote", "{place}", "--profile"], "--remote measures models alone"),
        (["bench", "{model}", "--remote", "{place}", "--with", "torch"], "--remote measures models alone"),
        (["tune", "{model}", "--remote", "{place}", "--on", "tcp://127.0.0.1:1"], "exclude each other"),
        (["tune", "{model}", "--remote", "{place}", "--as", "throughput"], "leave out --remote"),
        (["tune", "{model}", "--remote", "{place}", "--target", "llvm -mcpu=x86-64-v2"], "exclude each other"),
        (["tune", "{model}", "--insecure"], "does nothing without"),
        (["rpc", "devices", "127.0.0.1:1"], "no server answers"),
        (["rpc", "devices", "{place}"], "is not done here"),
        (["rpc", "serve", "--host", "0.0.0.0"], "other machines need TLS"),
        (["rpc", "serve", "--key", "a b"], "is no key"),
    ],
)
def test_wrong_uses(
    arguments: list[str], text: str, place: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([part.format(model=model, place=place, other=place[:-5] + "phone") for part in arguments]) in (1, 2)
    assert text in capsys.readouterr().err
