"""The option --remote of commands that run on another machine, and how that is reached."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.rpc import Access, RPCSession
    from autosched.tuner.measure.cluster.device import Device

REMOTE_HELP = "by the `autosched rpc serve` at host:port, or one that the tracker at host:port/key hands out"


@dataclasses.dataclass(frozen=True, slots=True)
class Remote:
    """A device elsewhere: its session, and what it is."""

    session: RPCSession
    device: Device

    def common(self, common: Common) -> Common:
        """The common options, with the device's target where none was given. Raises UsageError for another one."""
        if common.target == "cpu":
            return dataclasses.replace(common, target=str(self.device.target))
        return common


def with_remote(function: Callable[..., object]) -> Callable[..., object]:
    """Add --remote, and the files for TLS."""
    decorated = function
    for option in (
        click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Our key, PEM."),
        click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Our certificate, PEM."),
        click.option("--tls-ca", type=click.Path(path_type=Path), metavar="FILE", help="The authority for TLS, PEM."),
        click.option("--remote", metavar="HOST:PORT[/KEY]", help=f"Run elsewhere: {REMOTE_HELP}."),
    ):
        decorated = option(decorated)
    return decorated


def make_access(tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None) -> Access:
    """What the options say; the secret is in AUTOSCHED_RPC_SECRET, or this user's own."""
    from autosched.rpc import Access

    return Access(ca=tls_ca, cert=tls_cert, tls_key=tls_key)


@contextlib.contextmanager
def remote_session(
    address: str | None, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None
) -> Iterator[Remote | None]:
    """The device at an address; None without one.

    Raises UsageError for options that do not fit, RPCError where it cannot be reached.
    """
    if address is None:
        if tls_ca or tls_cert or tls_key:
            raise UsageError("the files for TLS do nothing without --remote")
        yield None
        return
    from autosched.rpc.reach import Address, open_session
    from autosched.tuner.measure.remote.place import device_of

    with open_session(Address.parse(address), make_access(tls_ca, tls_cert, tls_key)) as session:
        yield Remote(session, device_of(session))
