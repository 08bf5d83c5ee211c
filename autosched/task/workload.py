"""What is tuned: an operator with its shapes, and the task that ties it to a target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autosched.errors import InvalidValueError
from autosched.json_types import Json

if TYPE_CHECKING:
    from autosched.target import Target

AttrValue = int | float | str | bool | None | tuple["AttrValue", ...]


@dataclass(frozen=True, eq=False)
class Workload:
    """An anchor operator in its natural layout: what a configuration is good for.

    op        "matmul", "conv2d", …
    dtypes    of the inputs, then the outputs
    shapes    of the inputs, then the outputs; all ints
    attrs     strides, padding, groups, … as plain values
    epilogue  class of what is fused behind the anchor ("", "bias+relu", "add+relu", …)
    Equal workloads have equal `key`s, canonical JSON text, which is what the database stores.
    """

    op: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    epilogue: str = ""
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "dtypes", tuple(str(dtype) for dtype in self.dtypes))
        set_field(self, "shapes", tuple(tuple(int(size) for size in shape) for shape in self.shapes))
        attrs = {str(name): _plain(name, value) for name, value in self.attrs.items()}
        set_field(self, "attrs", MappingProxyType(attrs))
        document = {
            "op": self.op, "dtypes": self.dtypes, "shapes": self.shapes, "attrs": attrs, "epilogue": self.epilogue
        }  # fmt: skip
        set_field(self, "key", json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False))

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Workload) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        shapes = " ".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        return f"{self.op} {shapes}" + (f" + {self.epilogue}" if self.epilogue else "")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Workload, (self.op, self.dtypes, self.shapes, dict(self.attrs), self.epilogue)

    def to_json(self) -> str:
        """Canonical JSON text; equal workloads give equal text."""
        return self.key

    @staticmethod
    def from_json(document: str | Mapping[str, Json]) -> Workload:
        """Read what `to_json` wrote, as text or already decoded. Raises InvalidValueError for anything else."""
        try:
            data = json.loads(document) if isinstance(document, str) else document
            match data:
                case {"op": str() as op, "dtypes": list() | tuple() as dtypes, "shapes": list() | tuple() as shapes}:
                    return Workload(op, tuple(dtypes), tuple(shapes), data.get("attrs", {}), data.get("epilogue", ""))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidValueError(f"not a workload: {error}") from None
        raise InvalidValueError("a workload needs op, dtypes and shapes")


def _plain(name: str, value: object) -> AttrValue:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Sequence):
        return tuple(_plain(name, part) for part in value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _plain(name, value.item())
    raise InvalidValueError(f"attribute '{name}' is a {type(value).__name__}", hint="use numbers, text and tuples")


@dataclass(frozen=True, eq=False)
class Task:
    """A workload to be tuned for a target.

    weight   how often it occurs in the model
    func     the PrimFunc in natural layouts; None where only records are looked up
    threads  the thread budget: a configuration uses at most so many
    cache    how a kernel finds its weights where it will run: "cold" or "warm"; "": nobody knows
    name     what the model calls it, for people
    run_as   "throughput": many instances of the model will run at once; "latency", or "": one alone
    """

    workload: Workload
    target: Target
    weight: int = 1
    func: Any = field(default=None, repr=False)  # a tir.PrimFunc; this package knows nothing of it
    threads: int = 1
    name: str = ""
    cache: str = ""
    run_as: str = ""

    def __post_init__(self) -> None:
        if self.weight < 1 or self.threads < 1:
            raise InvalidValueError(f"weight {self.weight} and threads {self.threads} must be at least 1")

    @property
    def key(self) -> str:
        """The workload's key: what records are filed under, beside the target's fingerprint and the threads."""
        return self.workload.key

    @property
    def title(self) -> str:
        """The task in a few words."""
        return self.name or str(self.workload)
