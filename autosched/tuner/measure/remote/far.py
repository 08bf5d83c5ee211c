"""The session's side of remote measuring: `MeasuringRole` checks and times what a tuner sends, as local runners do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import InvalidValueError
from autosched.json_types import Json
from autosched.runtime.kernel import Kernel
from autosched.task import Measurement, Status
from autosched.tuner.measure.cluster.device import this_device
from autosched.tuner.measure.reference import Reference
from autosched.tuner.measure.remote.messages import measurement_entry, read_options, read_packs
from autosched.tuner.measure.run_role import NATIVE, Entry, Interleave, Run, RunRole
from autosched.tuner.measure.worker import Do, serve

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

_MOST_KERNELS = 64  # of which a tuner speaks at the same time

Arrays = Callable[[Json], np.ndarray]


@dataclass(frozen=True, slots=True)
class _Given:
    """A reference in the session's memory."""

    reference: Reference

    def load(self) -> Reference:
        return self.reference


class MeasuringRole:
    """Answers the requests of one session."""

    def __init__(self) -> None:
        self._role = RunRole()
        self._kernels: dict[int, Kernel] = {}
        self._next = 0

    def answer(self, request: Mapping[str, Json], raw: bytes, arrays: Arrays) -> Json:
        """What a request gives, as JSON.

        raw     machine code: of the native loop or a kernel
        arrays  the session's array of a number
        Raises  AutoschedError, KeyError, TypeError or ValueError for a request that is none.
        """
        match request["what"]:
            case "device":
                return this_device().to_json()
            case "native":
                return self._role.learn(NATIVE, raw)
            case "kernel":
                return self._keep(Kernel.from_manifest(request["manifest"], raw))
            case "reference":
                return self._role.learn(str(request["key"]), _Given(_reference(request, arrays)))
            case "run" | "interleave":
                return self._measure(request)
        raise InvalidValueError(f"nothing is measured by '{str(request['what'])[:40]}'")

    def _keep(self, kernel: Kernel) -> int:
        while len(self._kernels) >= _MOST_KERNELS:
            del self._kernels[next(iter(self._kernels))]
        self._next += 1
        self._kernels[self._next] = kernel
        return self._next

    def _measure(self, request: Mapping[str, Json]) -> JsonObject:
        """A measurement, or of several kernels the times of each."""
        entries = tuple(map(self._entry, request["entries"]))
        key, options = str(request["reference"]), read_options(request["options"])
        message: Run | Interleave
        if request["what"] == "run":
            best_s = None if request["best_s"] is None else float(request["best_s"])
            is_timed, is_checked = bool(request["is_timed"]), bool(request["is_checked"])
            message = Run(entries[0], key, options, best_s, is_timed=is_timed, is_checked=is_checked)
        else:
            message = Interleave(entries, key, options, int(request["rounds"]))
        reply, is_spoilt = serve(self._role, Do(0, message))
        if reply.status is not Status.OK:  # after some the process cannot go on: the tuner then opens another session
            return {"status": reply.status.value, "error": reply.error, "is_spoilt": is_spoilt}
        if isinstance(reply.value, Measurement):
            return {"status": Status.OK.value, "measurement": measurement_entry(reply.value)}
        return {"status": Status.OK.value, "value": reply.value}

    def _entry(self, entry: Mapping[str, Json]) -> Entry:
        kernel = self._kernels[int(entry["kernel"])]
        return Entry(kernel, read_packs(entry["packs"]), int(entry["threads"]))


def _reference(request: Mapping[str, Json], arrays: Arrays) -> Reference:
    inputs, outputs = (tuple(map(arrays, request[name])) for name in ("inputs", "outputs"))
    rounding = tuple(float(share) for share in request["rounding"])
    if len(rounding) != len(outputs):
        raise InvalidValueError(f"{len(rounding)} bounds of rounding for {len(outputs)} outputs")
    return Reference(inputs, outputs, rounding, int(request["seed"]), bool(request["is_part"]))
