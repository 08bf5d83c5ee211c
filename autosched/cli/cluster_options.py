"""The options of commands that talk to other machines: a cluster's scheduler, servers of devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.tuner.measure.cluster.security import Access


def with_access(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options that say how others are reached: --tls-ca, --tls-cert, --tls-key and --insecure."""
    decorated = function
    for option in (
        click.option("--insecure", is_flag=True, help="Use a scheduler without TLS that other machines can reach."),
        click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Our key, PEM."),
        click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Our certificate, PEM."),
        click.option("--tls-ca", type=click.Path(path_type=Path), metavar="FILE", help="The authority for TLS, PEM."),
    ):
        decorated = option(decorated)
    return decorated


def make_access(address: str, ca: Path | None, cert: Path | None, key: Path | None, insecure: bool) -> Access:
    """What the options say. Raises UsageError if dask.distributed is not installed."""
    from importlib.util import find_spec

    from autosched.tuner.measure.cluster.security import Access

    if find_spec("distributed") is None:
        raise UsageError("a cluster needs dask.distributed", hint="pip install 'autosched[cluster]'")
    return Access(address, ca, cert, key, insecure)
