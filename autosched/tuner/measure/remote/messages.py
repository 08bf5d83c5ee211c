"""What tuner and session send each other, as JSON: kernels without their texts, packs, options, measurements.

Both sides are of versions that fit (`rpc.access.fits`); a field that one of them does not know is refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autosched.errors import InvalidValueError
from autosched.lazy_names import resolve
from autosched.runtime.kernel import Kernel
from autosched.task import Measurement, Status
from autosched.tuner.measure.base import MeasureOptions
from autosched.tuner.measure.reference import Reference

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.templates.pack import Packing
    from autosched.tuner.measure.base import Packs

# What turns natural arguments into a kernel's, by the name of its class.
PACKS: Mapping[str, str] = {
    "Pack": "autosched.templates.pack:Pack",
    "WinogradPack": "autosched.templates.winograd_pack:WinogradPack",
    "TapPack": "autosched.templates.winograd_pack:TapPack",
    "MatrixPack": "autosched.templates.cuda.product_form:MatrixPack",
}


def kernel_entry(kernel: Kernel) -> JsonObject:
    """All of a kernel but its code, and without the texts that only people read."""
    return dataclasses.replace(kernel, source="", trace="", config="", llvm_packed="").to_manifest()


def pack_entries(packs: Packs) -> list[Json]:
    """Packs as JSON. Raises InvalidValueError for one of a kind that sessions do not know."""
    return [None if pack is None else _pack_entry(pack) for pack in packs]


def _pack_entry(pack: Any) -> JsonObject:
    name = type(pack).__name__
    if name not in PACKS:
        raise InvalidValueError(f"arguments packed by {name} cannot be measured remotely")
    return {"kind": name, **{f.name: getattr(pack, f.name) for f in dataclasses.fields(pack)}}


def read_packs(entries: Json) -> Packs:
    """Packs from JSON. Raises InvalidValueError, TypeError or KeyError for what `pack_entries` never gave."""
    return tuple(None if entry is None else _read_pack(dict(entry)) for entry in entries)


def _read_pack(entry: JsonObject) -> Packing:
    name = str(entry.pop("kind"))
    if name not in PACKS:
        raise InvalidValueError(f"unknown packing '{name[:40]}'")
    read: Packing = resolve(PACKS[name])(**{key: _tuples(value) for key, value in entry.items()})
    return read


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def options_entry(options: MeasureOptions) -> JsonObject:
    """Options as JSON."""
    return dataclasses.asdict(options)


def read_options(entry: Json) -> MeasureOptions:
    """Options from JSON. Raises InvalidValueError, TypeError for impossible ones."""
    return MeasureOptions(**dict(entry))


def measurement_entry(found: Measurement) -> JsonObject:
    """A measurement as JSON."""
    return {
        "status": found.status.value,
        "times_s": list(found.times_s),
        "checked_against": found.checked_against,
        "error": found.error,
        "how": dict(found.how),
    }


def read_measurement(entry: Json) -> Measurement:
    """A measurement from JSON. Raises ValueError, TypeError or KeyError for what is none."""
    times = tuple(float(t) for t in entry["times_s"])
    checked, error, how = str(entry["checked_against"]), str(entry["error"]), dict(entry["how"])
    return Measurement(Status(entry["status"]), times, checked, error=error, how=how)


def reference_facts(reference: Reference) -> JsonObject:
    """All of a reference but its arrays."""
    return {"rounding": list(reference.rounding), "seed": reference.seed, "is_part": reference.is_part}
