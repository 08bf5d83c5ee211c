"""Wrong messages for a server, a session and a tracker: `python -m tests.rpc.fuzz --messages 10000`.

After each the server must still serve; what answers is an error in words, or the end of the connection, in ANSWER_S.
Anything else is a fault: it is printed with the seed, the number of the message and its bytes, and the exit code is 1.
Most of the time is spent starting sessions anew: one message in ten ends one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autosched import rpc
from autosched.errors import RPCError
from autosched.rpc.frames import HEAD, MAGIC, ConnectionLost, Frames
from tests.rpc.parts import N, raw_session, save_add_one

ANSWER_S = 30.0  # in which the other side answers or ends the connection, however busy the machine is
STALL_S = 1.0  # after which these sessions give half a message up
LIMITS = rpc.SessionLimits(1 << 30, 1 << 24, stall_s=STALL_S)
LIBRARY = "lib.tar"

OPS = (
    *("info", "open", "append", "download", "remove", "list", "load", "empty", "read", "copy", "part"),
    *("function", "executor", "graph", "machine", "call", "time", "device", "service", "measure"),
)
FIELDS = ("name", "size", "offset", "array", "shape", "dtype", "device", "to", "source", "start", "stop", "object",
          "args", "kwargs", "options", "library", "devices", "service", "request", "what", "entries", "reference",
          "key", "inputs", "outputs", "rounding", "seed", "manifest", "best_s", "rounds", "threads")  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 3.5, 1 << 40, 1 << 70, "", "x", "../x", "/etc/passwd", "float32", "object", "O"),
    *("__class__", [], [1], [1, 0], [2, 0], [1 << 40], [-1], [[1, 0]], {}, {"array": 1}, {"object": 3}),
    *({"bytes": 1}, {"tuple": [1]}, {"device": [1, 0]}, {"array": -1}, "measure", "tvm.contrib.sort.sort", "free"),
    *("x" * 1000, float("nan"), float("inf"), "\ud800", [[]], [[], {}], {"kind": "Pack"}, LIBRARY, "add_one"),
)
# Requests that mean something to a session that `prepared` has opened: arrays 1 and 2 of N numbers, library 3.
MEANT: tuple[tuple[Mapping[str, Any], int], ...] = (
    ({"op": "open", "name": "x", "size": 100}, 0),
    ({"op": "append", "name": "x"}, 100),
    ({"op": "download", "name": LIBRARY, "offset": 0}, 0),
    ({"op": "load", "name": LIBRARY}, 0),
    ({"op": "empty", "shape": [N], "dtype": "float32", "device": [1, 0]}, 0),
    ({"op": "write", "array": 1}, 4 * N),
    ({"op": "read", "array": 2}, 0),
    ({"op": "copy", "source": 1, "to": 2}, 0),
    ({"op": "part", "array": 1, "start": 1, "stop": 4}, 0),
    ({"op": "function", "name": "tvm.contrib.sort.sort"}, 0),
    ({"op": "machine", "library": 3, "devices": [[1, 0]]}, 0),
    ({"op": "executor", "library": 3, "device": [1, 0], "threads": 1}, 0),
    ({"op": "graph", "library": 3, "devices": [[1, 0]]}, 20),
    ({"op": "call", "object": 3, "name": "add_one", "args": [{"array": 1}, {"array": 2}]}, 0),
    ({"op": "time", "object": 3, "name": "add_one", "device": [1, 0], "options": {"number": 2, "repeat": 1},
      "args": [{"array": 1}, {"array": 2}]}, 0),
    ({"op": "device", "device": [1, 0], "name": "exist"}, 0),
    ({"op": "measure", "what": "device"}, 0),
    ({"op": "measure", "what": "reference", "key": "k", "inputs": [1], "outputs": [2], "rounding": [0.1], "seed": 0,
      "is_part": False}, 0),
    ({"op": "measure", "what": "run", "entries": [{"kernel": 1, "packs": [None, None], "threads": 1}],
      "reference": "k", "options": {}, "best_s": None, "is_timed": True, "is_checked": True}, 0),
)  # fmt: skip


class FaultError(Exception):
    """What the other side must not do."""


@dataclass
class Found:
    """How many messages ended how, and the faults."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("answered", "closed", "greetings"), 0))
    faults: list[str] = field(default_factory=list)


def request(rng: random.Random) -> bytes:
    """A frame whose head is right: a meant request of which at most two fields are changed, or any fields at all."""
    if rng.random() < 0.5:
        meant, n_raw = rng.choice(MEANT)
        fields = dict(meant)
        for name in rng.sample(sorted(fields), min(len(fields), rng.choice((0, 1, 1, 2)))):
            if name == "op":
                continue
            if rng.random() < 0.2:
                del fields[name]
            else:
                fields[name] = rng.choice(VALUES)
        n_raw = n_raw if rng.random() < 0.98 else rng.choice((0, 1, 4, 100))
    else:
        op = rng.choice(OPS if rng.random() < 0.98 else ("nobody", "__init__", "", "write"))
        fields = {"op": op, **{name: rng.choice(VALUES) for name in rng.sample(FIELDS, rng.randrange(8))}}
        n_raw = rng.choice((1, 4, 100)) if rng.random() < 0.02 else 0
    if rng.random() < 0.005:
        fields["free"] = rng.choice(VALUES)
    text = json.dumps(fields).encode()
    return HEAD.pack(MAGIC, len(text), n_raw) + text + rng.randbytes(n_raw)


def broken(rng: random.Random) -> bytes:
    """Bytes that are no frame: cut, changed, with lengths of gigabytes, or noise."""
    good = request(rng)
    match rng.randrange(6):
        case 0:
            return good[: rng.randrange(1, len(good))]
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
    """Send bytes and read what comes back; tells whether the connection still serves. Raises FaultError."""
    answer: dict[str, Any] = {}
    try:
        frames.socket.settimeout(ANSWER_S)
        with contextlib.suppress(OSError):  # closed while we still speak: the answer says why
            frames.socket.sendall(data)
        start = time.monotonic()
        answer, n_raw = frames.receive()
        frames.take_bytes(n_raw, 1 << 30)
    except (ConnectionLost, OSError) as error:
        if time.monotonic() - start >= ANSWER_S:
            raise FaultError(f"no answer in {ANSWER_S:g} s: {error}") from None
        return False
    if not set(answer) <= {"value", "error", "closes"}:
        raise FaultError(f"an answer that is none: {answer}")
    words = str((answer.get("error") or {}).get("message", ""))
    if "the session was ended by" in words or "the session exited" in words:
        raise FaultError(words)
    return not answer.get("closes")


def ends(sock: socket.socket) -> None:
    """Read until the other side ends the connection. Raises FaultError where it does not."""
    end = time.monotonic() + ANSWER_S
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            sock.settimeout(max(0.001, end - time.monotonic()))
            if not sock.recv(1 << 16):
                return
    if time.monotonic() >= end:
        raise FaultError(f"the connection is still open after {ANSWER_S:g} s")


def prepared(port: int, library: bytes) -> Frames:
    """A session with the arrays and the library that `MEANT` speaks of."""
    frames = raw_session(port)
    frames.socket.settimeout(ANSWER_S)
    for fields, raw in (
        ({"op": "empty", "shape": [N], "dtype": "float32", "device": [1, 0]}, b""),
        ({"op": "empty", "shape": [N], "dtype": "float32", "device": [1, 0]}, b""),
        ({"op": "write", "array": 1}, np.arange(N, dtype="f4").tobytes()),
        ({"op": "open", "name": LIBRARY, "size": len(library)}, b""),
        ({"op": "append", "name": LIBRARY}, library),
        ({"op": "load", "name": LIBRARY}, b""),
    ):
        frames.send(fields, raw)
        answer, _ = frames.receive()
        if "error" in answer:
            raise FaultError(f"a good request is refused: {answer['error']}")
    return frames


class Fuzzer:
    """Sends messages by number; each is the same for the same seed."""

    def __init__(self, server: rpc.Server, tracker: rpc.Tracker, library: bytes, seed: int):
        self.server, self.tracker, self.library, self.seed = server, tracker, library, seed
        self.found = Found()
        self.session: Frames | None = None

    def run(self, first: int, n_messages: int, every: int = 500) -> Found:
        """Send messages [first, first + n_messages); look after `every` one whether new clients are served."""
        raised: list[str] = []
        before, threading.excepthook = threading.excepthook, lambda args: raised.append(repr(args.exc_value))
        try:
            for number in range(first, first + n_messages):
                self._message(number, raised)
                if (number + 1 - first) % every == 0:
                    self._serves(number)
                    print(f"{number + 1 - first} messages: {self.found.counts}", flush=True)
        finally:
            threading.excepthook = before
            self.leave()
        self._serves(first + n_messages - 1)
        return self.found

    def _message(self, number: int, raised: list[str]) -> None:
        rng = random.Random(f"{self.seed} {number}")
        kind, data = rng.random(), broken(rng) if rng.random() < 0.04 else request(rng)
        try:
            if kind < 0.08:
                self.found.counts["greetings"] += 1
                self._greeting(rng.choice((self.server.port, self.tracker.port)), data)
            elif self._said(data, rng):
                self.found.counts["answered"] += 1
            else:
                self.found.counts["closed"] += 1
                self.leave()
            if raised:
                raise FaultError(f"a thread has ended with {raised.pop()}")
        except (FaultError, RPCError, OSError) as error:
            self.leave()
            self.fault(number, f"{type(error).__name__}: {error}; it was {data[:300]!r}")

    def fault(self, number: int, what: str) -> None:
        """Note and print one."""
        self.found.faults.append(f"seed {self.seed}, message {number}: {what}")
        print(self.found.faults[-1], flush=True)

    def _greeting(self, port: int, data: bytes) -> None:
        """A message before anyone knows who we are."""
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as sock:
            with contextlib.suppress(OSError):  # closed while we still speak
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            ends(sock)

    def _said(self, data: bytes, rng: random.Random) -> bool:
        """A message to a session, a new one where the last has ended; tells whether it goes on."""
        self.session = self.session or prepared(self.server.port, self.library)
        if rng.random() >= 0.005:
            return say(self.session, data)
        self.session.socket.sendall(data[: rng.randrange(1, len(data))])  # half a message, and then nothing
        ends(self.session.socket)
        return False

    def leave(self) -> None:
        """End the session."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def _serves(self, number: int) -> None:
        """Whether new clients are served, and nothing but our session has stayed."""
        try:
            with rpc.connect("127.0.0.1", self.server.port, "board", connect_timeout=ANSWER_S) as session:
                session.ask("list", within_s=ANSWER_S)
            rpc.connect_tracker("127.0.0.1", self.tracker.port)
            end = time.monotonic() + ANSWER_S
            while self.server.n_sessions > (self.session is not None):
                if time.monotonic() > end:
                    raise FaultError(f"{self.server.n_sessions} sessions are left")
                time.sleep(0.01)
        except (FaultError, RPCError, OSError) as error:
            self.fault(number, f"the server does not serve: {type(error).__name__}: {error}")


def fuzz(server: rpc.Server, tracker: rpc.Tracker, library: Path, n_messages: int, seed: int, first: int = 0) -> Found:
    """Send so many messages."""
    return Fuzzer(server, tracker, library.read_bytes(), seed).run(first, n_messages)


def silent_connections(server: rpc.Server, n: int) -> float:
    """Open so many that say nothing, then be a client as any other; gives the seconds until it is served."""
    silent = [socket.create_connection(("127.0.0.1", server.port), ANSWER_S) for _ in range(n)]
    try:
        start = time.monotonic()
        with rpc.connect("127.0.0.1", server.port, "board", connect_timeout=ANSWER_S) as session:
            session.ask("list", within_s=ANSWER_S)
        return time.monotonic() - start
    finally:
        for sock in silent:
            sock.close()


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first message")
    parser.add_argument("--connections", type=int, default=1000, help="that are opened and say nothing")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        rpc.Server("127.0.0.1", 0, key="board", silent=True, limits=LIMITS, most_sessions=64) as server,
        rpc.Tracker("127.0.0.1", 0, silent=True) as tracker,
    ):
        library = save_add_one(Path(folder) / LIBRARY)
        served_s = silent_connections(server, given.connections)
        print(f"{given.connections} open, silent connections: a client is served in {served_s:.1f} s", flush=True)
        n_files = len(os.listdir("/proc/self/fd"))
        found = fuzz(server, tracker, library, given.messages, given.seed, given.first)
        n_files = len(os.listdir("/proc/self/fd")) - n_files
    print(
        f"{given.messages} messages: {found.counts}, {len(found.faults)} faults, {n_files} more open files, "
        f"{time.monotonic() - start:.0f} s; the server serves"
    )
    return bool(found.faults)


if __name__ == "__main__":
    sys.exit(main())
