"""Who may talk to whom: addresses, TLS, the secret that both sides prove to know, and which versions fit.

A server runs what it is sent, so both sides prove that they know one secret, and never send it. On this machine that is
by default a file that this user alone can read. Other machines are only talked to with TLS and a secret that was given.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.env import AUTOSCHED_RPC_SECRET
from autosched.errors import AutoschedError, InvalidValueError, RPCError, UsageError
from autosched.rpc.frames import Frames, lost
from autosched.runtime.cache import kernel_cache
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

HANDSHAKE_S = 10.0
NOT_DONE_HERE = "is not done here"  # a tracker to who wants a session, a server to who wants a device
LEAST_SECRET_BYTES = 8
_NAME = re.compile(r"(?!\.)[^/\\\0]{1,200}")
_KEY = re.compile(r"[\w.@+-]{0,200}")


@dataclass(frozen=True, slots=True)
class Access:
    """How a connection is protected.

    secret  that both sides know; None: AUTOSCHED_RPC_SECRET, else (on this machine alone) this user's own
    ca      certificates of the authority, PEM: a client trusts servers that it has signed; a server that is given one
            lets in only clients that have a certificate of it (mutual TLS)
    cert, tls_key  our certificate and its key, PEM; a server needs them for TLS
    """

    secret: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    tls_key: Path | None = None

    @property
    def has_tls(self) -> bool:
        """Whether any file for TLS is given."""
        return self.ca is not None or self.cert is not None

    def secret_bytes(self) -> bytes:
        """The secret. Raises UsageError where there is none, or a given one is short."""
        text = self.secret if self.secret is not None else AUTOSCHED_RPC_SECRET.get()
        if text:
            if len(text.encode()) < LEAST_SECRET_BYTES:
                raise UsageError(f"the secret is shorter than {LEAST_SECRET_BYTES} bytes")
            return text.encode()
        own = kernel_cache().secret()
        if own is None:
            hint = "give a secret on both sides, or set AUTOSCHED_RPC_SECRET"
            raise UsageError("there is no folder for this user's secret", hint=hint)
        return hmac.digest(own, b"autosched rpc", "sha256")

    def check_host(self, host: str, action: str) -> None:
        """Refuse an address that others can reach, without TLS and a secret that was given. Raises UsageError."""
        if is_loopback(host):
            return
        if not self.has_tls:
            raise UsageError(f"{action} {host}: other machines need TLS", hint="give certificates, or use 127.0.0.1")
        if not (self.secret or AUTOSCHED_RPC_SECRET.get()):
            hint = "give one, or set AUTOSCHED_RPC_SECRET, on both sides"
            raise UsageError(f"{action} {host}: other machines need a secret", hint=hint)

    def server_context(self) -> ssl.SSLContext | None:
        """What a server wraps connections with; None: no TLS. Raises UsageError for unusable files."""
        if not self.has_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.cert is None:
            raise UsageError("a server with TLS needs a certificate and its key")
        _load(context, self)
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext | None:
        """What a client wraps connections with; None: no TLS. Raises UsageError for unusable files."""
        if not self.has_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is None:
            raise UsageError("a client with TLS needs the authority's certificate")
        _load(context, self)
        return context


def _load(context: ssl.SSLContext, access: Access) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if access.cert is not None:
            context.load_cert_chain(access.cert, access.tls_key)
        if access.ca is not None:
            context.load_verify_locations(access.ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the files for TLS cannot be used: {error.strerror or error}") from None


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_key(key: str) -> str:
    """A kind of device as servers and clients name it. Raises UsageError for other characters than those of a name."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise UsageError(f"{key!r} is no key of a device", hint="letters, digits and . _ @ + - make one")
    return key


def safe_name(name: object) -> str:
    """A file's name in a session's folder. Raises InvalidValueError for one that could lead out of it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        hint = "one name without folders, not beginning with a dot"
        raise InvalidValueError(f"{name!r} is no name of a file", hint=hint)
    return name


def fits(client: str, server: str) -> bool:
    """Whether a client of a version works with a server: of its own minor version, or of the next."""
    try:
        (a, b), (c, d) = ((int(part) for part in text.split(".")[:2]) for text in (client, server))
    except ValueError:
        return False
    return a == c and d - b in (0, 1)


def open_socket(host: str, port: int, access: Access, timeout_s: float) -> socket.socket:
    """Connect, with TLS where it is asked for. Raises UsageError for a refused address, RPCError if nobody answers."""
    access.check_host(host, "connecting to")
    context = access.client_context()
    try:
        sock = socket.create_connection((host.strip("[]"), port), timeout_s)
        tune(sock)
        return sock if context is None else context.wrap_socket(sock, server_hostname=host.strip("[]"))
    except (OSError, ssl.SSLError, OverflowError) as error:
        raise RPCError(
            f"no server answers at {host}:{port}: {error}", hint="start `autosched rpc serve` there"
        ) from None


def tune(sock: socket.socket) -> None:
    """Send small messages at once; find out that the other machine is gone within half a minute."""
    options = [(socket.IPPROTO_TCP, "TCP_NODELAY", 1), (socket.SOL_SOCKET, "SO_KEEPALIVE", 1)]
    options += [(socket.IPPROTO_TCP, name, n) for name, n in
                (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))]  # fmt: skip
    for level, name, value in options:
        if hasattr(socket, name):
            sock.setsockopt(level, getattr(socket, name), value)


def _proof(secret: bytes, role: str, server: Mapping[str, object], client: Mapping[str, object]) -> str:
    parts = [role, server["nonce"], client["nonce"], client["purpose"], client["key"]]
    return hmac.digest(secret, "\n".join(map(str, parts)).encode(), "sha256").hex()


def greet(frames: Frames, access: Access, purpose: str, key: str, **facts: object) -> JsonObject:
    """The client's handshake; gives what the server says of itself.

    purpose  "session" of a server; "request", "announce" or "list" of a tracker
    Raises   RPCError naming what does not fit.
    """
    secret = access.secret_bytes()
    hello = _object(frames)
    server_version = str(hello.get("autosched"))
    if not isinstance(hello.get("nonce"), str):
        raise RPCError("the server speaks another protocol")
    mine = {"autosched": __version__, "nonce": os.urandom(16).hex(), "purpose": purpose, "key": check_key(key), **facts}
    frames.send({**mine, "proof": _proof(secret, "client", hello, mine)})
    answer = _object(frames)
    if "error" in answer:
        raise raised(answer["error"])
    if not fits(__version__, server_version):
        raise _versions(__version__, server_version)
    if not hmac.compare_digest(str(answer.get("proof")), _proof(secret, "server", hello, mine)):
        raise RPCError("the server does not know our secret", hint="give the same secret on both sides")
    return answer


def admit(frames: Frames, access: Access, purposes: tuple[str, ...], key: str | None) -> JsonObject:
    """The server's handshake; gives what the client has said. The caller ends it with `welcome`.

    key     a client's must begin with it, or be empty: who names an address need not say what is there; None: any
    Raises  RPCError, after an answer to the client.
    """
    hello = {"autosched": __version__, "nonce": os.urandom(16).hex()}
    frames.send(hello)
    try:
        client = _object(frames)
        for name in ("autosched", "nonce", "purpose", "key", "proof"):
            if not isinstance(client.get(name), str):
                raise RPCError(f"the greeting has no '{name}'")
        if not fits(client["autosched"], __version__):
            raise _versions(client["autosched"], __version__)
        if not hmac.compare_digest(
            client["proof"].encode(), _proof(access.secret_bytes(), "client", hello, client).encode()
        ):
            raise RPCError("wrong secret", hint="give the same secret on both sides")
        if client["purpose"] not in purposes:
            raise RPCError(
                f"'{client['purpose'][:40]}' {NOT_DONE_HERE}", hint="servers and trackers have different ports"
            )
        check_key(client["key"])
        if key and client["key"] and not client["key"].startswith(key):
            raise RPCError(f"wrong key '{client['key']}'", hint=f"this device's key is '{key}'")
    except (AutoschedError, ValueError) as error:
        refuse_client(frames, error)
        raise
    client["answer"] = _proof(access.secret_bytes(), "server", hello, client)
    return client


def welcome(frames: Frames, client: Mapping[str, object], **facts: object) -> None:
    """Tell a client that it is let in."""
    frames.send({"proof": client["answer"], **facts})


def refuse_client(frames: Frames, error: Exception) -> None:
    """Tell a client why it is not served any more, if it still listens."""
    with contextlib.suppress(RPCError):
        frames.send({"error": described(error), "closes": True})


def described(error: BaseException) -> JsonObject:
    """An error as the other side may read it."""
    if isinstance(error, AutoschedError):
        return {"type": type(error).__name__, "message": error.message, "where": error.where, "hint": error.hint}
    kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
    return {"type": "RPCError", "message": f"{kind}: {error}"[:4000]}


def raised(found: object) -> Exception:
    """The error that the other side has described: one of autosched's own, by name."""
    from autosched import errors

    if not isinstance(found, dict):
        return RPCError("the other side has failed")
    kind = getattr(errors, str(found.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, errors.AutoschedError)):
        kind = RPCError
    texts = {name: found[name] for name in ("where", "hint") if isinstance(found.get(name), str)}
    made: Exception = kind(str(found.get("message")), **texts)
    return made


def _object(frames: Frames) -> JsonObject:
    try:
        found, n_raw = frames.receive()
    except OSError as error:
        raise lost(error) from None
    if n_raw:
        raise RPCError("a greeting has no raw bytes")
    return found


def _versions(client: str, server: str) -> RPCError:
    hint = "a client works with a server of its own minor version or of the next one"
    return RPCError(f"the client is autosched {client[:40]}, the server {server[:40]}", hint=hint)
