"""Frames on a connection: a fixed head, a JSON object, then raw bytes. Nothing is unpickled.

head     4 bytes "aRPC", length of the JSON (32 bits), length of the raw bytes (64 bits), big-endian
JSON     an object of at most MOST_HEADER_BYTES
raw      bytes whose place and number the receiver knows before it takes them; they are never buffered as a whole

Between two frames a side may be silent for as long as its peer waits. Within a frame it may not: half a message, or an
answer that nobody reads, ends the connection after STALL_S.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autosched.errors import RPCError

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

MAGIC = b"aRPC"
HEAD = struct.Struct("!4sIQ")
MOST_HEADER_BYTES = 1 << 20
MOST_RAW_BYTES = 1 << 44  # no array is larger; what fits is decided by who takes the bytes
STALL_S = 60.0  # in which a side sends or takes at least one byte of a frame that has begun
_BLOCK_BYTES = 1 << 16


class ConnectionLost(RPCError):
    """The other side is gone, or what it sends is no frame: the connection cannot be used any more."""


class SessionEnded(ConnectionLost):
    """The other side has said why it ends the session: what ran there has failed, or a limit was reached."""


class Frames:
    """Sends and receives frames; one thread at a time.

    stall_s  in which the other side sends or takes at least one byte of a frame that has begun
    """

    def __init__(self, sock: socket.socket, stall_s: float = STALL_S):
        self.socket, self._stall_s = sock, stall_s
        self._n_raw = 0  # raw bytes of the last frame that were not taken
        self._is_cut = False  # a frame was sent in part: nothing can follow it

    def send(self, header: Mapping[str, object], raw: Any = b"") -> None:
        """Send a frame; `raw` is anything with contiguous bytes. Raises ConnectionLost."""
        view = memoryview(raw).cast("B")
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > MOST_HEADER_BYTES:
            raise RPCError(f"a message of {len(text)} bytes is too long", hint="pass large values as arrays or files")
        if self._is_cut:
            raise ConnectionLost("the other side has not taken the message before")
        with self._within_frame():
            self._is_cut = True
            self._send(memoryview(HEAD.pack(MAGIC, len(text), len(view)) + text))
            self._send(view)
            self._is_cut = False

    def _send(self, data: memoryview) -> None:
        while len(data):
            data = data[self.socket.send(data) :]

    def receive(self) -> tuple[JsonObject, int]:
        """The next frame's object, and how many raw bytes follow, for `take`. Raises ConnectionLost."""
        head = bytearray(HEAD.size)
        try:
            n = self._take(memoryview(head))  # this may come at any time
        except OSError as error:
            raise lost(error) from None
        with self._within_frame():
            self._fill(memoryview(head)[n:])
            magic, n_header, n_raw = HEAD.unpack(head)
            if magic != MAGIC:
                raise ConnectionLost("what was received is no message of autosched's RPC")
            if n_header > MOST_HEADER_BYTES or n_raw > MOST_RAW_BYTES:
                raise ConnectionLost(f"a message announces {max(n_header, n_raw)} bytes, which is too many")
            text = bytearray(n_header)
            self._fill(memoryview(text))
        self._n_raw = n_raw
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ConnectionLost("a message's header is no JSON") from None
        if not isinstance(found, dict):
            raise ConnectionLost("a message's header is no JSON object")
        return found, n_raw

    def take(self, into: memoryview) -> None:
        """Receive exactly as many of the frame's raw bytes as `into` has. Raises ConnectionLost."""
        with self._within_frame():
            self._fill(into)
        self._n_raw -= len(into)

    def skip(self, most: int) -> None:
        """Receive the raw bytes that were not taken. Raises ConnectionLost where they are more than `most`."""
        if self._n_raw > most:
            raise ConnectionLost(f"{self._n_raw} bytes of a message are for nobody")
        while self._n_raw:
            self.take(memoryview(bytearray(min(self._n_raw, _BLOCK_BYTES))))

    def _take(self, into: memoryview) -> int:
        n = self.socket.recv_into(into)
        if n == 0:
            raise ConnectionLost("the other side has closed the connection")
        return n

    def _fill(self, into: memoryview) -> None:
        while len(into):
            into = into[self._take(into) :]

    @contextlib.contextmanager
    def _within_frame(self) -> Iterator[None]:
        """Do not wait longer than `stall_s` for the other side. Raises ConnectionLost."""
        try:
            wait_s = self.socket.gettimeout()
            self.socket.settimeout(self._stall_s if wait_s is None else min(wait_s, self._stall_s))
            try:
                yield
            finally:
                self.socket.settimeout(wait_s)
        except TimeoutError:
            raise ConnectionLost("the other side has stopped in the middle of a message") from None
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
        block = bytearray(_BLOCK_BYTES)
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
