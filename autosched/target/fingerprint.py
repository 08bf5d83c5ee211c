"""What identifies the device that a measurement was made on."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import ClassVar

from autosched.json_types import Json, JsonObject

NO_MAKERS = ("", "x86_64", "aarch64")  # what stands for the vendor of a CPU that is only known by its instruction sets


@dataclass(frozen=True, slots=True)
class Fingerprint(ABC):
    """A device as tuning records know it: two with equal fingerprints share their measurements.

    Each kind of device has its own fields. The JSON form of all but a CPU's begins with the field "kind"; a CPU's has
    none, since records of CPUs are older than other kinds.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def family(self) -> str:
        """The class of devices that shipped logs are made for, such as "x86-64-v3" or "sm_90"."""

    @property
    def generation(self) -> str:
        """The maker and its generation of cores, which say something of what is fast on them; "" if unknown."""
        return ""

    @property
    @abstractmethod
    def name(self) -> str:
        """The product's name."""

    @property
    @abstractmethod
    def key(self) -> str:
        """All fields in one line, equal exactly where the fingerprints are equal."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """Its name and what tells it from others of its name, for people."""

    @property
    @abstractmethod
    def details(self) -> str:
        """Its name, what its machine code may use, and its caches."""

    @property
    @abstractmethod
    def isa(self) -> str:
        """What the machine code may use: "x86-64-v3", "sm_90a"."""

    @abstractmethod
    def difference(self, here: Fingerprint) -> str | None:
        """In what a device of the same kind differs from `here` where configurations are the same nevertheless.

        None where it differs in more than that; "" is not given for equal ones, which nobody asks for.
        """

    @property
    @abstractmethod
    def resources(self) -> Fingerprint:
        """What decides which configurations are good: the fingerprint without names and clocks."""

    def to_document(self) -> JsonObject:
        """Give the fields as plain data."""
        return ({} if self.kind == "cpu" else {"kind": self.kind}) | asdict(self)

    def to_json(self) -> str:
        """Give the fields as canonical JSON text."""
        return json.dumps(self.to_document(), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | Mapping[str, Json]) -> Fingerprint:
        """Read what `to_json` wrote; fields of a newer version are ignored.

        Raises ValueError for a kind that this version does not know, KeyError for a field that is missing.
        """
        document = json.loads(text) if isinstance(text, str) else text
        made = fingerprint_class(document)
        return made(**{field.name: document[field.name] for field in fields(made)})


@dataclass(frozen=True, slots=True)
class CpuFingerprint(Fingerprint):
    """A machine with its CPU, as it is used through a target."""

    kind: ClassVar[str] = "cpu"

    vendor: str
    cpu_family: int
    model_name: str
    isa_level: str  # "x86-64-v3", …
    vector_bits: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int

    @property
    def generation(self) -> str:
        return "" if self.vendor in NO_MAKERS else f"{self.vendor} {self.cpu_family}"

    @property
    def family(self) -> str:
        return self.isa_level

    @property
    def name(self) -> str:
        return self.model_name

    @property
    def isa(self) -> str:
        return self.isa_level

    @property
    def key(self) -> str:
        caches = f"{self.l1_bytes}-{self.l2_bytes}-{self.l3_bytes}"
        cpu = f"{self.vendor}-{self.cpu_family}-{self.model_name.replace(' ', '_')}"
        return f"{cpu}/{self.isa_level}-{self.vector_bits}/{caches}/{self.cores}"

    @property
    def summary(self) -> str:
        return f"{self.model_name}, {self.cores} cores, {self.vector_bits}-bit vectors"

    @property
    def details(self) -> str:
        caches = "/".join(str(size >> 10) for size in (self.l1_bytes, self.l2_bytes, self.l3_bytes))
        return f"{self.model_name} {self.isa_level}, caches {caches} KiB"

    def difference(self, here: Fingerprint) -> str | None:
        if isinstance(here, CpuFingerprint) and replace(self, cores=here.cores) == here:
            return f"tuned on {self.cores} cores, not {here.cores}"
        return None

    @property
    def resources(self) -> Fingerprint:
        # Cores are threads, which a look-up knows.
        return replace(self, vendor="", cpu_family=0, model_name="", cores=0)


@dataclass(frozen=True, slots=True)
class GpuFingerprint(Fingerprint):
    """A GPU, as it is used through a target."""

    kind: ClassVar[str] = "cuda"

    model_name: str
    arch: str  # that the code is made for: "sm_90a"
    compute_capability: str  # "9.0"
    sm_count: int
    clock_khz: int
    memory_clock_khz: int  # 0 where the driver does not say
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_sm: int
    registers_per_sm: int
    driver: str  # the version of CUDA that the driver is for, "13.0"; "" where no device was looked at

    @property
    def family(self) -> str:
        return self.arch.rstrip("af")

    @property
    def name(self) -> str:
        return self.model_name

    @property
    def isa(self) -> str:
        return self.arch

    @property
    def key(self) -> str:
        memory = f"{self.memory_bytes}-{self.l2_bytes}-{self.shared_bytes_per_sm}-{self.registers_per_sm}"
        clocks = f"{self.clock_khz}-{self.memory_clock_khz}"
        name = self.model_name.replace(" ", "_")
        return f"{name}/{self.arch}-{self.compute_capability}/{self.sm_count}/{clocks}/{memory}/{self.driver}"

    @property
    def summary(self) -> str:
        return f"{self.model_name}, {self.arch}, {self.sm_count} SMs at {self.clock_khz / 1e6:.2f} GHz"

    @property
    def details(self) -> str:
        sizes = f"shared memory {self.shared_bytes_per_sm >> 10} KiB, L2 {self.l2_bytes >> 10} KiB"
        return f"{self.model_name} {self.arch}, {self.sm_count} SMs, {sizes}"

    def difference(self, here: Fingerprint) -> str | None:
        if isinstance(here, GpuFingerprint) and replace(self, driver=here.driver) == here:
            return f"tuned with the driver of CUDA {self.driver or '?'}, not {here.driver or '?'}"
        return None

    @property
    def resources(self) -> Fingerprint:
        return replace(self, model_name="", driver="", clock_khz=0, memory_clock_khz=0, memory_bytes=0, l2_bytes=0)


@dataclass(frozen=True, slots=True)
class OtherFingerprint(Fingerprint):
    """A device of a kind that brings no fields of its own: its target's kind and model."""

    kind: ClassVar[str] = "device"

    target_kind: str
    model_name: str

    @property
    def family(self) -> str:
        return self.target_kind

    @property
    def name(self) -> str:
        return self.model_name

    @property
    def isa(self) -> str:
        return self.target_kind

    @property
    def key(self) -> str:
        return f"{self.model_name.replace(' ', '_')}/{self.target_kind}"

    @property
    def summary(self) -> str:
        return f"{self.model_name}, {self.target_kind}"

    @property
    def details(self) -> str:
        return self.summary

    def difference(self, here: Fingerprint) -> str | None:
        return None

    @property
    def resources(self) -> Fingerprint:
        return replace(self, model_name="")


_CLASSES: dict[str, type[Fingerprint]] = {
    kind.kind: kind for kind in (CpuFingerprint, GpuFingerprint, OtherFingerprint)
}


def fingerprint_class(document: Mapping[str, object]) -> type[Fingerprint]:
    """The class of what a document describes. Raises ValueError for a kind that this version does not know."""
    if not isinstance(document, Mapping):
        raise ValueError("a device is no JSON object")
    kind = document.get("kind", "cpu")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise ValueError(f"unknown kind of device {str(kind)[:40]!r}")
    return _CLASSES[kind]
