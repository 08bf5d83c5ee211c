"""Wrong messages: the session answers or ends, the server lives on."""

from __future__ import annotations

import socket

import pytest

from autosched import rpc
from autosched.errors import RPCError
from autosched.rpc.frames import HEAD, MAGIC
from tests.rpc.fuzz import fuzz
from tests.rpc.parts import is_refused, raw_session


def test_random_messages(server: rpc.Server) -> None:
    with rpc.Tracker("127.0.0.1", 0, silent=True) as tracker:
        found = fuzz(server, tracker, 60, seed=1)
    assert found["answered"] > 20 and found["closed"] > 0 and found["greetings"] > 0


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
