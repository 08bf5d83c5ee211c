"""Who may be talked to: a scheduler runs code on its workers for everybody who reaches it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, UsageError

if TYPE_CHECKING:
    from distributed.security import Security

    from autosched.json_types import JsonObject

CONNECT_S = 10.0
PROTOCOLS = ("tcp", "tls")
DEFAULT_PORT = 8786


@dataclass(frozen=True, slots=True)
class Access:
    """How a scheduler is reached.

    address   "tcp://host:8786", "tls://host:8786"; the protocol and the port may be left out
    ca, cert, key  PEM files for TLS; where none is given, what dask's own configuration says
    insecure  talk to a scheduler without TLS that others can reach
    """

    address: str
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False

    @property
    def url(self) -> str:
        """The whole address. Raises UsageError for one that is none."""
        protocol, found, rest = self.address.strip().partition("://")
        if not found:
            protocol, rest = ("tls" if self.ca or self.cert else "tcp"), self.address.strip()
        host, _, port = rest.rpartition(":") if ":" in rest.rsplit("]", 1)[-1] else (rest, "", str(DEFAULT_PORT))
        if protocol not in PROTOCOLS or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(
                f"'{self.address}' is no scheduler's address", hint="write tcp://host:8786 or tls://host:8786"
            )
        if protocol == "tcp" and (self.ca or self.cert or self.key):
            raise UsageError(f"certificates are given, and {self.address} asks for no TLS", hint="write tls://…")
        return f"{protocol}://{host}:{port}"

    def security(self) -> Security | None:
        """What dask needs to know. Raises UsageError for files that are missing or unusable."""
        from distributed import Security

        named = {"tls_ca_file": self.ca, "tls_client_cert": self.cert, "tls_client_key": self.key}
        named |= {"tls_worker_cert": self.cert, "tls_worker_key": self.key}
        given = {name: str(path) for name, path in named.items() if path is not None}
        for path in (self.ca, self.cert, self.key):
            if path is not None and not path.is_file():
                raise UsageError(f"no file {path}")
        is_tls = self.url.startswith("tls://")
        security = Security(require_encryption=True, **given) if is_tls else Security()
        if is_tls and not (security.tls_ca_file and security.tls_client_cert):
            raise UsageError(
                f"{self.url} needs certificates",
                hint="give --tls-ca, --tls-cert and --tls-key, or set dask's configuration",
            )
        return security


def check_access(access: Access) -> str:
    """Reach the scheduler, and refuse one without TLS that other machines can reach; gives its address.

    Raises  UsageError for the refusal, AutoschedError if nobody answers.
    """
    url, security = access.url, access.security()
    if not access.insecure and url.startswith("tcp://") and not is_loopback(url):
        raise _refusal(url)
    listens = _ask(url, security)
    if not access.insecure and listens.startswith("tcp://") and not is_loopback(listens):
        raise _refusal(listens)
    return url


def is_loopback(url: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    host = url.partition("://")[2].rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refusal(url: str) -> UsageError:
    return UsageError(
        f"the scheduler at {url} has no TLS and others can reach it: whoever does runs code on the workers",
        hint="use tls://, let it listen on 127.0.0.1, or give --insecure on a network that you trust",
    )


def _ask(url: str, security: Security) -> str:
    """The address that the scheduler listens on. Raises AutoschedError if none answers."""
    import asyncio

    from distributed.core import rpc

    async def ask() -> JsonObject:
        scheduler = rpc(url, connection_args=security.get_connection_args("client"), timeout=CONNECT_S)
        try:
            found: JsonObject = await asyncio.wait_for(scheduler.identity(n_workers=0), CONNECT_S)
        finally:
            await scheduler.close_rpc()
        return found

    try:
        host, _, port = url.partition("://")[2].rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()  # dask would try for long
        identity = asyncio.run(ask())
    except (OSError, TimeoutError, TypeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        text = f"no scheduler answers at {url}: {reason}"
        raise AutoschedError(text, hint="start one with `dask scheduler --host 127.0.0.1`") from None
    if identity.get("type") != "Scheduler":
        raise UsageError(f"{url} is a dask {str(identity.get('type')).lower()}, no scheduler")
    return str(identity["address"])
