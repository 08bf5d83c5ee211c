"""Frames on a connection: a fixed head, a JSON object, then raw bytes. Nothing is unpickled.

head     4 bytes "aRPC", length of the JSON (32 bits), length of the raw bytes (64 bits), big-endian
JSON     an object of at most MOST_HEADER_BYTES
raw      bytes whose place and number the receiver knows before it takes them; they are never buffered as a whole
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from autosched.errors import RPCError

MAGIC = b"aRPC"
HEAD = struct.Struct("!4sIQ")
MOST_HEADER_BYTES = 1 << 20
MOST_RAW_BYTES = 1 << 44  # no array is larger; what fits is decided by who takes the bytes


class ConnectionLost(RPCError):
    """The other side is gone, or what it sends is no frame: the connection cannot be used any more."""


class SessionEnded(ConnectionLost):
    """The other side has said why it ends the session: what ran there has failed, or a limit was reached."""


class Frames:
    """Sends and receives frames; one thread at a time."""

    def __init__(self, sock: socket.socket):
        self.socket = sock

    def send(self, header: Mapping[str, Any], raw: Any = b"") -> None:
        """Send a frame; `raw` is anything with contiguous bytes. Raises ConnectionLost."""
        view = memoryview(raw).cast("B")
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > MOST_HEADER_BYTES:
            raise RPCError(f"a message of {len(text)} bytes is too long", hint="pass large values as arrays or files")
        try:
            self.socket.sendall(HEAD.pack(MAGIC, len(text), len(view)) + text)
            if len(view):
                self.socket.sendall(view)
        except OSError as error:
            raise lost(error) from None

    def receive(self) -> tuple[dict[str, Any], int]:
        """The next frame's object, and how many raw bytes follow, for `take`. Raises ConnectionLost."""
        head = bytearray(HEAD.size)
        self.take(memoryview(head))
        magic, n_header, n_raw = HEAD.unpack(head)
        if magic != MAGIC:
            raise ConnectionLost("what was received is no message of autosched's RPC")
        if n_header > MOST_HEADER_BYTES or n_raw > MOST_RAW_BYTES:
            raise ConnectionLost(f"a message announces {max(n_header, n_raw)} bytes, which is too many")
        text = bytearray(n_header)
        self.take(memoryview(text))
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ConnectionLost("a message's header is no JSON") from None
        if not isinstance(found, dict):
            raise ConnectionLost("a message's header is no JSON object")
        return found, n_raw

    def take(self, into: memoryview) -> None:
        """Receive exactly as many raw bytes as `into` has. Raises ConnectionLost."""
        done = 0
        try:
            while done < len(into):
                n = self.socket.recv_into(into[done:])
                if n == 0:
                    raise ConnectionLost("the other side has closed the connection")
                done += n
        except OSError as error:
            raise lost(error) from None

    def take_bytes(self, n_raw: int, most: int) -> bytearray:
        """Receive a frame's raw bytes where they are few. Raises ConnectionLost where they are more than `most`."""
        if n_raw > most:
            raise ConnectionLost(f"a message announces {n_raw} bytes where at most {most} are taken")
        found = bytearray(n_raw)
        self.take(memoryview(found))
        return found

    def drain(self, most_s: float) -> None:
        """Send no more, and take what still comes, so long at most: the other side then reads what was sent last."""
        end = time.monotonic() + most_s
        block = bytearray(1 << 16)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                if not self.socket.recv_into(block):
                    return

    def close(self) -> None:
        """Close the connection; the other side sees its end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def lost(error: OSError) -> ConnectionLost:
    """What an error of a socket means."""
    if isinstance(error, TimeoutError):
        return ConnectionLost("the other side does not answer in time")
    return ConnectionLost(f"the connection is broken: {error.strerror or error}")
