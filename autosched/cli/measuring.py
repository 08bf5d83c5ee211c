"""Where `autosched tune` measures: here, on the workers of a cluster, or on remote devices."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.cli.cluster_options import make_access
from autosched.cli.common import Common
from autosched.cli.output import say
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions
    from autosched.json_types import Json, JsonObject
    from autosched.tuner.measure.cluster.device import Device


@dataclass(frozen=True)
class Elsewhere:
    """What the options say of other machines.

    on      address of a scheduler
    remote  addresses of servers and trackers
    access  the values of `with_access`'s options
    Raises  UsageError for options that exclude each other, or that do nothing.
    """

    on: str | None = None
    remote: Sequence[str] = ()
    access: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        used = [f"--{name.replace('_', '-')}" for name, value in self.access.items() if value]
        if self.on is not None and self.remote:
            raise UsageError("--on and --remote exclude each other")
        if used and not self.option:
            raise UsageError(f"{used[0]} does nothing without --on or --remote")
        if self.remote and self.access.get("insecure"):
            raise UsageError("--insecure belongs to --on", hint="other machines are reached with TLS")

    @property
    def option(self) -> str:
        """The option that was used; "" for this machine."""
        return "--on" if self.on is not None else "--remote" if self.remote else ""

    @contextlib.contextmanager
    def measuring(self, common: Common, options: TuneOptions) -> Iterator[JsonObject]:
        """The arguments of `driver.tune` that say where it measures.

        Raises  UsageError, AutoschedError if nobody answers there or no device is of the target.
        """
        files = {name.removeprefix("tls_"): value for name, value in self.access.items()}
        if self.on is not None:
            from autosched.tuner.measure.cluster.measurer import Cluster

            with Cluster(make_access(self.on, **files)) as cluster:
                device = cluster.choose(common.target)
                count = cluster.devices()[device]
                yield _place(common, options, device, count, lambda target, how: cluster.measurer(device, how))
        elif self.remote:
            from autosched.cli import remote_options
            from autosched.rpc.reach import Address
            from autosched.tuner.measure.remote.place import RemoteDevices

            if common.target != "cpu":
                raise UsageError("--target and --remote exclude each other", hint="the device says what it is")
            tls = {name: value for name, value in self.access.items() if name != "insecure"}
            access = remote_options.make_access(**tls)
            there = RemoteDevices([Address.parse(text) for text in self.remote], access)
            yield _place(common, options, there.device, len(there.openers), there.measurer)
        else:
            yield {"target": common.target, "options": options}


def _place(common: Common, options: TuneOptions, device: Device, count: int, measurer: object) -> JsonObject:
    say(f"measuring on {count} × {device.text}", quiet=common.is_quiet)
    threads, verify = common.threads or device.threads, options.verify
    if verify == "model" and (objection := cannot_run_here(device, threads)):
        verify = "task"
        say(f"winners are judged task by task, not inside the model: {objection}", quiet=common.is_quiet)
    there = dataclasses.replace(options, threads=threads, verify=verify)
    return {"target": device.target, "options": there, "measurer": measurer}


def cannot_run_here(device: Device, threads: int) -> str:
    """Why whole models for another device say nothing when they run on this machine; "" where they do."""
    from autosched.target import Target, choose_threads

    here = Target("cpu").fingerprint()
    if device.fingerprint != here:
        return f"it is for {device.fingerprint.name}, and this machine is another kind of device"
    if threads > (most := choose_threads()):
        return f"it is for {threads} threads, and this machine has {most}"
    return ""
