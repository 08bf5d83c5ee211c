"""Which remote devices measure: they are reached, and seen to be of one kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from autosched.errors import AutoschedError, UsageError
from autosched.rpc.access import Access
from autosched.rpc.client import RPCSession
from autosched.rpc.reach import Address, count_devices, open_session
from autosched.target import Target
from autosched.tuner.measure.base import MeasureOptions
from autosched.tuner.measure.cluster.device import Device
from autosched.tuner.measure.remote.measurer import RemoteMeasurer
from autosched.tuner.measure.remote.runner import OpenSession

_WAIT_S = 60.0  # for a tracker to have a device free


class RemoteDevices:
    """The devices at some addresses; a tracker's count as many as it has of the key.

    device  what all of them are
    Raises  UsageError for a refused address or devices of several kinds, RPCError where one cannot be reached.
    """

    def __init__(self, addresses: Sequence[Address], access: Access | None = None):
        self.openers: list[OpenSession] = []
        found: dict[str, Device] = {}
        for address in addresses:
            opener = functools.partial(open_session, address, access, _WAIT_S)
            self.openers += [opener] * count_devices(address, access)
            with opener() as session:
                device = device_of(session)
            found.setdefault(device.fingerprint.key, device)
        if len(found) > 1:
            there = "; ".join(device.text for device in found.values())
            raise UsageError("devices of several kinds are tuned one after the other", hint=f"there are: {there}")
        (self.device,) = found.values()

    def measurer(self, target: Target | str, options: MeasureOptions) -> RemoteMeasurer:
        """What a tuner measures with."""
        return RemoteMeasurer(target, options, self.openers)


def device_of(session: RPCSession) -> Device:
    """What the other side of a session is. Raises AutoschedError where that is of another version."""
    found = Device.from_json(session.ask("measure", what="device"))
    if found is None:
        hint = "install the same version of autosched on both sides to measure there"
        raise AutoschedError(f"the session at {session.where} is of another version", hint=hint)
    return found
