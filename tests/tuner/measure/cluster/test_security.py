"""Addresses, certificates, and the refusal of schedulers that anybody can reach."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from autosched.errors import AutoschedError, UsageError
from tests.tuner.measure.cluster.processes import SMALL, processes

pytest.importorskip("distributed", reason="dask.distributed is not installed")
from autosched.tuner.measure.cluster.measurer import Cluster  # noqa: E402
from autosched.tuner.measure.cluster.security import Access, check_access, is_loopback  # noqa: E402

pytestmark = pytest.mark.early


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("localhost", "tcp://localhost:8786"),
        ("tls://tuner.example:99", "tls://tuner.example:99"),
        ("[::1]:7", "tcp://[::1]:7"),
        ("tcp://[::1]", "tcp://[::1]:8786"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert Access(text).url == url


@pytest.mark.parametrize("text", ["", "tcp://", "http://a:1", "a:b", "a:0", "a:70000", "tcp://:8786", "ucx://a:1"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="no scheduler's address"):
        _ = Access(text).url


def test_loopback() -> None:
    assert all(map(is_loopback, ("tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://localhost:1", "tcp://[::1]:1")))
    assert not any(map(is_loopback, ("tcp://0.0.0.0:1", "tcp://10.0.0.1:1", "tcp://tuner.example:1", "tcp://[::]:1")))


def test_certificates_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="asks for no TLS"):
        _ = Access("tcp://127.0.0.1:1", ca=tmp_path / "ca.pem").url
    with pytest.raises(UsageError, match="no file"):
        Access("tls://127.0.0.1:1", ca=tmp_path / "ca.pem").security()
    with pytest.raises(UsageError, match="needs certificates"):
        check_access(Access("tls://127.0.0.1:1"))


def test_nobody_answers_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(AutoschedError, match=f"no scheduler answers at tcp://127.0.0.1:{port}: .*refused"):
        check_access(Access(f"127.0.0.1:{port}"))
    assert time.monotonic() - start < 8


def test_others_reach_it_means_refusal(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no TLS and others can reach it"):
        check_access(Access("tcp://198.51.100.7:8786"))  # refused before anything is sent there
    with processes(tmp_path) as running:
        address = running.scheduler(host="0.0.0.0")
        port = address.rpartition(":")[2]
        with pytest.raises(UsageError, match="no TLS and others can reach it") as caught:
            check_access(Access(f"127.0.0.1:{port}"))  # though we ourselves come by the loopback
        assert "--insecure" in str(caught.value)
        worker = running.worker(f"127.0.0.1:{port}", SMALL)
        assert worker.wait(60) == 2 and "--insecure" in running.said(worker)
        assert check_access(Access(f"127.0.0.1:{port}", insecure=True)) == f"tcp://127.0.0.1:{port}"
        trusting = running.worker(f"127.0.0.1:{port}", SMALL, "--insecure")
        running.wait_for(lambda: "has joined" in running.said(trusting))
        running.all[0].terminate()
        assert trusting.wait(60) == 1 and "is gone" in running.said(trusting)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    subprocess.run([*make, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    files = ("--tls-ca-file", str(cert), "--tls-cert", str(cert), "--tls-key", str(key))
    with processes(tmp_path) as running:
        address = running.scheduler("--protocol", "tls", *files, host="0.0.0.0")
        port = address.rpartition(":")[2]
        assert address.startswith("tls://")
        ours = ("--tls-ca", str(cert), "--tls-cert", str(cert), "--tls-key", str(key))
        worker = running.worker(f"tls://127.0.0.1:{port}", SMALL, *ours)
        access = Access(f"tls://127.0.0.1:{port}", cert, cert, key)
        with Cluster(access) as cluster:
            running.wait_for(lambda: "has joined" in running.said(worker))
            assert cluster.choose(SMALL).fingerprint.l2_bytes == 262144
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0, "Ctrl-C is how one stops it"
        with pytest.raises(AutoschedError, match="no scheduler answers"):
            check_access(Access(f"tcp://127.0.0.1:{port}", insecure=True))
