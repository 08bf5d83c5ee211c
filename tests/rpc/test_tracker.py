"""The tracker: devices by key, priority, fairness, and what it takes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched import rpc
from autosched.errors import RPCError
from autosched.rpc.tracker import _Device, _Pool, _Request
from tests.rpc.parts import SERVER, TRACKER, add_one, is_free, start, wait_until


@pytest.fixture
def tracker() -> Iterator[rpc.Tracker]:
    with rpc.Tracker("127.0.0.1", 0, silent=True) as found:
        yield found


def free(tracker: rpc.Tracker, key: str = "board") -> int:
    return int(tracker.summary()["queue_info"].get(key, {"free": 0})["free"])


def test_a_device_is_handed_out_and_given_back(tracker: rpc.Tracker, library: Path) -> None:
    with rpc.Server("127.0.0.1", 0, key="board", silent=True, tracker_addr=("127.0.0.1", tracker.port)):
        wait_until(lambda: free(tracker) == 1)
        client = rpc.connect_tracker("127.0.0.1", tracker.port)
        with client.request("board") as session:
            add_one(session, library)
            assert client.summary()["queue_info"]["board"] == {"total": 1, "free": 0, "pending": 0}
            with pytest.raises(RPCError, match="no device 'board' in 0.2 s"):
                client.request("board", timeout=0.2)
        wait_until(lambda: free(tracker) == 1)
        assert client.request_and_run("board", lambda session: session.listdir()) == ""
        assert "board" in client.text_summary()
    wait_until(lambda: not tracker.summary()["server_info"])


def _given(waiting: list[tuple[str, int]], held: list[str], n_free: int) -> list[str]:
    """Clients in the order in which they get devices."""
    pool, order = _Pool(), []
    for client in held:
        device = _Device("k", "a", 1)
        device.holder = _Request("k", client, 1, -1, device)
        pool.devices.append(device)
    pool.waiting = [_Request("k", client, priority, n) for n, (client, priority) in enumerate(waiting)]
    requests = list(pool.waiting)
    for _ in range(n_free):
        pool.devices.append(_Device("k", "a", 1))
        before = {r.number for r in pool.waiting}
        with pool.changed:
            pool.assign()
        order += [r.client for r in requests if r.number in before and r.device is not None]
    return order


def test_who_gets_a_device_first() -> None:
    assert _given([("a", 1), ("b", 5), ("c", 1)], [], 3) == ["b", "a", "c"]  # by priority, then in order
    assert _given([("a", 1), ("a", 1), ("b", 1)], [], 3) == [
        "a",
        "b",
        "a",
    ]  # nobody gets a second one before the others
    assert _given([("a", 1), ("b", 1)], ["a", "a"], 2) == ["b", "a"]


def test_devices_of_another_key_or_with_sessions_are_not_given() -> None:
    pool = _Pool()
    pool.devices = [_Device("other", "a", 1), _Device("k", "a", 1, sessions=1)]
    pool.waiting = [_Request("k", "a", 1, 0)]
    with pool.changed:
        pool.assign()
    assert len(pool.waiting) == 1


def test_a_client_that_is_killed_loses_its_device(tracker: rpc.Tracker) -> None:
    with rpc.Server("127.0.0.1", 0, key="board", silent=True, tracker_addr=("127.0.0.1", tracker.port)):
        code = f"""
import time
from autosched import rpc
session = rpc.connect_tracker("127.0.0.1", {tracker.port}).request("board")
print(session.info["pid"], flush=True)
time.sleep(60)
"""
        process, _ = start(code)
        assert free(tracker) == 0
        waiter: list[rpc.RPCSession] = []
        client = rpc.connect_tracker("127.0.0.1", tracker.port)
        thread = threading.Thread(target=lambda: waiter.append(client.request("board", timeout=30)))
        thread.start()
        process.kill()
        process.wait()
        thread.join(30)
        assert waiter[0].listdir() == ""
        waiter[0].close()


def test_a_tracker_that_comes_back_has_its_devices_again() -> None:
    process, port = start(TRACKER)
    server, _ = start(SERVER, str(port))
    try:
        client = rpc.TrackerSession("127.0.0.1", port, rpc.Access())
        with client.request("board", timeout=20) as session:
            process.kill()
            process.wait()
            assert is_free(port) and session.listdir() == ""  # a session does not need the tracker
            process, _ = start(TRACKER, str(port))
            wait_until(lambda: client.summary()["queue_info"].get("board", {}).get("total") == 1)
            wait_until(lambda: client.summary()["queue_info"]["board"]["free"] == 0)  # the server says it is at work
        with client.request("board", timeout=20) as session:
            assert session.listdir() == ""
    finally:
        for running in (process, server):
            running.kill()
            running.wait()


def test_a_server_that_is_killed_is_forgotten(tracker: rpc.Tracker) -> None:
    server, _ = start(SERVER, str(tracker.port))
    wait_until(lambda: free(tracker) == 1)
    server.kill()
    server.wait()
    wait_until(lambda: free(tracker) == 0)


def test_a_server_is_no_tracker(server: rpc.Server) -> None:
    with pytest.raises(RPCError, match="is not done here"):
        rpc.connect_tracker("127.0.0.1", server.port)
