"""Wrong messages for a server, a session and a tracker: `python -m tests.rpc.fuzz --messages 10000`.

After each the server must still serve; what answers is an error in words, or the end of the connection.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import sys
from typing import Any

from autosched import rpc
from autosched.errors import RPCError
from autosched.rpc.frames import HEAD, MAGIC, Frames
from tests.rpc.parts import raw_session

OPS = (
    *("info", "open", "append", "download", "remove", "list", "load", "empty", "read", "copy", "part"),
    *("function", "executor", "graph", "machine", "call", "time", "device", "service", "measure"),
)
FIELDS = ("name", "size", "offset", "array", "shape", "dtype", "device", "to", "from", "start", "stop", "object",
          "args", "kwargs", "options", "library", "devices", "service", "request", "what", "entries", "reference",
          "key", "inputs", "outputs", "rounding", "seed", "manifest", "best_s", "rounds", "threads")  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        1,
        -1,
        3.5,
        1 << 40,
        1 << 70,
        "",
        "x",
        "../x",
        "/etc/passwd",
        "float32",
        "object",
        "O",
        "__class__",
    ),
    *(
        [],
        [1],
        [1, 0],
        [2, 0],
        [1 << 40],
        [-1],
        [[1, 0]],
        {},
        {"array": 1},
        {"object": 1},
        {"bytes": 1},
        {"tuple": [1]},
    ),
    *({"device": [1, 0]}, {"array": -1}, "measure", "tvm.contrib.sort.sort", "free", "x" * 1000),
)


def request(rng: random.Random) -> bytes:
    """A frame whose head is right, with an operation and fields that mostly mean nothing."""
    fields = {name: rng.choice(VALUES) for name in rng.sample(FIELDS, rng.randrange(8))}
    if rng.random() < 0.01:
        fields["free"] = rng.choice(VALUES)
    op = rng.choice(OPS if rng.random() < 0.98 else ("nobody", "__init__", "", "write"))
    text = json.dumps({"op": op, **fields}).encode()
    raw = rng.randbytes(rng.choice((1, 4, 100))) if rng.random() < 0.04 else b""
    return HEAD.pack(MAGIC, len(text), len(raw)) + text + raw


def broken(rng: random.Random) -> bytes:
    """Bytes that are no frame: cut, changed, with lengths of gigabytes, or noise."""
    good = request(rng)
    match rng.randrange(6):
        case 0:
            return good[: rng.randrange(len(good))]
        case 1:
            return HEAD.pack(MAGIC, rng.choice((0xFFFFFFFF, 1 << 21)), 0) + good
        case 2:
            return HEAD.pack(MAGIC, 2, rng.choice((1 << 32, 1 << 62))) + b"{}"
        case 3:
            return HEAD.pack(MAGIC, 5000, 0) + b"[" * 5000
        case 4:
            changed = bytearray(good)
            for _ in range(rng.randrange(1, 8)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)
    return rng.randbytes(rng.randrange(1, 300))


def say(frames: Frames, data: bytes) -> bool:
    """Send bytes and read what comes back; tells whether the connection still serves."""
    frames.socket.sendall(data)
    answer, n_raw = frames.receive()
    assert set(answer) <= {"value", "error", "closes"}, answer
    frames.take_bytes(n_raw, 1 << 30)
    return not answer.get("closes")


def fuzz(server: rpc.Server, tracker: rpc.Tracker, n_messages: int, seed: int) -> dict[str, int]:
    """Send so many; gives how many of each kind were answered, or ended the connection."""
    rng = random.Random(seed)
    found = {"answered": 0, "closed": 0, "greetings": 0}
    session: Frames | None = None
    for number in range(n_messages):
        kind = rng.random()
        if kind < 0.08:  # before anyone knows who we are
            port = rng.choice((server.port, tracker.port))
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.settimeout(20)
                with contextlib.suppress(OSError):  # closed while we still speak
                    sock.sendall(broken(rng) if rng.random() < 0.7 else request(rng))
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(1 << 16):
                        pass
            found["greetings"] += 1
            continue
        try:
            session = session or raw_session(server.port)
            data = request(rng) if kind < 0.97 else broken(rng)
            if kind >= 0.97:
                session.socket.sendall(data)
                session.socket.shutdown(socket.SHUT_WR)
                raise RPCError("the connection was cut")
            alive = say(session, data)
            found["answered"] += 1
        except (RPCError, OSError):
            alive = False
            found["closed"] += 1
        if not alive and session is not None:
            session.close()
            session = None
        if number % 500 == 499:
            rpc.connect("127.0.0.1", server.port, "board").close()
            assert rpc.connect_tracker("127.0.0.1", tracker.port).summary() is not None
    if session is not None:
        session.close()
    rpc.connect("127.0.0.1", server.port, "board").close()
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=1000, help="that are opened, 100 at a time, and say nothing")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    limits = rpc.SessionLimits(1 << 30, 1 << 24)
    with (
        rpc.Server("127.0.0.1", 0, key="board", silent=True, limits=limits, most_sessions=64) as server,
        rpc.Tracker("127.0.0.1", 0, silent=True) as tracker,
    ):
        for _ in range(0, given.connections, 100):
            silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
            for sock in silent:
                sock.close()
        rpc.connect("127.0.0.1", server.port, "board", connect_timeout=60).close()
        print(f"{given.connections} silent connections: the server serves", flush=True)
        print(f"{given.messages} messages: {fuzz(server, tracker, given.messages, given.seed)}; the server serves")
    return 0


if __name__ == "__main__":
    sys.exit(main())
