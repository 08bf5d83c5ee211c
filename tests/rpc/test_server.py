"""The server: a session's crash, hang or flood ends that session alone, and its limits hold."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

import autosched as tvm
from autosched import rpc
from autosched.errors import InvalidValueError, RPCError, UsageError
from autosched.rpc.reach import Address, count_devices
from autosched.rpc.server import PREFIX
from tests.rpc.parts import SERVER, N, add_one, is_free, is_refused, raw_session, start, wait_until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_it_says_at_start_that_it_runs_what_it_is_sent(capfd: pytest.CaptureFixture[str]) -> None:
    with rpc.Server("127.0.0.1", 0):
        assert "can run machine code here" in capfd.readouterr().err


def test_a_crash_ends_one_session(server: rpc.Server, library: Path) -> None:
    with rpc.connect("127.0.0.1", server.port, "board") as good, rpc.connect("127.0.0.1", server.port, "board") as bad:
        os.kill(bad.info["pid"], signal.SIGSEGV)
        with pytest.raises(RPCError, match="SIGSEGV|closed"):
            for _ in range(100):
                bad.listdir()
                time.sleep(0.01)
        add_one(good, library)


def test_a_hang_ends_with_its_client(server: rpc.Server) -> None:
    frames = raw_session(server.port)
    frames.send({"op": "info"})
    pid = frames.receive()[0]["value"]["pid"]
    os.kill(pid, signal.SIGSTOP)  # it does nothing any more; the server still ends it
    frames.close()
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not alive(pid))
    wait_until(lambda: server.n_sessions == 0)


def test_a_session_that_takes_too_long_is_ended(library: Path) -> None:
    with rpc.Server("127.0.0.1", 0, key="board", silent=True) as server:
        session = rpc.connect("127.0.0.1", server.port, "board", session_timeout=1.5)
        add_one(session, library)
        with pytest.raises(RPCError, match="after 1.5 s|closed"):
            while True:
                session.listdir()
                time.sleep(0.05)
        assert not is_refused(server.port)


def test_files_have_a_limit(server: rpc.Server) -> None:
    with rpc.connect("127.0.0.1", server.port, "board") as session:
        with pytest.raises(RPCError, match="server's limit"):
            session.ask("open", name="big", size=1 << 27)
        session.ask("open", name="a", size=10)
        with pytest.raises(RPCError, match="grows beyond"):
            session.ask("append", name="a", raw=bytes((1 << 26) + 1))


def test_only_so_many_sessions() -> None:
    with rpc.Server("127.0.0.1", 0, silent=True, most_sessions=1) as server:
        first = rpc.connect("127.0.0.1", server.port)
        assert "1 sessions run here already" in is_refused(server.port)
        first.close()
        wait_until(lambda: server.n_sessions == 0)
        assert not is_refused(server.port)


def test_many_connections_that_say_nothing(server: rpc.Server, library: Path) -> None:
    """As many as are greeted at a time, and more: they are let go when they leave, and the server lives on."""
    for _ in range(2):
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        for sock in silent:
            sock.close()
    with rpc.connect("127.0.0.1", server.port, "board", connect_timeout=30) as session:
        add_one(session, library)


def test_wrong_keys_and_secrets(server: rpc.Server) -> None:
    with pytest.raises(RPCError, match="wrong key 'phone'.*'board'"):
        rpc.connect("127.0.0.1", server.port, "phone")
    rpc.connect("127.0.0.1", server.port).close()  # who names an address need not know what is there
    with pytest.raises(RPCError, match="wrong secret"):
        rpc.connect("127.0.0.1", server.port, "board", access=rpc.Access("another secret"))


def test_a_port_that_is_taken(server: rpc.Server) -> None:
    with pytest.raises(RPCError, match=f"port {server.port} of 127.0.0.1 cannot be used: Address already in use"):
        rpc.Server("127.0.0.1", server.port, server.port + 1)


def test_what_is_not_there_is_refused() -> None:
    for options in ({"is_proxy": True}, {"server_init_callback": print}, {"load_library": "x.so"}, {"timeout": 3}):
        with pytest.raises(InvalidValueError, match="not available"):
            rpc.Server("127.0.0.1", 0, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="need TLS"):
        rpc.Server("0.0.0.0", 0)
    with pytest.raises(UsageError, match="need TLS"):
        rpc.connect("198.51.100.7", 9090)


def test_the_port_is_free_after_kill_9(library: Path) -> None:
    process, port = start(SERVER)
    session = rpc.connect("127.0.0.1", port, "board")
    add_one(session, library)
    pid = session.info["pid"]
    folder = Path(f"/proc/{pid}/cwd").resolve().parent
    assert folder.name.startswith(PREFIX)
    process.kill()
    process.wait()
    wait_until(lambda: not alive(pid))
    assert is_free(port) and not folder.exists()
    with pytest.raises(RPCError, match="has ended"):
        session.listdir()


def test_a_client_that_is_killed_leaves_nothing(server: rpc.Server) -> None:
    code = f"""
import time
from autosched import rpc
session = rpc.connect("127.0.0.1", {server.port}, "board")
print(session.info["pid"], flush=True)
time.sleep(60)
"""
    process, pid = start(code)
    assert alive(pid)
    process.kill()
    process.wait()
    wait_until(lambda: not alive(pid))


def test_terminate_ends_sessions() -> None:
    server = rpc.Server("127.0.0.1", 0, silent=True)
    session = rpc.connect("127.0.0.1", server.port)
    array = tvm.nd.empty((N,), "float32", session.cpu())
    pid, threads = session.info["pid"], threading.active_count()
    server.terminate()
    server.terminate()
    wait_until(lambda: not alive(pid))
    assert is_free(server.port) and threading.active_count() <= threads
    with pytest.raises(RPCError):
        array.numpy()


def test_who_asks_for_a_list_of_devices_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    said = ""

    def has_told_of_the_wrong_key() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "wrong key" in said

    with rpc.Server("127.0.0.1", 0, key="board") as server:
        assert count_devices(Address.parse(f"127.0.0.1:{server.port}/board")) == 1
        with pytest.raises(RPCError, match="wrong key"):
            rpc.connect("127.0.0.1", server.port, "phone")
        wait_until(has_told_of_the_wrong_key)
    assert "not done here" not in said
