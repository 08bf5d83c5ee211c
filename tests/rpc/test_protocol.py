"""Wrong messages: the session answers or ends, the server lives on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autosched import rpc
from autosched.errors import RPCError
from autosched.rpc.frames import HEAD, MAGIC, ConnectionLost, Frames
from tests.rpc.fuzz import LIMITS, FaultError, fuzz, say, silent_connections
from tests.rpc.parts import is_refused, raw_session, wait_until


@pytest.fixture(scope="module")
def impatient() -> Iterator[rpc.Server]:
    """A server whose sessions give half a message up soon."""
    limits = replace(LIMITS, stall_s=0.25)
    with rpc.Server("127.0.0.1", 0, key="board", silent=True, limits=limits) as found:
        yield found


def test_random_messages(library: Path) -> None:
    with (
        rpc.Tracker("127.0.0.1", 0, silent=True) as tracker,
        rpc.Server("127.0.0.1", 0, key="board", silent=True, limits=LIMITS) as server,
    ):
        found = fuzz(server, tracker, library, 60, seed=1)
    assert not found.faults
    assert found.counts["answered"] > 20 and found.counts["closed"] > 0 and found.counts["greetings"] > 0


def test_the_fuzzer_reports_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.rpc.fuzz.ANSWER_S", 0.05)
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(FaultError, match="no answer"):
        say(Frames(ours), b"x")
    ours.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HEAD.pack(MAGIC, 0xFFFFFFFF, 0), "announces 4294967295 bytes"),
        (HEAD.pack(MAGIC, 2, 1 << 63) + b"{}", "which is too many"),
        (HEAD.pack(MAGIC, 15, 1 << 32) + b'{"op": "graph"}', "at most"),
        (HEAD.pack(MAGIC, 15, 1 << 32) + b'{"op": "write"}', "bytes that are no array's"),
        (HEAD.pack(MAGIC, 2, 0) + b"[]", "no JSON object"),
        (HEAD.pack(MAGIC, 2, 0) + b"\xff\xff", "no JSON"),
        (b"GET / HTTP/1.1\r\n\r\n" + b"x" * 16, "no message of autosched's RPC"),
        (HEAD.pack(MAGIC, 15, 0) + b'{"op": "quit!"}', "no operation 'quit!'"),
    ],
)
def test_what_is_said_of_a_wrong_message(server: rpc.Server, data: bytes, words: str) -> None:
    frames = raw_session(server.port)
    frames.socket.sendall(data)
    answer, _ = frames.receive()
    assert words in answer["error"]["message"] and answer["closes"]
    with pytest.raises(RPCError):
        frames.receive()
    frames.close()
    assert not is_refused(server.port)


def test_half_a_message(server: rpc.Server) -> None:
    frames = raw_session(server.port)
    frames.socket.sendall(HEAD.pack(MAGIC, 100, 0) + b'{"op": ')
    frames.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(RPCError):
        frames.receive()
        frames.receive()
    frames.close()
    assert not is_refused(server.port)


@pytest.mark.parametrize(
    "data",
    [b"aRP", HEAD.pack(MAGIC, 100, 0) + b'{"op": ', HEAD.pack(MAGIC, 15, 100) + b'{"op": "graph"}' + bytes(99)],
    ids=["head", "object", "raw bytes"],
)
def test_half_a_message_and_then_nothing(impatient: rpc.Server, data: bytes) -> None:
    """The session ends although its client stays; between messages it would not."""
    frames = raw_session(impatient.port)
    frames.socket.sendall(data)
    answer, _ = frames.receive()
    assert "stopped in the middle of a message" in answer["error"]["message"] and answer["closes"]
    wait_until(lambda: impatient.n_sessions == 0)
    frames.close()


def test_an_answer_that_nobody_reads(impatient: rpc.Server) -> None:
    frames = raw_session(impatient.port)
    frames.send({"op": "empty", "shape": [1 << 26], "dtype": "uint8", "device": [1, 0]})
    number = frames.receive()[0]["value"]
    frames.send({"op": "read", "array": number})
    wait_until(lambda: impatient.n_sessions == 0)
    frames.close()


def test_raw_bytes_of_a_request_that_fails_are_no_message(server: rpc.Server) -> None:
    frames = raw_session(server.port)
    frames.send({"op": "append", "name": "../x"}, HEAD.pack(MAGIC, 3, 0))
    assert "is no name of a file" in frames.receive()[0]["error"]["message"]
    frames.send({"op": "append", "name": "never opened"}, bytes(5))
    assert "has no file 'never opened'" in frames.receive()[0]["error"]["message"]
    frames.send({"op": "list"})
    assert frames.receive()[0] == {"value": []}
    frames.close()


def test_frames_give_half_a_frame_up() -> None:
    """Either side does, whatever it waits for between frames."""
    ours, theirs = socket.socketpair()
    frames = Frames(ours, stall_s=0.05)
    theirs.sendall(b"aRPC")
    with theirs, pytest.raises(ConnectionLost, match="in the middle"):
        frames.receive()
    assert ours.gettimeout() is None
    ours.close()


def test_silent_connections_that_stay_keep_nobody_out(server: rpc.Server) -> None:
    """More of them than are greeted at a time. Raises RPCError where a client has to wait until each had its time."""
    silent_connections(server, 300)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HEAD.pack(MAGIC, 0xFFFFFFFF, 0), "announces 4294967295 bytes"),
        (HEAD.pack(MAGIC, 2, 1 << 32) + b"{}", "no raw bytes"),
        (b"GET / HTTP/1.", "no message of autosched's RPC"),
    ],
)
def test_what_is_said_of_a_wrong_greeting(server: rpc.Server, data: bytes, words: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
        sock.sendall(data.ljust(HEAD.size))
        frames = Frames(sock)
        frames.receive()
        answer, _ = frames.receive()
    assert words in answer["error"]["message"] and answer["closes"]


def test_a_greeting_with_an_odd_key_is_told_why(server: rpc.Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
        frames = Frames(sock)
        hello, _ = frames.receive()
        from autosched.rpc.access import Access, _proof

        mine = {"autosched": hello["autosched"], "nonce": "0", "purpose": "session", "key": "board/../x"}
        frames.send({**mine, "proof": _proof(Access().secret_bytes(), "client", hello, mine)})
        answer, _ = frames.receive()
    assert "is no key of a device" in json.dumps(answer)
