"""What identifies the machine that a measurement was made on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A device as tuning records know it: two machines with equal fingerprints share their measurements."""

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
    def family(self) -> str:
        """The class of machines that shipped logs are made for, such as "x86-64-v3"."""
        return self.isa_level

    @property
    def key(self) -> str:
        """All fields in one line, equal exactly where the fingerprints are equal."""
        caches = f"{self.l1_bytes}-{self.l2_bytes}-{self.l3_bytes}"
        cpu = f"{self.vendor}-{self.cpu_family}-{self.model_name.replace(' ', '_')}"
        return f"{cpu}/{self.isa_level}-{self.vector_bits}/{caches}/{self.cores}"

    def to_json(self) -> str:
        """Give the fields as canonical JSON text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | dict[str, Any]) -> Fingerprint:
        """Read what `to_json` wrote; fields of a newer version are ignored."""
        fields = json.loads(text) if isinstance(text, str) else text
        return Fingerprint(**{name: fields[name] for name in Fingerprint.__dataclass_fields__})
