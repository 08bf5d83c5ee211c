"""`autosched rpc`: servers of remote devices, and the tracker that hands them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.groups import SuggestingGroup
from autosched.cli.output import Column, Table, show
from autosched.cli.remote_options import make_access
from autosched.cli.values import DURATION, Count

if TYPE_CHECKING:
    from autosched.rpc import Server, Tracker

GIB = 1 << 30
LARGEST_PORT = 65535


@click.group(
    "rpc",
    cls=SuggestingGroup,
    epilog="\b\nExample:\n  autosched rpc serve --key board"
    "\n  autosched rpc track\n  autosched rpc devices 127.0.0.1:9190",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Lend this machine's devices to other processes and machines, and hand out those of several.

    Both sides have to know one secret: AUTOSCHED_RPC_SECRET, or on one machine a file of this user's. Other machines
    are served with TLS alone.
    """


def _with_listening(default_port: int) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Add the options of something that listens."""

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        for option in (
            click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its key, PEM."),
            click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Our certificate, PEM."),
            click.option(
                "--tls-ca", type=click.Path(path_type=Path), metavar="FILE",
                help="Let in only those with a certificate of this authority, PEM.",
            ),
            click.option(
                "--port", type=click.IntRange(0, LARGEST_PORT), default=default_port, show_default=True,
                help="Listen here; 0: at any free port.",
            ),
            click.option(
                "--host", default="127.0.0.1", show_default=True,
                help="Listen at this address; one that others can reach needs TLS and AUTOSCHED_RPC_SECRET.",
            ),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


SERVE_EXAMPLE = """
autosched rpc serve --key board
autosched rpc serve --key board --tracker 127.0.0.1:9190
autosched run model.onnx --remote 127.0.0.1:9091
"""


@make_command("serve", example=SERVE_EXAMPLE)
@_with_listening(9091)
@click.option("--key", default="", help="Kind of device, by which clients and the tracker ask for it.")
@click.option("--tracker", metavar="HOST:PORT", help="Announce the device to the tracker there.")
@click.option("--address", help="Where the tracker's clients reach us (default: what the tracker sees).")
@click.option("--sessions", type=Count(min=1), metavar="N", default=8, show_default=True, help="So many at once.")
@click.option("--memory", type=click.FloatRange(min=0.1), metavar="GIB", help="Of a session (default: half of all).")
@click.option("--time", "time_s", type=DURATION, default="4h", show_default=True, help="Of a session, at most.")
def serve(
    common: Common, host: str, port: int, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None, key: str,
    tracker: str | None, address: str | None, sessions: int, memory: float | None, time_s: float,
) -> None:  # fmt: skip
    """Run what clients send, on this machine's devices, each client in a process of its own, until Ctrl-C.

    Whoever knows the secret can run machine code here, with your rights.
    """
    from autosched.rpc import Server, SessionLimits
    from autosched.rpc.reach import Address

    place = Address.parse(tracker) if tracker else None
    limits = SessionLimits(memory_bytes=int(memory * GIB) if memory else None, time_s=time_s)
    server = Server(
        host, port, port + 1, tracker_addr=(place.host, place.port) if place else None, key=key, custom_addr=address,
        silent=common.is_quiet, access=make_access(tls_ca, tls_cert, tls_key), limits=limits, most_sessions=sessions,
    )  # fmt: skip
    _until_interrupted(server)


@make_command("track", example="autosched rpc track\nautosched rpc serve --key board --tracker 127.0.0.1:9190")
@_with_listening(9190)
def track(
    common: Common, host: str, port: int, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None
) -> None:
    """Hand out the devices of servers that announce themselves, until Ctrl-C."""
    from autosched.rpc import Tracker

    access = make_access(tls_ca, tls_cert, tls_key)
    _until_interrupted(Tracker(host, port, port + 1, silent=common.is_quiet, access=access))


@make_command("devices", example="autosched rpc devices 127.0.0.1:9190")
@click.argument("address", metavar="HOST:PORT")
@click.option("--tls-ca", type=click.Path(path_type=Path), metavar="FILE", help="The authority for TLS, PEM.")
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Our certificate, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Our key, PEM.")
def devices(common: Common, address: str, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None) -> None:
    """Show the devices that the tracker at HOST:PORT hands out, and who waits for some."""
    from autosched.rpc import connect_tracker
    from autosched.rpc.reach import Address

    place = Address.parse(address)
    found = connect_tracker(place.host, place.port, access=make_access(tls_ca, tls_cert, tls_key)).summary()
    rows = [
        {
            "key": server["key"],
            "address": f"{server['addr'][0]}:{server['addr'][1]}",
            "state": "in use" if server["held"] or server["sessions"] else "free",
            "waiting": found["queue_info"][server["key"]]["pending"],
        }
        for server in found["server_info"]
    ]
    rows += [
        {"key": key, "address": "", "state": "none", "waiting": queue["pending"]}
        for key, queue in found["queue_info"].items()
        if not queue["total"]
    ]
    columns = (
        Column("key", "key"), Column("address", "address"), Column("state", "state"),
        Column("waiting", "waiting", right=True),
    )  # fmt: skip
    show(Table(columns, rows), common.format)


def _until_interrupted(listening: Server | Tracker) -> None:
    """Serve until Ctrl-C or SIGTERM, which are how it ends well."""
    with contextlib.suppress(KeyboardInterrupt):
        try:
            listening.wait()
        finally:
            listening.terminate()


for _made in (serve, track, devices):
    command.add_command(_made)
