"""What a worker says of the device that it measures on: the tag that decides which candidates run there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.errors import TargetError, UsageError
from autosched.target import Fingerprint, Target, choose_threads, host_cpu
from autosched.target.cpus import features_of
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.json_types import Json

BUILD = "autosched build"  # the resource of a worker that compiles
INFO = "autosched"  # where a worker's own facts stand in the scheduler's list


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device in a cluster.

    target   complete: says what it is for on every machine, whatever that is itself
    threads  that kernels may use there
    """

    fingerprint: Fingerprint
    target: Target
    threads: int

    @property
    def tag(self) -> str:
        """The name of the resource that a worker with such a device has one of."""
        return f"autosched run {self.fingerprint.key}"

    @property
    def text(self) -> str:
        """In a few words."""
        return f"{self.fingerprint.details}, threads {self.threads}"

    def to_json(self) -> str:
        """As text that travels; with the version, as both sides must agree on what they send each other."""
        document = {
            "version": __version__,
            "fingerprint": json.loads(self.fingerprint.to_json()),
            "target": self.target.to_json(),
            "threads": self.threads,
        }
        return json.dumps(document)

    @staticmethod
    def from_json(text: Json) -> Device | None:
        """Read what `to_json` wrote; None for anything else, and for what another version wrote."""
        try:
            document = json.loads(text)
            if document["version"] != __version__:
                return None
            fingerprint = Fingerprint.from_json(document["fingerprint"])
            return Device(fingerprint, Target(document["target"]).on(fingerprint), int(document["threads"]))
        except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
            return None


def this_device(declared: Target | str | None = None, threads: int | None = None) -> Device:
    """This machine as a device, or as what it is declared to be. Raises UsageError for what is no CPU."""
    target = Target("cpu") if declared is None else Target(declared)
    if not target.is_cpu:
        raise UsageError(f"a worker measures on its CPU, and '{target}' is none", hint="tune where the GPU is")
    fingerprint = target.fingerprint()
    return Device(fingerprint, complete(target).on(fingerprint), choose_threads(threads))


def complete(target: Target) -> Target:
    """The same target with everything spelt out that would else be taken from the machine that reads it."""
    cache = target.cache
    found = target.export() | {
        "mcpu": target.mcpu,
        "num-cores": target.num_cores,
        "l1-bytes": cache.l1_bytes,
        "l2-bytes": cache.l2_bytes,
        "l3-bytes": cache.l3_bytes,
        "tag": "",
    }
    try:
        usual = features_of(target.mcpu) if target.mcpu == host_cpu().mcpu else target.features
    except TargetError:  # a CPU that LLVM alone knows by name
        usual = frozenset()
    more = [f"+{name}" for name in sorted(target.features - usual)]
    less = [f"-{name}" for name in sorted(usual - target.features)]
    changes = [*target.mattr, *(change for change in (*more, *less) if change not in target.mattr)]
    return Target(found | ({"mattr": changes} if changes else {}))
