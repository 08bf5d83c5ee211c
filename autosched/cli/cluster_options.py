"""The options of commands that talk to a cluster's scheduler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli.common import Common
from autosched.cli.output import say
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions
    from autosched.tuner.measure.cluster.device import Device
    from autosched.tuner.measure.cluster.security import Access


def with_access(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a scheduler is reached: --tls-ca, --tls-cert, --tls-key and --insecure."""
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


@contextlib.contextmanager
def measuring_on(
    address: str | None, common: Common, options: TuneOptions, access: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The arguments of `driver.tune` that say where it measures: here, or on the workers of a scheduler.

    access  the values of `with_access`'s options
    Raises  UsageError, AutoschedError if the scheduler cannot be used or no worker has such a device.
    """
    if address is None:
        if used := [name for name, value in access.items() if value]:
            raise UsageError(f"--{used[0].replace('_', '-')} does nothing without --on")
        yield {"target": common.target, "options": options}
        return
    known = {name.removeprefix("tls_"): value for name, value in access.items()}
    reached = make_access(address, **known)
    from autosched.tuner.measure.cluster.measurer import Cluster

    with Cluster(reached) as cluster:
        device = cluster.choose(common.target)
        say(f"measuring on {cluster.devices()[device]} × {device.text}", quiet=common.is_quiet)
        threads = common.threads or device.threads
        verify = options.verify
        if verify == "model" and (objection := cannot_run_here(device, threads)):
            verify = "task"
            say(f"winners are judged task by task, not inside the model: {objection}", quiet=common.is_quiet)
        there = dataclasses.replace(options, threads=threads, verify=verify)
        yield {
            "target": device.target,
            "options": there,
            "measurer": lambda target, how: cluster.measurer(device, how),
        }


def cannot_run_here(device: Device, threads: int) -> str:
    """Why whole models for a cluster's device say nothing when they run on this machine; "" where they do."""
    from autosched.target import Target, choose_threads

    here = Target("cpu").fingerprint()
    if device.fingerprint != here:
        return f"it is for {device.fingerprint.name}, and this machine is another kind of device"
    if threads > (most := choose_threads()):
        return f"it is for {threads} threads, and this machine has {most}"
    return ""
